"""Cohere Command A and its successors: everything between special tokens, calls as an array of objects."""

from proxy.parsers.format import Call, JsonEnvelope, Reasoning, Tools

REASONING = Reasoning(
    opens=("<|START_THINKING|>",),
    closes=("<|END_THINKING|>",),
    wrappers=(("<|START_RESPONSE|>", "<|END_RESPONSE|>"), ("<|START_TEXT|>", "<|END_TEXT|>")),
)
CALL = Call(
    opens=("<|START_ACTION|>",),
    first=r"[\[{]",
    arguments=JsonEnvelope(names=("tool_name", "name"), arguments=("parameters", "arguments")),
    closes=("<|END_ACTION|>",),
    fillers=("}", "]"),
)
TOOLS = Tools(calls=(CALL,))
