"""Nemotron 3: Qwen 3 Coder's tags."""

from responses_gateway.parsers.families.hermes import REASONING
from responses_gateway.parsers.format import Family, NameSign

FAMILY = Family(reasoning={"nemotron_v3": REASONING}, names=(NameSign("nemotron-3", "nemotron_v3", "qwen3_coder"),))
