"""PLaMo 3: name and JSON arguments of a call in tags of their own."""

from responses_gateway.parsers.format import (
    CallBlock,
    CallFormat,
    CallHeader,
    Family,
    JsonArguments,
    NameSign,
    ReasoningFormat,
    TemplateSign,
    ToolFormat,
)


def _begin(name: str) -> str:
    return f"<|plamo:begin_{name}:plamo|>"


def _end(name: str) -> str:
    return f"<|plamo:end_{name}:plamo|>"


REASONING = ReasoningFormat(opens=(_begin("think"),), closes=(_end("think"),), implicit=True)
CALL = CallFormat(
    opens=(_begin("tool_request"),),
    first=r"<",
    header=CallHeader(
        pattern=r"\s*<\|plamo:begin_tool_name:plamo\|>\s*(?P<name>[\w.\-:/]+)\s*<\|plamo:end_tool_name:plamo\|>\s*",
        partial=r"[\s\w.\-:/<>|]{0,256}",
        ends=(_begin("tool_arguments") + "<|plamo:constrain|>json<|plamo:msg|>",),
    ),
    arguments=JsonArguments(),
    closes=(_end("tool_arguments"),),
)
BLOCK = CallBlock(
    opens=(_begin("tool_requests"),), closes=(_end("tool_requests"),), calls=(CALL,), fillers=(_end("tool_request"),)
)

FAMILY = Family(
    reasoning={"plamo3": REASONING},
    tools={"plamo3": ToolFormat(blocks=(BLOCK,))},
    names=(NameSign("plamo-3", "plamo3", "plamo3"), NameSign("plamo3", "plamo3", "plamo3")),
    reasoning_signs=(TemplateSign(_begin("think"), "plamo3"), TemplateSign("begin_think:plamo", "plamo3")),
    tool_signs=(TemplateSign(_begin("tool_requests"), "plamo3"), TemplateSign("begin_tool_requests:plamo", "plamo3")),
)
