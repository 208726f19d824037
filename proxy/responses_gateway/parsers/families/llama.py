"""Llama 3 and 4: calls as JSON objects or as a Python list, which may be the whole answer.

What has no marker is a call only if it names an offered tool: lists, links and objects in prose begin in the same way."""

from dataclasses import replace

from responses_gateway.parsers.format import CallFormat, Family, JsonEnvelope, NameSign, PythonCalls, TemplateSign, ToolFormat

_ENDS = ("}", "<|eom_id|>", "<|eot_id|>")
BARE_JSON = CallFormat(opens=("",), first=r"\{", arguments=JsonEnvelope(strict=True), fillers=_ENDS, declared_only=True)
BARE_ARRAY = replace(BARE_JSON, first=r"\[")
MARKED_JSON = CallFormat(opens=("<|python_tag|>",), first=r"\{", arguments=JsonEnvelope(), fillers=_ENDS)
JSON = ToolFormat(calls=(MARKED_JSON,), bare=(BARE_JSON, BARE_ARRAY))

BARE_LIST = CallFormat(opens=("",), first=r"\[", arguments=PythonCalls(), declared_only=True)
MARKED_LIST = CallFormat(opens=("<|python_start|>",), first=r"\[", arguments=PythonCalls(), closes=("<|python_end|>",))

FAMILY = Family(
    tools={
        "llama3_json": JSON,
        "llama4_json": JSON,
        "llama4_pythonic": ToolFormat(calls=(MARKED_LIST,), bare=(BARE_LIST,)),
        "pythonic": ToolFormat(bare=(BARE_LIST,)),
    },
    names=(
        NameSign("llama-3", None, "llama3_json"),
        NameSign("llama-3.2", None, None),  # JSON or Python, as the template asks
        NameSign("toolace", None, "pythonic", priority=1),
        NameSign("llama-4", None, "llama4_pythonic"),
    ),
    # Models that were made from these and write other markup may keep the tokens.
    tool_signs=(
        TemplateSign("<|python_tag|>", "llama3_json", priority=-2),
        TemplateSign("<|python_start|>", "llama4_pythonic", priority=-2),
    ),
)
