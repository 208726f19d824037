"""Hunyuan A13B: an array of calls in tags, the answer in tags too. Jamba writes its calls in the same way."""

from responses_gateway.parsers.families.hermes import THINK, THINK_END
from responses_gateway.parsers.format import (
    CallFormat,
    Family,
    JsonEnvelope,
    NameSign,
    ReasoningFormat,
    TemplateSign,
    ToolFormat,
)

REASONING = ReasoningFormat(opens=THINK, closes=THINK_END, wrappers=(("<answer>", "</answer>"),))
CALL = CallFormat(opens=("<tool_calls>",), first=r"\[", arguments=JsonEnvelope(), closes=("</tool_calls>",), fillers=("}", "]"))
TOOLS = ToolFormat(calls=(CALL,))

FAMILY = Family(
    reasoning={"hunyuan_a13b": REASONING},
    tools={"hunyuan_a13b": TOOLS},
    names=(NameSign("hunyuan-a13b", "hunyuan_a13b", "hunyuan_a13b"),),
    tool_signs=(TemplateSign("<tool_calls>", "hunyuan_a13b"),),
    think_tags={"hunyuan_a13b": "hunyuan_a13b"},
)
