"""Kimi K2: a header that is also the call's id, then JSON."""

from responses_gateway.parsers.families.hermes import REASONING
from responses_gateway.parsers.format import (
    CallBlock,
    CallFormat,
    CallHeader,
    Family,
    JsonArguments,
    NameSign,
    TemplateSign,
    ToolFormat,
)

CALL = CallFormat(
    opens=("<|tool_call_begin|>",),
    first=r"\w",
    header=CallHeader(
        pattern=r"(?P<id>(?:functions\.)?(?P<name>[\w.\-/]+?)(?::\d+)?)\s*",
        ends=("<|tool_call_argument_begin|>",),
        stops=("{", "<|tool_call_end|>"),
    ),
    arguments=JsonArguments(),
    closes=("<|tool_call_end|>",),
    fillers=("}", "```", "<|tool_call_argument_end|>"),
)
BLOCK = CallBlock(
    # Now and then the model writes the singular.
    opens=("<|tool_calls_section_begin|>", "<|tool_call_section_begin|>"),
    closes=("<|tool_calls_section_end|>", "<|tool_call_section_end|>"),
    calls=(CALL,),
)

FAMILY = Family(
    reasoning={"kimi_k2": REASONING},
    tools={"kimi_k2": ToolFormat(calls=(CALL,), blocks=(BLOCK,))},
    names=(NameSign("kimi-k2", "kimi_k2", "kimi_k2"), NameSign("kimi-k2*instruct", None, "kimi_k2")),
    tool_signs=(TemplateSign("<|tool_calls_section_begin|>", "kimi_k2"),),
    think_tags={"kimi_k2": "kimi_k2"},
)
