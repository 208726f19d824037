"""ERNIE 4.5: Hermes calls, reasoning without an opening, the answer in tags."""

from proxy.parsers.families.hermes import THINK, THINK_END, TOOLS
from proxy.parsers.format import Reasoning

__all__ = ["REASONING", "TOOLS"]

REASONING = Reasoning(opens=THINK, closes=THINK_END, implicit=True, wrappers=(("<response>", "</response>"),))
