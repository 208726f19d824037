"""LongCat: a JSON object in tags of its own name."""

from responses_gateway.parsers.format import (
    CallFormat,
    Family,
    JsonEnvelope,
    NameSign,
    ReasoningFormat,
    TemplateSign,
    ToolFormat,
)

REASONING = ReasoningFormat(opens=("<longcat_think>",), closes=("</longcat_think>",))
CALL = CallFormat(
    opens=("<longcat_tool_call>",), first=r"\{", arguments=JsonEnvelope(), closes=("</longcat_tool_call>",), fillers=("}",)
)

FAMILY = Family(
    reasoning={"longcat": REASONING},
    tools={"longcat": ToolFormat(calls=(CALL,))},
    names=(NameSign("longcat", "longcat", "longcat"),),
    reasoning_signs=(TemplateSign("<longcat_think>", "longcat"),),
    tool_signs=(TemplateSign("<longcat_tool_call>", "longcat"),),
)
