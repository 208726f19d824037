"""DeepSeek V3.2 and V4 (DSML): parameters as tags that say whether the value is text or JSON."""

from responses_gateway.parsers.families.hermes import REASONING
from responses_gateway.parsers.format import (
    CallBlock,
    CallFormat,
    CallHeader,
    Family,
    NameSign,
    TaggedParameters,
    TemplateSign,
    ToolFormat,
)

_KEY = r'"?(?P<key>[^"<>]+)"?(?:\s+string="(?:(?P<text>true)|(?P<json>false))")?'
_TAG = "｜DSML｜"


def dsml(*blocks: str, gap: str = "") -> ToolFormat:
    """Build the tags of a version. `blocks`: the names of its blocks. `gap` stands between the mark and a tag's name."""
    invoke = f"{_TAG}{gap}invoke"
    parameter = f"{_TAG}{gap}parameter"
    call = CallFormat(
        opens=(f"<{invoke} name=",),
        header=CallHeader(pattern=r'\s*"?(?P<name>[^"<>\s]+)"?\s*', ends=(">",)),
        arguments=TaggedParameters(
            opens=(f"<{parameter} name=",),
            heads=(">",),
            closes=(f"</{parameter}>",),
            header=_KEY,
            wrappers=("arguments", "input"),
        ),
        closes=(f"</{invoke}>",),
    )
    names = [f"{_TAG}{gap}{block}" for block in blocks]
    block = CallBlock(opens=tuple(f"<{name}>" for name in names), closes=tuple(f"</{name}>" for name in names), calls=(call,))
    return ToolFormat(blocks=(block,))


V32_TOOLS = dsml("function_calls")
V4_TOOLS = dsml("tool_calls", "toolcalls", "tool")
V41_TOOLS = dsml("calls", gap=" ")

FAMILY = Family(
    reasoning={"deepseek_v4": REASONING, "deepseek_v41": REASONING},
    tools={"deepseek_v32": V32_TOOLS, "deepseek_v4": V4_TOOLS, "deepseek_v41": V41_TOOLS},
    names=(
        NameSign("deepseek-v3.2", "deepseek_v3", "deepseek_v32"),
        NameSign("deepseek-v4", "deepseek_v4", "deepseek_v4"),
        NameSign("deepseek-v4.1", "deepseek_v41", "deepseek_v41"),
    ),
    tool_signs=(
        TemplateSign("<｜DSML｜function_calls", "deepseek_v32"),
        TemplateSign("<｜DSML｜ calls", "deepseek_v41"),
        TemplateSign("｜DSML｜", "deepseek_v4"),
    ),
    think_tags={"deepseek_v32": "deepseek_v3", "deepseek_v4": "deepseek_v4", "deepseek_v41": "deepseek_v41"},
)
