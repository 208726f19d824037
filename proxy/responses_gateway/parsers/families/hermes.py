"""Hermes and Qwen 3: a JSON object in `<tool_call>` tags. Also Granite 4 and others that took it over."""

from dataclasses import replace

from responses_gateway.parsers.format import (
    CallBlock,
    CallFormat,
    Family,
    JsonEnvelope,
    NameSign,
    ReasoningFormat,
    TemplateSign,
    ToolFormat,
)

THINK = ("<think>",)
THINK_END = ("</think>",)

REASONING = ReasoningFormat(opens=THINK, closes=THINK_END, implicit=True)

CALL = CallFormat(
    opens=("<tool_call>",),
    first=r"[\[{]",
    arguments=JsonEnvelope(),
    closes=("</tool_call>",),
    fillers=("}", "```", "</tool_calls>"),
)
# Now and then the model writes a block around its calls, or in the place of their tags.
BLOCK = CallBlock(opens=("<tool_calls>",), closes=("</tool_calls>",), calls=(CALL,))
BARE = replace(CALL, opens=BLOCK.opens, closes=BLOCK.closes, fillers=("}", "```"))
TOOLS = ToolFormat(calls=(CALL, BARE), blocks=(BLOCK,))

FAMILY = Family(
    reasoning={"qwen3": REASONING, "holo2": REASONING},
    tools={"hermes": TOOLS, "qwen3_json": TOOLS},
    names=(
        NameSign("qwen3", "qwen3", "hermes", priority=2),
        *(NameSign(name, None, "hermes", priority=2) for name in ("qwen3*instruct", "qwen2.5")),
        NameSign("qwq", "deepseek_r1", "hermes", priority=2),
        *(NameSign(name, None, "hermes", priority=1) for name in ("hermes", "openhermes", "deephermes")),  # made from others
        NameSign("smollm3", "deepseek_v3", "hermes"),
        NameSign("mellum2", None, "hermes"),
        NameSign("mellum2*thinking", "qwen3", "hermes"),
    ),
    tool_signs=(TemplateSign("<tool_call>", "hermes", priority=-1),),  # so many other families write this tag
    original=True,
)
