"""GLM 4.5 to 4.7: the name, then keys and values in tags of their own. A name that was not offered is no call."""

from proxy.parsers.families.hermes import REASONING
from proxy.parsers.format import Call, Header, Parameters, Tools

__all__ = ["REASONING", "TOOLS"]

TOOLS = Tools(
    calls=(
        Call(
            opens=("<tool_call>",),
            first=r"\w",
            header=Header(
                pattern=r"(?P<name>[\w.\-:/]+)\s*",
                partial=r"[\w.\-:/]{0,128}[ \t]{0,8}",
                ends=("\n",),
                stops=("<arg_key>", "</tool_call>"),
            ),
            arguments=Parameters(
                opens=("<arg_key>",),
                heads=("</arg_key>",),
                values=("<arg_value>",),
                closes=("</arg_value>",),
                header=r"(?P<key>[^<>]+)",
            ),
            closes=("</tool_call>",),
            declared_only=True,
        ),
    )
)
