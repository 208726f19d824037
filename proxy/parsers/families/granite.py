"""Granite 3: an array after a marker, reasoning between sentences. The older function-calling model has its own marker."""

from proxy.parsers.format import Call, JsonEnvelope, Reasoning, Tools

REASONING = Reasoning(
    opens=("Here is my thought process:", "Here's my thought process:"),
    closes=("Here is my response:", "Here's my response:"),
    at_start=True,
)
CALL = Call(
    opens=("<|tool_call|>", "<tool_call>"),
    first=r"[\[{]",
    arguments=JsonEnvelope(),
    fillers=("</tool_call>", "<|/tool_call|>"),
)
TOOLS = Tools(calls=(CALL,))
FUNCTION_CALLING_TOOLS = Tools(calls=(Call(opens=("<function_call>",), first=r"\{", arguments=JsonEnvelope()),))
