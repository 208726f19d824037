"""ERNIE 4.5: Hermes calls, reasoning without an opening, the answer in tags."""

from proxy.stream.formats.format import Reasoning

from .hermes import THINK, THINK_END, TOOLS

__all__ = ["REASONING", "TOOLS"]

REASONING = Reasoning(opens=THINK, closes=THINK_END, implicit=True, wrappers=(("<response>", "</response>"),))
