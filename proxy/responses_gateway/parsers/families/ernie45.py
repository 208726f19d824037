"""ERNIE 4.5: Hermes calls, reasoning without an opening, the answer in tags."""

from responses_gateway.parsers.families.hermes import THINK, THINK_END, TOOLS
from responses_gateway.parsers.format import Family, NameSign, ReasoningFormat

REASONING = ReasoningFormat(opens=THINK, closes=THINK_END, implicit=True, wrappers=(("<response>", "</response>"),))

FAMILY = Family(
    reasoning={"ernie45": REASONING},
    tools={"ernie45": TOOLS},
    names=(
        NameSign("ernie-4.5", None, "ernie45"),
        *(NameSign(f"ernie-4.5*{kind}", "ernie45", "ernie45") for kind in ("thinking", "vl")),
    ),
)
