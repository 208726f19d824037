"""Gemma 4 and FunctionGemma: an object in a notation of their own, with string marks instead of quotes."""

from proxy.parsers.format import Call, Header, Literal, Reasoning, Tools

REASONING = Reasoning(opens=("<|channel>thought",), closes=("<channel|>",))

_HEADER = Header(pattern=r"(?:call:|:)?\s*(?P<name>[\w.\-]+)\s*", partial=r"[\w.\-:\s]{0,200}", stops=("{", "("))

CALL = Call(
    opens=("<|tool_call>",),
    first=r"[\w:]",
    header=_HEADER,
    arguments=Literal(quotes=('<|"|>',)),
    closes=("<tool_call|>",),
    fillers=("}",),
)
TOOLS = Tools(calls=(CALL,))
FUNCTION_CALL = Call(
    opens=("<start_function_call>",),
    first=r"[\w:]",
    header=_HEADER,
    arguments=Literal(quotes=("<escape>",)),
    closes=("<end_function_call>",),
    fillers=("}",),
)
FUNCTIONGEMMA_TOOLS = Tools(calls=(FUNCTION_CALL,))
