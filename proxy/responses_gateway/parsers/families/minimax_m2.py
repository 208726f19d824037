"""MiniMax M2: invocations with named parameters, quotes optional. A name that was not offered is no call."""

from responses_gateway.parsers.families.hermes import REASONING
from responses_gateway.parsers.format import (
    CallBlock,
    CallFormat,
    CallHeader,
    Family,
    NameSign,
    ReasoningFormat,
    TaggedParameters,
    TemplateSign,
    ToolFormat,
)


def invocations(block: str, prefix: str = "", declared_only: bool = False) -> ToolFormat:
    """Build the format `<invoke name="N"><parameter name="K">V</parameter></invoke>` in a block. A model may write
    `<invoke=N>`, too. `prefix` stands before each tag's name."""
    call = CallFormat(
        opens=(f"<{prefix}invoke name=", f"<{prefix}invoke="),
        header=CallHeader(ends=(">",)),
        arguments=TaggedParameters(
            opens=(f"<{prefix}parameter name=", f"<{prefix}parameter="), heads=(">",), closes=(f"</{prefix}parameter>",)
        ),
        closes=(f"</{prefix}invoke>",),
        declared_only=declared_only,
    )
    return ToolFormat(blocks=(CallBlock(opens=(f"<{block}>",), closes=(f"</{block}>",), calls=(call,)),))


TOOLS = invocations("minimax:tool_call", declared_only=True)

FAMILY = Family(
    reasoning={
        "minimax_m2": REASONING,
        "minimax_m2_append_think": ReasoningFormat(),  # its reasoning stays in the answer, as it does in vLLM
    },
    tools={"minimax_m2": TOOLS},
    names=(NameSign("minimax-m2", "minimax_m2", "minimax_m2"),),
    tool_signs=(TemplateSign("<minimax:tool_call>", "minimax_m2"),),
    think_tags={"minimax_m2": "minimax_m2"},
)
