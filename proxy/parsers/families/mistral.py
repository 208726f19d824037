"""Mistral: a JSON array after the marker (up to v7), or name and JSON arguments (from v11)."""

from proxy.parsers.format import Call, Header, JsonArguments, JsonEnvelope, Reasoning, Tools

REASONING = Reasoning(opens=("[THINK]", "<think>"), closes=("[/THINK]", "</think>"))
ARRAY = Call(opens=("[TOOL_CALLS]",), first=r"[\[{]", arguments=JsonEnvelope())
NAMED = Call(
    opens=("[TOOL_CALLS]",),
    first=r"\w",
    header=Header(
        pattern=r"(?P<name>[\w.\-/:]+)(?:\[CALL_ID\](?P<id>\w+))?\s*",
        partial=r"[\w.\-/:]{0,128}(?:\[\w{0,16}\]?\w{0,64})?\s{0,8}",
        ends=("[ARGS]",),
        stops=("{",),
    ),
    arguments=JsonArguments(),
)
TOOLS = Tools(calls=(ARRAY, NAMED))
