"""xLAM: JSON calls after one of several markers, in a code block, or as the whole answer."""

from responses_gateway.parsers.format import CallFormat, Family, JsonEnvelope, NameSign, ToolFormat

TOOLS = ToolFormat(
    calls=(
        CallFormat(opens=("<tool_call>",), first=r"[\[{]", arguments=JsonEnvelope(), fillers=("</tool_call>",)),
        CallFormat(opens=("[TOOL_CALLS]",), first=r"[\[{]", arguments=JsonEnvelope()),
        CallFormat(opens=("```json\n",), first=r"\[", arguments=JsonEnvelope(strict=True), fillers=("```",)),
    ),
    bare=(CallFormat(opens=("",), first=r"\[", arguments=JsonEnvelope(strict=True)),),
)

FAMILY = Family(tools={"xlam": TOOLS}, names=(NameSign("xlam", None, "xlam"),))
