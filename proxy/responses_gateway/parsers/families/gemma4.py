"""Gemma 4 and FunctionGemma: an object in a notation of their own, with string marks instead of quotes."""

from responses_gateway.parsers.format import (
    CallFormat,
    CallHeader,
    Family,
    NameSign,
    ReasoningFormat,
    RelaxedObject,
    TemplateSign,
    ToolFormat,
)

REASONING = ReasoningFormat(opens=("<|channel>thought",), closes=("<channel|>",))

_HEADER = CallHeader(
    pattern=r"(?:call:|:)?\s*(?P<name>[\w.\-]+)\s*",
    partial=r"[\w.\-:\s]{0,200}",
    stops=("{", "(", "<tool_call|>", "<end_function_call>"),
)

CALL = CallFormat(
    opens=("<|tool_call>",),
    first=r"[\w:]",
    header=_HEADER,
    arguments=RelaxedObject(quotes=('<|"|>',)),
    closes=("<tool_call|>",),
    fillers=("}", "<|tool_call|>", "<|/tool_call>", "<|/tool_call|>"),
)
TOOLS = ToolFormat(calls=(CALL,))
FUNCTION_CALL = CallFormat(
    opens=("<start_function_call>",),
    first=r"[\w:]",
    header=_HEADER,
    arguments=RelaxedObject(quotes=("<escape>",)),
    closes=("<end_function_call>",),
    fillers=("}",),
)
FUNCTIONGEMMA_TOOLS = ToolFormat(calls=(FUNCTION_CALL,))

FAMILY = Family(
    reasoning={"gemma4": REASONING},
    tools={"gemma4": TOOLS, "functiongemma": FUNCTIONGEMMA_TOOLS},
    names=(NameSign("gemma-4", "gemma4", "gemma4"), NameSign("functiongemma", None, "functiongemma")),
    reasoning_signs=(TemplateSign("<|channel>thought", "gemma4"),),
    tool_signs=(TemplateSign("<|tool_call>call:", "gemma4"), TemplateSign("<start_function_call>", "functiongemma")),
)
