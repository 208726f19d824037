"""Which parsers a model needs: of the gateway, where its server does not parse, and of the server, where its own do not fit."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from responses_gateway import parsers
from responses_gateway.probing.answer import object_in
from responses_gateway.probing.profile import Profile
from responses_gateway.wire.deltas import ToolArguments, ToolCall

# What vLLM says to tools if it has no parser for calls; the second is its frontend in Rust.
_NO_PARSER = re.compile("tool-call-parser|tool parsing is disabled")


class NeededParsers(NamedTuple):
    """The parsers that the gateway needs for the markup in a backend's text, None where there is none.

    "auto" stands for markup of an unknown family. `opened`: reasoning ends in the text but never begins, since the chat
    template has opened it."""

    reasoning: str | None
    tools: str | None
    opened: bool = False


def needed_parsers(profile: Profile) -> NeededParsers:
    """Choose parsers by the markup in the answers, and by the model's name where the parser of its family reads that markup."""
    text = "\n".join(profile.texts.values())
    seen_reasoning, seen_tools = parsers.detect("", text)
    if profile.calls in ("parsed", "forced", "legacy"):
        seen_tools = None
    elif seen_tools is None and '"name"' in text and "get_weather" in text:
        seen_tools = "llama3_json"  # a bare JSON object
    if profile.calls == "refused" and seen_tools is None and _NO_PARSER.search(profile.calls_refusal or ""):
        seen_tools = parsers.detect(profile.model, None)[1] or "auto"  # there is no markup to tell by
    if profile.reasoning_field is not None:
        seen_reasoning = None
    known_reasoning, known_tools = parsers.detect(profile.model, None)
    if known_tools is not None and reads_call(known_tools, profile.texts.get("calls", "")):
        seen_tools = known_tools if seen_tools is not None else None
    opened = seen_reasoning is not None and "</think>" in text and "<think>" not in text
    return NeededParsers(
        reasoning=(known_reasoning or seen_reasoning) if seen_reasoning else None, tools=seen_tools, opened=opened
    )


def markup_leaks(profile: Profile) -> bool:
    """Tell whether markup gets into the text although the server parses."""
    reasoning, tools = parsers.detect("", "\n".join(profile.texts.values()))
    return bool((reasoning and profile.reasoning_field) or (tools and profile.calls in ("parsed", "forced")))


def tool_parser_for(model: str, text: str) -> str | None:
    """Return the tool parser that reads a call in this text: by its markup, else by the name of the model."""
    candidates = (parsers.detect("", text)[1], parsers.detect(model, None)[1])
    return next((name for name in candidates if name is not None and reads_call(name, text)), None)


def swallowed_parser(profile: Profile) -> str | None:
    """Return the tool parser for the call that the server left out, if it did: any that reads it, if nothing else tells."""
    written = profile.swallowed.written
    return tool_parser_for(profile.model, written) or next(_readers(written), None)


def reads_any_call(text: str) -> bool:
    """Tell whether some tool parser finds a complete call in a text."""
    return any(_readers(text))


def _readers(text: str) -> Iterator[str]:
    return (name for name in parsers.TOOLS if reads_call(name, text))


def reads_call(tools: str, text: str) -> bool:
    """Tell whether a tool parser finds a complete call in a text."""
    parser = parsers.parser("auto", tools, schemas={})
    deltas = [*parser.feed(text), *parser.finish("stop")]
    named = any(isinstance(delta, ToolCall) and delta.name for delta in deltas)
    arguments = "".join(delta.text for delta in deltas if isinstance(delta, ToolArguments))
    return named and object_in(arguments) is not None


def reasoning_parser_for(profile: Profile) -> str | None:
    """Return the reasoning parser that fits a model whose server parses reasoning with one that does not: its markers are left
    in the text or in the reasoning, or a call is. None if there is no sign of that."""
    if profile.reasoning_field is None:
        return None
    written = "\n".join((*profile.thoughts.values(), *profile.texts.values()))
    reasoning, _ = parsers.detect("", written)
    if reasoning is None and any(tool_parser_for(profile.model, thought) for thought in profile.thoughts.values()):
        reasoning = "auto"  # it did not see the end of the thought
    return (parsers.detect(profile.model, None)[0] or reasoning) if reasoning is not None else None
