"""Seed OSS: Qwen 3 Coder's tags under its own names."""

from proxy.stream.formats.format import Reasoning

from .qwen3_coder import function_tags

REASONING = Reasoning(opens=("<seed:think>",), closes=("</seed:think>",), implicit=True)
TOOLS = function_tags("<seed:tool_call>", "</seed:tool_call>")
