"""MiMo: Qwen 3 Coder's tags, with values taken as they stand, line breaks and all."""

from .hermes import REASONING
from .qwen3_coder import function_tags

__all__ = ["REASONING", "TOOLS"]

TOOLS = function_tags("<tool_call>", "</tool_call>", trim=False)
