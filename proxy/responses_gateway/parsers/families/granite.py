"""Granite 3: an array after a marker, reasoning between sentences, or in tags since 3.3. The older function-calling model has
its own marker. Granite 4 writes as Hermes does, 4.2 as Qwen 3 Coder."""

from responses_gateway.parsers.families import hermes
from responses_gateway.parsers.format import (
    CallFormat,
    Family,
    JsonEnvelope,
    NameSign,
    ReasoningFormat,
    TemplateSign,
    ToolFormat,
)

REASONING = ReasoningFormat(
    opens=("Here is my thought process:", "Here's my thought process:", *hermes.THINK),
    closes=("Here is my response:", "Here's my response:", *hermes.THINK_END),
    at_start=True,
    wrappers=(("<response>", "</response>"),),
)
CALL = CallFormat(
    opens=("<|tool_call|>", "<tool_call>"), first=r"[\[{]", arguments=JsonEnvelope(), fillers=("</tool_call>", "<|/tool_call|>")
)
FUNCTION_CALLING_TOOLS = ToolFormat(calls=(CallFormat(opens=("<function_call>",), first=r"\{", arguments=JsonEnvelope()),))

FAMILY = Family(
    reasoning={"granite": REASONING, "granite_thinking_parser": hermes.REASONING},
    tools={"granite": ToolFormat(calls=(CALL,)), "granite-20b-fc": FUNCTION_CALLING_TOOLS, "granite4": hermes.TOOLS},
    names=(
        NameSign("granite-4", None, "granite4"),
        NameSign("granite-4.2", "granite_thinking_parser", "qwen3_coder"),
        NameSign("granite-3", "granite", "granite"),
        NameSign("granite-20b", None, "granite-20b-fc"),
    ),
    reasoning_signs=(TemplateSign("Here is my thought process", "granite"),),
    tool_signs=(TemplateSign("<|tool_call|>", "granite"),),
)
