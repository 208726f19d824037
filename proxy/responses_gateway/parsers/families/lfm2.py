"""LFM 2: calls as a Python list between special tokens."""

from responses_gateway.parsers.format import CallFormat, Family, NameSign, PythonCalls, TemplateSign, ToolFormat

CALL = CallFormat(opens=("<|tool_call_start|>",), first=r"[\[\w]", arguments=PythonCalls(), closes=("<|tool_call_end|>",))

FAMILY = Family(
    tools={"lfm2": ToolFormat(calls=(CALL,))},
    names=(NameSign("lfm2", None, "lfm2"),),
    tool_signs=(TemplateSign("<|tool_call_start|>", "lfm2"),),
)
