"""Phi 4 Mini: an array of calls after the word `functools`."""

from responses_gateway.parsers.format import CallFormat, Family, JsonEnvelope, NameSign, TemplateSign, ToolFormat

CALL = CallFormat(opens=("functools",), first=r"\[", arguments=JsonEnvelope())

FAMILY = Family(
    tools={"phi4_mini_json": ToolFormat(calls=(CALL,))},
    names=(NameSign("phi-4-mini", None, "phi4_mini_json"),),
    tool_signs=(TemplateSign("functools[", "phi4_mini_json"),),
)
