"""DeepSeek R1, V3 and V3.1: a header with a separator, then JSON; V3 fences it as a code block.

V3    function<｜tool▁sep｜>NAME\\n```json\\n{...}\\n```
V3.1  NAME<｜tool▁sep｜>{...}
"""

from responses_gateway.parsers.families import hermes
from responses_gateway.parsers.format import (
    CallBlock,
    CallFormat,
    CallHeader,
    Family,
    JsonArguments,
    NameSign,
    ReasoningFormat,
    TemplateSign,
    ToolFormat,
)

# R1 always reasons, and its template opens the block (as in `hermes.REASONING`); V3 and V3.1 reason by request.
REASONING = ReasoningFormat(opens=hermes.THINK, closes=hermes.THINK_END)

CALL = CallFormat(
    opens=("<｜tool▁call▁begin｜>",),
    first=r"\w",
    header=CallHeader(
        pattern=r"(?:function(?:<｜tool▁sep｜>)+)?\s*(?P<name>[\w.\-:/]+)\s*(?:<｜tool▁sep｜>)*\s*(?:```(?:json)?\s*){0,2}",
        partial=r"[\w.\-:/<>｜▁\s`]{0,200}",
        stops=("{", "<｜tool▁call▁end｜>"),
    ),
    arguments=JsonArguments(),
    closes=("<｜tool▁call▁end｜>",),
    fillers=("```", "}"),
)
BLOCK = CallBlock(opens=("<｜tool▁calls▁begin｜>",), closes=("<｜tool▁calls▁end｜>",), calls=(CALL,))
TOOLS = ToolFormat(calls=(CALL,), blocks=(BLOCK,))

FAMILY = Family(
    reasoning={"deepseek_r1": hermes.REASONING, "deepseek_v3": REASONING},
    tools={"deepseek_v3": TOOLS, "deepseek_v31": TOOLS},
    names=(
        NameSign("deepseek-r1", "deepseek_r1", "deepseek_v3"),
        NameSign("deepseek-v3", None, "deepseek_v3"),
        NameSign("deepseek-v3.1", "deepseek_v3", "deepseek_v31"),
    ),
    tool_signs=(
        TemplateSign("function<｜tool▁sep｜>", "deepseek_v3", priority=1),  # its template has the sign of V3.1 too
        TemplateSign("<｜tool▁calls▁begin｜>", "deepseek_v31"),
    ),
    think_tags={"deepseek_v3": "deepseek_r1", "deepseek_v31": "deepseek_v3"},
)
