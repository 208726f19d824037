"""Muse Glimmer: MiniMax M2's invocations, with a prefix in every tag."""

from proxy.parsers.families.minimax_m2 import invocations
from proxy.parsers.format import Family, TemplateSign

FAMILY = Family(
    tools={"muse_glimmer": invocations("atem:function_calls", prefix="atem:")},
    tool_signs=(TemplateSign("<atem:function_calls>", "muse_glimmer"),),
)
