"""Kimi K2: a header that is also the call's id, then JSON."""

from proxy.parsers.families.hermes import REASONING
from proxy.parsers.format import Block, Call, Header, JsonArguments, Tools

__all__ = ["REASONING", "TOOLS"]

CALL = Call(
    opens=("<|tool_call_begin|>",),
    first=r"\w",
    header=Header(pattern=r"(?P<id>(?:functions\.)?(?P<name>[\w.\-/]+?)(?::\d+)?)\s*", ends=("<|tool_call_argument_begin|>",)),
    arguments=JsonArguments(),
    closes=("<|tool_call_end|>",),
    fillers=("}",),
)
TOOLS = Tools(
    calls=(CALL,),
    blocks=(Block(opens=("<|tool_calls_section_begin|>",), closes=("<|tool_calls_section_end|>",), calls=(CALL,)),),
)
