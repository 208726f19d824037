"""MiniMax M3: arguments as nested elements; every tag has a mark in front that no text contains."""

from responses_gateway.parsers.format import (
    CallBlock,
    CallFormat,
    CallHeader,
    Family,
    NameSign,
    NestedElements,
    ReasoningFormat,
    TemplateSign,
    ToolFormat,
)

MARK = "]<]minimax[>["

REASONING = ReasoningFormat(
    opens=("<mm:think>", f"{MARK}<think>", "<think>"), closes=("</mm:think>", f"{MARK}</think>", "</think>")
)
CALL = CallFormat(
    opens=(f"{MARK}<invoke name=",),
    header=CallHeader(ends=(">",)),
    arguments=NestedElements(prefix=MARK),
    closes=(f"{MARK}</invoke>",),
)
BLOCK = CallBlock(opens=(f"{MARK}<tool_call>",), closes=(f"{MARK}</tool_call>",), calls=(CALL,), first=r"\]")

FAMILY = Family(
    reasoning={"minimax_m3": REASONING},
    tools={"minimax_m3": ToolFormat(blocks=(BLOCK,))},
    names=(NameSign("minimax-m3", "minimax_m3", "minimax_m3"),),
    tool_signs=(TemplateSign(MARK, "minimax_m3"),),
    think_tags={"minimax_m3": "minimax_m3"},
)
