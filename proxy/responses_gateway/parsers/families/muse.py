"""Muse: messages with a recipient. Those to `self` are reasoning; those to a tool hold MiniMax M2's invocations, with a prefix
in every tag. The same tags in other messages are text. The prompt ends in the header of the first message. Muse Spark's without
a recipient, and those to the developer, are reasoning, and those to `commentary` are text."""

from dataclasses import replace

from responses_gateway.parsers.families.minimax_m2 import invocations
from responses_gateway.parsers.families.openai import beginning
from responses_gateway.parsers.format import (
    CallHeader,
    ChannelFormat,
    Family,
    NameSign,
    ReasoningFormat,
    TemplateSign,
    ToolFormat,
)

CHANNELS = ChannelFormat(
    opens=("<|start|>",),
    messages=("<|message|>",),
    ends=("<|eom|>", "<|eot|>"),
    header=rf"\s{{0,8}}(?:{beginning('assistant')})[^\S\n]{{0,8}}(?:t(?:o(?:=[\w.\-]{{0,128}})?)?)?",
    channel=r"\bto=(self)<",
    recipient=r"\bto=(?!(?:self|user)<)([\w.\-]+)<",
    reasoning=("self",),
    arguments=None,
    begins=True,
)
SPARK = replace(
    CHANNELS,
    channel=r"(?:\bto=|^(?!.*\bto=).*)(self(?=<)|developer(?=<)|<\|message\|>)",
    recipient=r"\bto=(?!(?:self|user|commentary|developer)<)([\w.\-]+)<",
    reasoning=("self", "developer", "<|message|>"),
)
_BLOCK = invocations("atem:function_calls", prefix="atem:").blocks[0]
# A tool `f` is called `f.f`, since tools are members of a name space of their own name.
_CALL = replace(
    _BLOCK.calls[0],
    header=CallHeader(
        pattern=r"""\s*["']?(?:(?P<space>[\w\-]+)\.(?=(?P=space)["']?\s*$))?(?P<name>[^"'<>\s]+)["']?\s*""", ends=(">",)
    ),
)
_GLIMMER_TOOLS = ToolFormat(blocks=(replace(_BLOCK, calls=(_CALL,)),), channels=CHANNELS)
_SPARK_NAMES = ("muse", "musespark1x")

FAMILY = Family(
    reasoning={
        "muse_glimmer": ReasoningFormat(channels=CHANNELS),
        **dict.fromkeys(_SPARK_NAMES, ReasoningFormat(channels=SPARK)),
    },
    tools={"muse_glimmer": _GLIMMER_TOOLS, **dict.fromkeys(_SPARK_NAMES, replace(_GLIMMER_TOOLS, channels=SPARK))},
    names=(NameSign("muse-glimmer", "muse_glimmer", "muse_glimmer"), NameSign("muse-spark", "muse", "muse")),
    reasoning_signs=(TemplateSign("<atem:function_calls>", "muse_glimmer"),),
    tool_signs=(TemplateSign("<atem:function_calls>", "muse_glimmer"),),
)
