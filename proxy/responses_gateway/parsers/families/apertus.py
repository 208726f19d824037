"""Apertus: an array of objects whose one key is the tool's name."""

from responses_gateway.parsers.format import (
    CallFormat,
    Family,
    JsonEnvelope,
    NameSign,
    ReasoningFormat,
    TemplateSign,
    ToolFormat,
)

REASONING = ReasoningFormat(opens=("<|inner_prefix|>",), closes=("<|inner_suffix|>",))
CALL = CallFormat(
    opens=("<|tools_prefix|>",), first=r"\[", arguments=JsonEnvelope(name_is_key=True), closes=("<|tools_suffix|>",)
)

FAMILY = Family(
    reasoning={"apertus": REASONING},
    tools={"apertus": ToolFormat(calls=(CALL,))},
    names=(NameSign("apertus", "apertus", "apertus"),),
    reasoning_signs=(TemplateSign("<|inner_prefix|>", "apertus"),),
    tool_signs=(TemplateSign("<|tools_prefix|>", "apertus"),),
)
