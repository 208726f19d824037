"""GLM 4.5 to 4.7: the name, then keys and values in tags of their own. A name that was not offered is no call."""

from responses_gateway.parsers.families.hermes import REASONING
from responses_gateway.parsers.format import (
    CallFormat,
    CallHeader,
    Family,
    NameSign,
    TaggedParameters,
    TemplateSign,
    ToolFormat,
)

CALL = CallFormat(
    opens=("<tool_call>",),
    first=r"\w",
    header=CallHeader(
        pattern=r"(?P<name>[\w.\-:/]+)\s*",
        partial=r"[\w.\-:/]{0,128}[ \t]{0,8}",
        ends=("\n",),
        stops=("<arg_key>", "</tool_call>"),
    ),
    arguments=TaggedParameters(
        opens=("<arg_key>",),
        heads=("</arg_key>",),
        values=("<arg_value>",),
        closes=("</arg_value>",),
        header=r"(?P<key>[^<>]+)",
    ),
    closes=("</tool_call>",),
    declared_only=True,
)
TOOLS = ToolFormat(calls=(CALL,))

FAMILY = Family(
    reasoning={"glm45": REASONING, "glm47": REASONING},
    tools={"glm45": TOOLS, "glm47": TOOLS},
    names=tuple(NameSign(f"glm-{version}", "glm45", "glm45") for version in ("4.5", "4.6", "4.7", "5")),
    tool_signs=(TemplateSign("<arg_key>", "glm45"),),
    think_tags={"glm45": "glm45"},
)
