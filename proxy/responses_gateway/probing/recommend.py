"""Recommend settings for a backend by what probing has found out."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Any

from responses_gateway import parsers
from responses_gateway.backend.server_types import SERVER_TYPES
from responses_gateway.probing.known_models import KnownModel
from responses_gateway.probing.needed_parsers import markup_leaks, needed_parsers
from responses_gateway.probing.profile import Profile
from responses_gateway.settings import PARSER_SETTINGS, Settings, entry_for

# In tokens, in place of a server's own limit, because a coding agent has to be able to write a file, after thinking.
_ENOUGH_TOKENS = 32_768

_NOT_APPLIED = frozenset({"backend", "opened_thinking"})


def known_model(profile: Profile) -> KnownModel:
    """Return what the answers show of how the model thinks. That none has a thought shows nothing."""
    calls_field = profile.calls in ("parsed", "forced", "legacy")
    if profile.reasoning_field is not None:
        return KnownModel(field=True, calls_field=calls_field)
    opens, closes = parsers.reasoning_markers("auto")
    texts = profile.texts.values()
    if any(text.lstrip().startswith(opens) for text in texts):
        return KnownModel(marked=True, opens=False, calls_field=calls_field)
    closed = any(marker in text for text in texts for marker in closes)
    opened = True if closed and not any(marker in text for text in texts for marker in opens) else None
    return KnownModel(opens=opened, calls_field=calls_field)


def recommended_settings(profile: Profile) -> dict[str, Any]:
    """Return `backend` and the settings that should differ from their defaults, as they stand in a YAML file."""
    values: dict[str, Any] = {"max_tokens_field": profile.max_tokens_field, "reasoning_field": _reasoning_field(profile)}
    values["named_tool_choice"] = profile.named_tool_choice or SERVER_TYPES[profile.server].named_tool_choice
    values["custom_tool_grammar"] = profile.pattern_reading
    if SERVER_TYPES[profile.server].own_limit:
        values["default_max_output_tokens"] = _ENOUGH_TOKENS
    if profile.tolerates.get("turns") is False:
        values["user_messages"] = "alternate"
    elif profile.tolerates.get("two_user") is False:
        values["user_messages"] = "merge"
    needed = needed_parsers(profile)
    if needed.reasoning is not None:
        values["reasoning_parser"] = needed.reasoning
    elif needed.tools is not None and profile.reasoning_field is None:
        values["reasoning_parser"] = "auto"  # the server parses nothing, and the model may think at other questions
    if needed.tools is not None:
        values["tool_call_parser"] = needed.tools
    if markup_leaks(profile):
        values["rescue"] = True
    if needed.reasoning is not None and not profile.token_ids:  # else the ids of each prompt tell
        values["opened_thinking"] = "yes" if needed.opened else "no" if known_model(profile).marked else None
    fields = Settings.model_fields
    differing = {name: value for name, value in values.items() if value not in (None, fields[name].default)}
    if differing.get("max_tokens_field") == "none":
        del differing["max_tokens_field"]
    return {"backend": profile.url, **differing}


def settings_to_apply(settings: Settings, profile: Profile) -> dict[str, Any]:
    """Return the recommended settings, without those that were given. Where a prompt ends is learned of each model."""
    entry = entry_for(settings.models, profile.model)
    recommended = {name: value for name, value in recommended_settings(profile).items() if name not in _NOT_APPLIED}
    return without_given(settings, recommended, entry.model_fields_set if entry is not None else frozenset())


def without_given(settings: Settings, recommendation: Mapping[str, Any], more: Set[str] = frozenset()) -> dict[str, Any]:
    """Return what was found out without what the settings, or `more`, say. Parsers are given together, or not at all."""
    names = settings.model_fields_set | more
    if names & PARSER_SETTINGS:
        names = names | PARSER_SETTINGS
    return {name: value for name, value in recommendation.items() if name not in names}


def common_settings(needed: list[dict[str, Any]]) -> tuple[dict[str, Any], list[str]]:
    """Return the settings that all of several backends need, and the names of those in which they differ."""
    names = sorted({name for settings in needed for name in settings})
    first = needed[0]
    common = {name: first[name] for name in names if all(settings.get(name) == first.get(name) for settings in needed)}
    return common, [name for name in names if name not in common]


def _reasoning_field(profile: Profile) -> str | None:
    """Return the field in which reasoning is sent back: the one in which it reaches the prompt, if that was found out; else the
    one in which it came, or that of this type of server, unless the server refuses it."""
    if profile.reasoning_history is False:
        return "none"
    if profile.history_field is not None:
        return profile.history_field
    if profile.reasoning_field in ("reasoning", "reasoning_content"):
        return profile.reasoning_field
    return SERVER_TYPES[profile.server].reasoning_field
