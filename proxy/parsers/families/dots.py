"""dots: MiniMax M2's invocations in a block of its own name."""

from proxy.parsers.families.minimax_m2 import invocations
from proxy.parsers.format import Family, TemplateSign

FAMILY = Family(
    tools={"dots": invocations("dots_function_call")},
    tool_signs=(TemplateSign("<dots_function_call>", "dots"),),
)
