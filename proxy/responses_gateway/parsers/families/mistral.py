"""Mistral: a JSON array after the marker (up to v7), or name and JSON arguments (from v11)."""

from responses_gateway.parsers.format import (
    CallFormat,
    CallHeader,
    Family,
    JsonArguments,
    JsonEnvelope,
    NameSign,
    ReasoningFormat,
    TemplateSign,
    ToolFormat,
)

REASONING = ReasoningFormat(opens=("[THINK]", "<think>"), closes=("[/THINK]", "</think>"))
ARRAY = CallFormat(opens=("[TOOL_CALLS]",), first=r"[\[{]", arguments=JsonEnvelope(), fillers=("[/TOOL_CALLS]",))
NAMED = CallFormat(
    opens=("[TOOL_CALLS]",),
    first=r"\w",
    header=CallHeader(
        pattern=r"(?P<name>[\w.\-/:]+)(?:\[CALL_ID\](?P<id>\w+))?\s*",
        partial=r"[\w.\-/:]{0,128}(?:\[\w{0,16}\]?\w{0,64})?\s{0,8}",
        ends=("[ARGS]",),
        stops=("{",),
    ),
    arguments=JsonArguments(),
    fillers=("[/TOOL_CALLS]",),
)

FAMILY = Family(
    reasoning={"mistral": REASONING},
    tools={"mistral": ToolFormat(calls=(ARRAY, NAMED))},
    names=tuple(NameSign(name, "mistral", "mistral") for name in ("mistral", "magistral", "ministral", "devstral")),
    reasoning_signs=(TemplateSign("[THINK]", "mistral"),),
    tool_signs=(TemplateSign("[TOOL_CALLS]", "mistral"),),
)
