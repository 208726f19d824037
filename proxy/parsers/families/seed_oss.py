"""Seed OSS: Qwen 3 Coder's tags under its own names."""

from proxy.parsers.families.qwen3_coder import function_tags
from proxy.parsers.format import Reasoning

REASONING = Reasoning(opens=("<seed:think>",), closes=("</seed:think>",), implicit=True)
TOOLS = function_tags("<seed:tool_call>", "</seed:tool_call>")
