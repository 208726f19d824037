"""MiniMax M3: arguments as nested elements; every tag has a mark in front that no text contains."""

from proxy.parsers.format import Block, Call, Elements, Header, Reasoning, Tools

MARK = "]<]minimax[>["

REASONING = Reasoning(opens=("<mm:think>", f"{MARK}<think>", "<think>"), closes=("</mm:think>", f"{MARK}</think>", "</think>"))
CALL = Call(
    opens=(f"{MARK}<invoke name=",),
    header=Header(pattern=r"""\s*["']?(?P<name>[^"'<>\s]+)["']?\s*""", ends=(">",)),
    arguments=Elements(prefix=MARK),
    closes=(f"{MARK}</invoke>",),
)
TOOLS = Tools(blocks=(Block(opens=(f"{MARK}<tool_call>",), closes=(f"{MARK}</tool_call>",), calls=(CALL,), first=r"\]"),))
