"""Cohere Command A and its successors: everything between special tokens, calls as an array of objects."""

from responses_gateway.parsers.format import (
    CallFormat,
    Family,
    JsonEnvelope,
    NameSign,
    ReasoningFormat,
    TemplateSign,
    ToolFormat,
)

REASONING = ReasoningFormat(
    opens=("<|START_THINKING|>",),
    closes=("<|END_THINKING|>",),
    wrappers=(("<|START_RESPONSE|>", "<|END_RESPONSE|>"), ("<|START_TEXT|>", "<|END_TEXT|>")),
)
CALL = CallFormat(
    opens=("<|START_ACTION|>",),
    first=r"[\[{]",
    arguments=JsonEnvelope(names=("tool_name", "name"), arguments=("parameters", "arguments")),
    closes=("<|END_ACTION|>",),
    fillers=("}", "]"),
)
TOOLS = ToolFormat(calls=(CALL,))

FAMILY = Family(
    reasoning={"cohere_command3": REASONING, "cohere_command4": REASONING},
    tools={"cohere_command3": TOOLS, "cohere_command4": TOOLS},
    names=tuple(NameSign(name, "cohere_command3", "cohere_command3") for name in ("command-a", "command-r7b")),
    reasoning_signs=(TemplateSign("<|START_THINKING|>", "cohere_command3"),),
    tool_signs=(TemplateSign("<|START_ACTION|>", "cohere_command3"),),
)
