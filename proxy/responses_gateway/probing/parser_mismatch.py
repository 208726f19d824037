"""Find the parser that a model needs, where the server's own parser does not fit the model."""

from __future__ import annotations

import json
from collections.abc import Iterator

from responses_gateway import parsers
from responses_gateway.probing.profile import Profile
from responses_gateway.wire.deltas import ToolArguments, ToolCall


def tool_parser_for(model: str, text: str) -> str | None:
    """Return the tool parser that reads a call in this text: by its markup, else by the name of the model."""
    candidates = (parsers.detect("", text)[1], parsers.detect(model, None)[1])
    return next((name for name in candidates if name is not None and reads_call(name, text)), None)


def swallowed_parser(profile: Profile) -> str | None:
    """Return the tool parser for the call that the server left out, if it did: any that reads it, if nothing else tells."""
    written = profile.swallowed
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
    try:
        return named and isinstance(json.loads(arguments), dict)
    except ValueError:
        return False


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
