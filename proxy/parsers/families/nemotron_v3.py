"""Nemotron 3: Qwen 3 Coder's tags."""

from proxy.parsers.families.hermes import REASONING
from proxy.parsers.format import Family, NameSign

FAMILY = Family(reasoning={"nemotron_v3": REASONING}, names=(NameSign("nemotron-3", "nemotron_v3", "qwen3_coder"),))
