"""Ling, and Ring, which always reasons: Hermes calls at first, GLM's keys and values in the newest versions."""

from responses_gateway.parsers.families import glm45
from responses_gateway.parsers.families.hermes import REASONING
from responses_gateway.parsers.format import Family, NameSign

FAMILY = Family(
    reasoning={"ling3": REASONING},
    tools={"ling3": glm45.TOOLS},
    names=(
        *(NameSign(f"ling-{name}", None, "hermes") for name in ("mini", "flash", "1t", "2.5", "2.6")),
        NameSign("ling-3", "ling3", "ling3"),
        *(NameSign(f"ring-{name}", "deepseek_r1", "hermes") for name in ("mini", "flash", "1t", "2.5")),
        NameSign("ring-2.6", "deepseek_r1", "glm45"),
    ),
)
