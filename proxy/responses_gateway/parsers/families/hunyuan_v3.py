"""Hunyuan 3 and 4 (HY): GLM's keys and values in a block of calls; a checkpoint may append a suffix to every marker."""

from __future__ import annotations

from responses_gateway.parsers.format import (
    CallBlock,
    CallFormat,
    CallHeader,
    Family,
    NameSign,
    ReasoningFormat,
    TaggedParameters,
    TemplateSign,
    ToolFormat,
)

# Without a suffix, and those of published checkpoints.
SUFFIXES = ("", ":opensource", ":6124c78e")


def _tools(suffixes: tuple[str, ...]) -> ToolFormat:
    """Build the tags of a call. The name ends at a separator in version 3, at the first key in version 4."""

    def tags(name: str) -> tuple[str, ...]:
        return tuple(f"<{name}{suffix}>" for suffix in suffixes)

    call = CallFormat(
        opens=tags("tool_call"),
        first=r"\w",
        header=CallHeader(
            pattern=r"\s*(?P<name>[\w.\-:/]+)\s*",
            partial=r"\s{0,8}[\w.\-:/]{0,128}\s{0,8}",
            ends=tags("tool_sep"),
            stops=(*tags("arg_key"), *tags("/tool_call")),
        ),
        arguments=TaggedParameters(
            opens=tags("arg_key"),
            heads=tags("/arg_key"),
            values=tags("arg_value"),
            closes=tags("/arg_value"),
            header=r"(?P<key>[^<>]+)",
        ),
        closes=tags("/tool_call"),
    )
    return ToolFormat(blocks=(CallBlock(opens=tags("tool_calls"), closes=tags("/tool_calls"), calls=(call,)),))


def _family(*suffixes: str) -> Family:
    opens = tuple(f"<think{suffix}>" for suffix in suffixes)
    closes = tuple(f"</think{suffix}>" for suffix in suffixes)
    tools = _tools(suffixes)
    return Family(
        reasoning={
            "hy_v3": ReasoningFormat(opens, closes),  # it thinks only by request
            "hy_v4": ReasoningFormat(opens, closes, implicit=True),
        },
        tools={"hy_v3": tools, "hy_v4": tools},
        names=tuple(
            NameSign(f"{name}{version}", f"hy_v{version}", f"hy_v{version}") for version in (3, 4) for name in ("hy", "hy-v")
        ),
        # The templates of both insert the suffix; only that of version 3 has separators.
        tool_signs=(
            TemplateSign("<tool_sep", "hy_v3", priority=1),
            TemplateSign("<tool_calls{}>", "hy_v4"),
            TemplateSign("<arg_key{}>", "hy_v4"),
        ),
        think_tags={"hy_v3": "hy_v3", "hy_v4": "hy_v4"},
        suffixed=_family,
        suffix=r"<(?:think|tool_calls|tool_call|arg_key|arg_value)(:[^\s<>]{1,64})?>",
    )


FAMILY = _family(*SUFFIXES)
