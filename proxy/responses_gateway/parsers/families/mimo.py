"""MiMo: Qwen 3 Coder's tags, with values taken as they stand, line breaks and all."""

from responses_gateway.parsers.families.hermes import REASONING
from responses_gateway.parsers.families.qwen3_coder import function_tags
from responses_gateway.parsers.format import Family, NameSign

FAMILY = Family(
    reasoning={"mimo": REASONING},
    tools={"mimo": function_tags("<tool_call>", "</tool_call>", trim=False)},
    names=(NameSign("mimo-v2", "mimo", "mimo"), *(NameSign(f"mimo-{kind}", None, "hermes") for kind in ("7b", "vl"))),
)
