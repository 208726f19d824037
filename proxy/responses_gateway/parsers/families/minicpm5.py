"""MiniCPM 5: a function element with named parameters."""

from responses_gateway.parsers.families.hermes import REASONING
from responses_gateway.parsers.format import (
    CallFormat,
    CallHeader,
    Family,
    NameSign,
    TaggedParameters,
    TemplateSign,
    ToolFormat,
)

CALL = CallFormat(
    opens=("<function name=",),
    header=CallHeader(ends=(">",)),
    arguments=TaggedParameters(opens=("<param name=",), heads=(">",), closes=("</param>",)),
    closes=("</function>",),
)

FAMILY = Family(
    reasoning={"minicpmv": REASONING},
    tools={"minicpm5": ToolFormat(calls=(CALL,))},
    names=(NameSign("minicpm5", "minicpmv", "minicpm5"),),
    tool_signs=(TemplateSign("<function name=", "minicpm5"),),
)
