"""MiniCPM 5: a function element with named parameters."""

from proxy.parsers.families.hermes import REASONING
from proxy.parsers.format import Call, Header, Parameters, Tools

__all__ = ["REASONING", "TOOLS"]

TOOLS = Tools(
    calls=(
        Call(
            opens=("<function name=",),
            header=Header(pattern=r"""\s*["']?(?P<name>[^"'<>\s]+)["']?\s*""", ends=(">",)),
            arguments=Parameters(
                opens=("<param name=",),
                heads=(">",),
                closes=("</param>",),
                header=r"""["']?(?P<key>[^"'<>]+)["']?""",
            ),
            closes=("</function>",),
        ),
    )
)
