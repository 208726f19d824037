"""Seed OSS: Qwen 3 Coder's tags under its own names."""

from responses_gateway.parsers.families.qwen3_coder import function_tags
from responses_gateway.parsers.format import Family, NameSign, ReasoningFormat, TemplateSign

REASONING = ReasoningFormat(opens=("<seed:think>",), closes=("</seed:think>",), implicit=True)
TOOLS = function_tags("<seed:tool_call>", "</seed:tool_call>")

FAMILY = Family(
    reasoning={"seed_oss": REASONING},
    tools={"seed_oss": TOOLS},
    names=(NameSign("seed-oss", "seed_oss", "seed_oss"),),
    reasoning_signs=(TemplateSign("<seed:think>", "seed_oss"),),
    tool_signs=(TemplateSign("<seed:tool_call>", "seed_oss"),),
)
