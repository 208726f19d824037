"""MiMo: Qwen 3 Coder's tags, with values taken as they stand, line breaks and all."""

from proxy.parsers.families.hermes import REASONING
from proxy.parsers.families.qwen3_coder import function_tags

__all__ = ["REASONING", "TOOLS"]

TOOLS = function_tags("<tool_call>", "</tool_call>", trim=False)
