"""DeepSeek V3.2 and V4 (DSML): parameters as tags that say whether the value is text or JSON."""

from proxy.parsers.families.hermes import THINK, THINK_END
from proxy.parsers.format import Block, Call, Header, Parameters, Reasoning, Tools

_KEY = r'"?(?P<key>[^"<>]+)"?(?:\s+string="(?:(?P<text>true)|(?P<json>false))")?'
_TAG = "｜DSML｜"


def dsml(*blocks: str, gap: str = "") -> Tools:
    """The tags of a version: the names of its blocks, and what stands between the mark and the name of a tag."""
    invoke, parameter = f"{_TAG}{gap}invoke", f"{_TAG}{gap}parameter"
    call = Call(
        opens=(f"<{invoke} name=",),
        header=Header(pattern=r'\s*"?(?P<name>[^"<>\s]+)"?\s*', ends=(">",)),
        arguments=Parameters(
            opens=(f"<{parameter} name=",),
            heads=(">",),
            closes=(f"</{parameter}>",),
            header=_KEY,
            wrappers=("arguments", "input"),
        ),
        closes=(f"</{invoke}>",),
    )
    names = [f"{_TAG}{gap}{block}" for block in blocks]
    opens, closes = tuple(f"<{name}>" for name in names), tuple(f"</{name}>" for name in names)
    return Tools(blocks=(Block(opens=opens, closes=closes, calls=(call,)),))


V4_REASONING = Reasoning(opens=THINK, closes=THINK_END, implicit=True)
V32_TOOLS = dsml("function_calls")
V4_TOOLS = dsml("tool_calls", "toolcalls", "tool")
V41_TOOLS = dsml("calls", gap=" ")
