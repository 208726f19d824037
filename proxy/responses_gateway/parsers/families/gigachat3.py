"""GigaChat 3: a JSON object after a role that says it is a call."""

from responses_gateway.parsers.format import CallFormat, Family, JsonEnvelope, ToolFormat

CALL = CallFormat(
    opens=("function call<|role_sep|>", "<|message_sep|>\n\nfunction call<|role_sep|>", "<|function_call|>"),
    first=r"\{",
    arguments=JsonEnvelope(),
)

FAMILY = Family(tools={"gigachat3": ToolFormat(calls=(CALL,))})
