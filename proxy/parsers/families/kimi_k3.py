"""Kimi K3 (XTML): everything in elements whose tags are made of special tokens."""

from proxy.parsers.format import Block, Call, Header, Parameters, Reasoning, Tools


def _open(name: str) -> str:
    return f"<|open|>{name}<|sep|>"


def _close(name: str) -> str:
    return f"<|close|>{name}<|sep|>"


REASONING = Reasoning(
    opens=(_open("think"),),
    closes=(_close("think"),),
    implicit=True,
    wrappers=((_open("response"), _close("response")),),
)
CALL = Call(
    opens=("<|open|>call ",),
    header=Header(pattern=r'\s*tool="(?P<name>[^"]+)".*', partial=r"[^\n<>{}]{0,200}", ends=("<|sep|>",)),
    arguments=Parameters(
        opens=("<|open|>argument ",),
        heads=("<|sep|>",),
        closes=(_close("argument"),),
        header=r'key="(?P<key>[^"]*)"(?:\s+type="(?:(?P<text>string)|(?P<json>[^"]*))")?',
        escaped=True,
    ),
    closes=(_close("call"),),
)
TOOLS = Tools(blocks=(Block(opens=(_open("tools"),), closes=(_close("tools"),), calls=(CALL,)),))
