"""Solar Open 2: the name on a line, then parameters in tokens of their own."""

from responses_gateway.parsers.format import (
    CallFormat,
    CallHeader,
    Family,
    NameSign,
    ReasoningFormat,
    TaggedParameters,
    TemplateSign,
    ToolFormat,
)

CALL = CallFormat(
    opens=("<|tool_call:start|>",),
    header=CallHeader(ends=("\n",), stops=("<|tool_arg:start|>", "<|tool_call:end|>")),
    arguments=TaggedParameters(
        opens=("<|tool_arg:start|>",), heads=("<|tool_arg:value|>",), closes=("<|tool_arg:end|>",), header=r"(?P<key>[^<>]+)"
    ),
    closes=("<|tool_call:end|>",),
)

FAMILY = Family(
    reasoning={"solar_open2": ReasoningFormat(opens=("<|think:start|>",), closes=("<|think:end|>",), implicit=True)},
    tools={"solar_open2": ToolFormat(calls=(CALL,))},
    names=(NameSign("solar-open2", "solar_open2", "solar_open2"),),
    reasoning_signs=(TemplateSign("<|think:start|>", "solar_open2"),),
    tool_signs=(TemplateSign("<|tool_call:start|>", "solar_open2"),),
)
