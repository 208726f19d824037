"""Laguna of Poolside: GLM's keys and values; any name in the tags is a call. It thinks by request."""

from dataclasses import replace

from responses_gateway.parsers.families import deepseek_v3, glm45
from responses_gateway.parsers.format import Family, NameSign, ToolFormat

FAMILY = Family(
    reasoning={"poolside_v1": deepseek_v3.REASONING},
    tools={"poolside_v1": ToolFormat(calls=(replace(glm45.CALL, declared_only=False),))},
    # Its template shows the tags of GLM, which detection goes by: the formats differ only in calls of unknown tools.
    names=(NameSign("laguna", "poolside_v1", "poolside_v1"),),
)
