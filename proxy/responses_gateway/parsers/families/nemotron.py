"""Nemotron: version 3 writes Qwen 3 Coder's tags; those before it an array of calls in tags of their own."""

from responses_gateway.parsers.families.hermes import REASONING
from responses_gateway.parsers.format import CallFormat, Family, JsonEnvelope, NameSign, TemplateSign, ToolFormat

CALL = CallFormat(opens=("<TOOLCALL>",), first=r"[\[{]", arguments=JsonEnvelope(), closes=("</TOOLCALL>",), fillers=("}", "]"))

FAMILY = Family(
    reasoning={"nemotron_v3": REASONING},
    tools={"nemotron_json": ToolFormat(calls=(CALL,))},
    names=(
        NameSign("nemotron-3", "nemotron_v3", "qwen3_coder", priority=1),  # many were made from Llama, and say so
        NameSign("nemotron-nano*v2", "nemotron_v3", "nemotron_json", priority=1),
        *(NameSign(f"nemotron-{size}", None, "nemotron_json", priority=1) for size in ("nano", "super", "ultra")),
    ),
    tool_signs=(TemplateSign("<TOOLCALL>", "nemotron_json"),),
    think_tags={"nemotron_json": "nemotron_v3"},
)
