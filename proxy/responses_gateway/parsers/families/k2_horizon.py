"""K2 Horizon: a block of calls as JSON, or as keys and values with or without types; a reasoning block for each effort."""

from responses_gateway.parsers.format import (
    CallBlock,
    CallFormat,
    CallHeader,
    Family,
    JsonEnvelope,
    NameSign,
    ReasoningFormat,
    TaggedParameters,
    TemplateSign,
    ToolFormat,
)

_EFFORTS = ("think", "think_fast", "think_faster")

REASONING = ReasoningFormat(
    opens=tuple(f"<ifm|{effort}>" for effort in _EFFORTS),
    closes=tuple(f"</ifm|{effort}>" for effort in _EFFORTS),
    implicit=True,
)
JSON_CALL = CallFormat(
    opens=("<ifm|tool_call>",), first=r"\{", arguments=JsonEnvelope(), closes=("</ifm|tool_call>",), declared_only=True
)
# The type comes between key and value. The schema of the tool says the same; it decides, except that a string is one.
TAGGED_CALL = CallFormat(
    opens=("<ifm|tool_call>",),
    first=r"\w",
    header=CallHeader(
        pattern=r"\s*(?P<name>[\w.\-:/]+)\s*",
        partial=r"\s{0,8}[\w.\-:/]{0,128}\s{0,8}",
        stops=("<ifm|arg_key>", "</ifm|tool_call>"),
    ),
    arguments=TaggedParameters(
        opens=("<ifm|arg_key>",),
        heads=("<ifm|arg_value>",),
        closes=("</ifm|arg_value>",),
        others=("</ifm|arg_key>",),
        header=r"\s*(?P<key>[^<>]+?)\s*(?:</ifm\|arg_key>\s*){0,3}(?:<ifm\|arg_type>(?:(?P<text>string)|[^<>]*)</ifm\|arg_type>)?\s*",
    ),
    closes=("</ifm|tool_call>",),
    declared_only=True,
)
BLOCK = CallBlock(opens=("<ifm|tool_calls>",), closes=("</ifm|tool_calls>",), calls=(JSON_CALL, TAGGED_CALL))

FAMILY = Family(
    reasoning={"k2_horizon": REASONING},
    tools={"k2_horizon": ToolFormat(blocks=(BLOCK,))},
    names=(NameSign("k2-horizon", "k2_horizon", "k2_horizon"),),
    reasoning_signs=(TemplateSign("<ifm|think", "k2_horizon"),),
    tool_signs=(TemplateSign("<ifm|tool_calls>", "k2_horizon"),),
)
