"""Jamba: an array of calls in tags, as Hunyuan A13B writes it."""

from proxy.parsers.families.hunyuan_a13b import TOOLS
from proxy.parsers.format import Family, NameSign

FAMILY = Family(tools={"jamba": TOOLS}, names=(NameSign("jamba", None, "jamba"),))
