"""Olmo 3: calls as Python, in tags."""

from responses_gateway.parsers.families.hermes import REASONING
from responses_gateway.parsers.format import CallFormat, Family, NameSign, PythonCalls, TemplateSign, ToolFormat

CALL = CallFormat(opens=("<function_calls>",), first=r"[\[\w]", arguments=PythonCalls(), closes=("</function_calls>",))

FAMILY = Family(
    reasoning={"olmo3": REASONING},
    tools={"olmo3": ToolFormat(calls=(CALL,))},
    names=(NameSign("olmo-3", "olmo3", "olmo3"), NameSign("olmo-3*instruct", None, "olmo3")),
    tool_signs=(TemplateSign("<function_calls>", "olmo3"),),
    think_tags={"olmo3": "olmo3"},
)
