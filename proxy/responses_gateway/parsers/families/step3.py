"""Step 3: the call's tag follows a separator inside a block of calls. Its successors write Qwen 3 Coder's tags."""

from responses_gateway.parsers.families import qwen3_coder
from responses_gateway.parsers.families.hermes import REASONING
from responses_gateway.parsers.format import (
    CallBlock,
    CallFormat,
    CallHeader,
    Family,
    NameSign,
    TaggedParameters,
    TemplateSign,
    ToolFormat,
)

CALL = CallFormat(
    opens=("<｜tool_call_begin｜>",),
    first=r"\w",
    header=CallHeader(
        pattern=r'function<｜tool_sep｜>\s*<steptml:invoke name="(?P<name>[^"]+)', partial=r".{0,200}", ends=('">',)
    ),
    arguments=TaggedParameters(
        opens=('<steptml:parameter name="',), heads=('">',), closes=("</steptml:parameter>",), header=r'(?P<key>[^"]+)'
    ),
    closes=("</steptml:invoke>", "<｜tool_call_end｜>"),
)
BLOCK = CallBlock(
    opens=("<｜tool_calls_begin｜>",), closes=("<｜tool_calls_end｜>",), calls=(CALL,), fillers=("<｜tool_call_end｜>",)
)

FAMILY = Family(
    reasoning=dict.fromkeys(("step3", "step3p5", "step5"), REASONING),
    tools={"step3": ToolFormat(blocks=(BLOCK,)), "step3p5": qwen3_coder.TOOLS, "step5": qwen3_coder.TOOLS},
    names=(
        NameSign("step3", "step3", "step3"),
        NameSign("step3-vl", "deepseek_r1", "hermes"),
        *(NameSign(name, "step3p5", "step3p5") for name in ("step3p5", "step-3.5", "step-3.7")),
        NameSign("step-5", "step5", "step5"),
    ),
    tool_signs=(TemplateSign("<steptml:invoke", "step3"),),
    think_tags={"step3": "step3"},
)
