"""DeepSeek R1, V3 and V3.1: a header with a separator, then JSON; V3 fences it as a code block.

V3    function<｜tool▁sep｜>NAME\\n```json\\n{...}\\n```
V3.1  NAME<｜tool▁sep｜>{...}
"""

from proxy.parsers.families.hermes import THINK, THINK_END
from proxy.parsers.format import Block, Call, Header, JsonArguments, Reasoning, Tools

# R1 always reasons, and its template opens the block; V3 and V3.1 do so by request.
R1_REASONING = Reasoning(opens=THINK, closes=THINK_END, implicit=True)
REASONING = Reasoning(opens=THINK, closes=THINK_END)

CALL = Call(
    opens=("<｜tool▁call▁begin｜>",),
    first=r"\w",
    header=Header(
        pattern=r"(?:function<｜tool▁sep｜>)?\s*(?P<name>[\w.\-:/]+)\s*(?:<｜tool▁sep｜>)?\s*(?:```(?:json)?)?\s*",
        partial=r"[\w.\-:/<>｜▁\s`]{0,200}",
        stops=("{", "<｜tool▁call▁end｜>"),
    ),
    arguments=JsonArguments(),
    closes=("<｜tool▁call▁end｜>",),
    fillers=("```", "}"),
)
TOOLS = Tools(
    calls=(CALL,), blocks=(Block(opens=("<｜tool▁calls▁begin｜>",), closes=("<｜tool▁calls▁end｜>",), calls=(CALL,)),)
)
