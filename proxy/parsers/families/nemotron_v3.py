"""Nemotron 3 and Granite 4.2: Qwen 3 Coder's tags."""

from proxy.parsers.families.hermes import REASONING
from proxy.parsers.families.qwen3_coder import TOOLS

__all__ = ["REASONING", "TOOLS"]
