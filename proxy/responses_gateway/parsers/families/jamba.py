"""Jamba: an array of calls in tags, as Hunyuan A13B writes it."""

from responses_gateway.parsers.families.hunyuan_a13b import TOOLS
from responses_gateway.parsers.format import Family, NameSign

FAMILY = Family(tools={"jamba": TOOLS}, names=(NameSign("jamba", None, "jamba"),))
