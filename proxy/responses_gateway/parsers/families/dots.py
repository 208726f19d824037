"""dots: MiniMax M2's invocations in a block of its own name."""

from responses_gateway.parsers.families.minimax_m2 import invocations
from responses_gateway.parsers.format import Family, NameSign, TemplateSign

FAMILY = Family(
    tools={"dots": invocations("dots_function_call")},
    names=(NameSign("dots3", "qwen3", "dots"),),
    tool_signs=(TemplateSign("<dots_function_call>", "dots"),),
)
