"""From what a backend can do to the settings that fit it."""

from __future__ import annotations

import json
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from proxy import parsers as formats
from proxy.probing.profile import Profile
from proxy.settings import Settings
from proxy.wire.deltas import ToolArguments, ToolCall

#: They go together: where one is given, the others are as well meant as they are.
_PARSERS = frozenset({"reasoning_parser", "tool_call_parser", "opened_thinking"})


class Markup(NamedTuple):
    """The markup in the text of a raw backend: names of parsers ("auto" where it is not known), None where there is none.

    `opened`: reasoning is closed in the text but never opened: the chat template has opened it.
    """

    reasoning: str | None
    tools: str | None
    opened: bool = False


def markup_of(profile: Profile) -> Markup:
    """What markup was seen in the answers: the format of the model's family if that reads it, else the one it looks like."""
    text = "\n".join(profile.texts.values())
    seen_reasoning, seen_tools = formats.detect("", text)
    if profile.calls in ("parsed", "forced", "legacy"):
        seen_tools = None
    elif seen_tools is None and '"name"' in text and "get_weather" in text:
        seen_tools = "llama3_json"  # a bare JSON object
    if profile.calls == "refused" and seen_tools is None and "tool-call-parser" in (profile.calls_refusal or ""):
        seen_tools = formats.detect(profile.model, None)[1] or "auto"  # the model gave no occasion to see more
    if profile.reasoning_field is not None:
        seen_reasoning = None
    known_reasoning, known_tools = formats.detect(profile.model, None)
    if known_tools is not None and _reads_call(known_tools, profile.texts.get("calls", "")):
        seen_tools = known_tools if seen_tools is not None else None
    opened = seen_reasoning is not None and "</think>" in text and "<think>" not in text
    return Markup(
        reasoning=(known_reasoning or seen_reasoning) if seen_reasoning else None,
        tools=seen_tools,
        opened=opened,
    )


def leaks(profile: Profile) -> bool:
    """The server parses, and markup gets through to the text all the same."""
    reasoning, tools = formats.detect("", "\n".join(profile.texts.values()))
    return bool((reasoning and profile.reasoning_field) or (tools and profile.calls in ("parsed", "forced")))


def fitting_settings(profile: Profile) -> dict[str, Any]:
    """The settings that differ from their defaults, as a YAML file has them; `backend` always."""
    wanted: dict[str, Any] = {"max_tokens_field": profile.max_tokens_field, "reasoning_field": _reasoning_field(profile)}
    wanted["custom_tool_grammar"] = profile.pattern_reading
    if profile.tolerates.get("two_user") is False:
        wanted["user_messages"] = "merge"
    markup = markup_of(profile)
    if markup.reasoning is not None:
        wanted["reasoning_parser"] = markup.reasoning
    if markup.tools is not None:
        wanted["tool_call_parser"] = markup.tools
    if leaks(profile):
        wanted["rescue"] = True
    if markup.opened:
        wanted["opened_thinking"] = "yes"
    fields = Settings.model_fields
    differing = {name: value for name, value in wanted.items() if value not in (None, fields[name].default)}
    if differing.get("max_tokens_field") == "none":
        del differing["max_tokens_field"]
    return {"backend": profile.url, **differing}


def missing_settings(settings: Settings, profile: Profile) -> dict[str, Any]:
    """The settings that fit, of those that were not given."""
    entry = next(
        (entry for pattern, entry in settings.models.items() if fnmatchcase(profile.model.lower(), pattern.lower())), None
    )
    given = settings.model_fields_set | (entry.model_fields_set if entry is not None else set())
    if given & _PARSERS:
        given |= _PARSERS
    return {name: value for name, value in fitting_settings(profile).items() if name not in given and name != "backend"}


def agreed(wanted: list[dict[str, Any]]) -> tuple[dict[str, Any], list[str]]:
    """The settings that all of several backends want, with the names of those that only some want, or want otherwise."""
    names = sorted({name for settings in wanted for name in settings})
    same = {name: wanted[0][name] for name in names if all(each.get(name) == wanted[0].get(name) for each in wanted)}
    return same, [name for name in names if name not in same]


def _reasoning_field(profile: Profile) -> str | None:
    """The field in which reasoning goes back: the one in which it came, unless the server refuses it there."""
    if profile.reasoning_history is False:
        return "none"
    return profile.reasoning_field if profile.reasoning_field in ("reasoning", "reasoning_content") else None


def _reads_call(tools: str, text: str) -> bool:
    """Whether the format finds a whole call in a text."""
    parser = formats.parser("auto", tools, schemas={})
    deltas = [*parser.feed(text), *parser.finish("stop")]
    named = any(isinstance(delta, ToolCall) and delta.name for delta in deltas)
    arguments = "".join(delta.text for delta in deltas if isinstance(delta, ToolArguments))
    try:
        return named and isinstance(json.loads(arguments), dict)
    except ValueError:
        return False
