"""Step 3: the call's tag follows a separator inside a block of calls."""

from proxy.parsers.families.hermes import REASONING
from proxy.parsers.format import Block, Call, Header, Parameters, Tools

__all__ = ["REASONING", "TOOLS"]

CALL = Call(
    opens=("<｜tool_call_begin｜>",),
    first=r"\w",
    header=Header(pattern=r'function<｜tool_sep｜>\s*<steptml:invoke name="(?P<name>[^"]+)', partial=r".{0,200}", ends=('">',)),
    arguments=Parameters(
        opens=('<steptml:parameter name="',),
        heads=('">',),
        closes=("</steptml:parameter>",),
        header=r'(?P<key>[^"]+)',
    ),
    closes=("</steptml:invoke><｜tool_call_end｜>", "</steptml:invoke>\n<｜tool_call_end｜>"),
)
TOOLS = Tools(blocks=(Block(opens=("<｜tool_calls_begin｜>",), closes=("<｜tool_calls_end｜>",), calls=(CALL,)),))
