"""Kimi K3 (XTML): everything in elements whose tags are made of special tokens."""

from responses_gateway.parsers.format import (
    CallBlock,
    CallFormat,
    CallHeader,
    Family,
    NameSign,
    ReasoningFormat,
    TaggedParameters,
    TemplateSign,
    ToolFormat,
)


def _open(name: str) -> str:
    return f"<|open|>{name}<|sep|>"


def _close(name: str) -> str:
    return f"<|close|>{name}<|sep|>"


REASONING = ReasoningFormat(
    opens=(_open("think"),), closes=(_close("think"),), implicit=True, wrappers=((_open("response"), _close("response")),)
)
CALL = CallFormat(
    opens=("<|open|>call ",),
    header=CallHeader(pattern=r'\s*tool="(?P<name>[^"]+)".*', partial=r"[^\n<>{}]{0,200}", ends=("<|sep|>",)),
    arguments=TaggedParameters(
        opens=("<|open|>argument ",),
        heads=("<|sep|>",),
        closes=(_close("argument"),),
        header=r'key="(?P<key>[^"]*)"(?:\s+type="(?:(?P<text>string)|(?P<json>[^"]*))")?',
        escaped=True,
    ),
    closes=(_close("call"),),
)
TOOLS = ToolFormat(blocks=(CallBlock(opens=(_open("tools"),), closes=(_close("tools"),), calls=(CALL,)),))

FAMILY = Family(
    reasoning={"kimi_k3": REASONING},
    tools={"kimi_k3": TOOLS},
    names=(NameSign("kimi-k3", "kimi_k3", "kimi_k3"),),
    reasoning_signs=(TemplateSign("<|open|>think", "kimi_k3"),),
    tool_signs=(TemplateSign("<|open|>tools", "kimi_k3"),),
)
