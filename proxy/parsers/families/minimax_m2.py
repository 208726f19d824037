"""MiniMax M2: invocations with named parameters, quotes optional. A name that was not offered is no call."""

from proxy.parsers.families.hermes import REASONING
from proxy.parsers.format import Block, Call, Header, Parameters, Tools

__all__ = ["REASONING", "TOOLS"]

_NAME = r"""\s*["']?(?P<name>[^"'<>\s]+)["']?\s*"""
_KEY = r"""["']?(?P<key>[^"'<>]+)["']?"""


def invocations(block: str, prefix: str = "", declared_only: bool = False) -> Tools:
    """`<invoke name="N"><parameter name="K">V</parameter></invoke>` in a block; `prefix` stands before each tag's name."""
    call = Call(
        opens=(f"<{prefix}invoke name=",),
        header=Header(pattern=_NAME, ends=(">",)),
        arguments=Parameters(
            opens=(f"<{prefix}parameter name=",), heads=(">",), closes=(f"</{prefix}parameter>",), header=_KEY
        ),
        closes=(f"</{prefix}invoke>",),
        declared_only=declared_only,
    )
    return Tools(blocks=(Block(opens=(f"<{block}>",), closes=(f"</{block}>",), calls=(call,)),))


TOOLS = invocations("minimax:tool_call", declared_only=True)
MUSE_GLIMMER_TOOLS = invocations("atem:function_calls", prefix="atem:")
DOTS_TOOLS = invocations("dots_function_call")
