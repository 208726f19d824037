"""Settings that are read again while the gateway runs: which of them take effect at once, and which with a restart."""

from __future__ import annotations

from typing import NamedTuple

from responses_gateway.settings import Settings
from responses_gateway.settings.access import LIMIT_SETTINGS, QUOTA_SETTINGS, has_limits
from responses_gateway.settings.agent_turns import AgentTurnSettings
from responses_gateway.settings.translation import RequestSettings, ResponseSettings

_BACKENDS = ("backend", "backends", "pools", "backend_headers", "backend_api_key", "max_concurrency", "continue_answers")
# What takes effect at once; the rest is used where the parts of a process are opened.
_AT_ONCE = frozenset(
    {
        *_BACKENDS, *RequestSettings.model_fields, *ResponseSettings.model_fields, *AgentTurnSettings.model_fields,
        *LIMIT_SETTINGS, *QUOTA_SETTINGS, "api_keys", "teams", "log_level", "url_inputs",
    }
)  # fmt: skip
# What a rolling restart does not change, since the process that owns the sockets stays.
_SOCKETS = frozenset({"host", "port", "operations_host", "operations_port", "workers"})


class Reloaded(NamedTuple):
    """The settings in force from now on, and the names of those that have changed: at once, with a rolling restart (SIGUSR2),
    or only when the gateway is stopped and started."""

    settings: Settings
    at_once: list[str]
    rolling: list[str]
    restart: list[str]


def reloaded(before: Settings, read: Settings) -> Reloaded:
    """Combine the settings in force with those that were read."""
    changed = [name for name in Settings.model_fields if getattr(before, name) != getattr(read, name)]
    at_once = [name for name in changed if name in _AT_ONCE and not _needs_other_middleware(name, before, read)]
    later = [name for name in changed if name not in at_once]
    values = {name: getattr(read if name in at_once else before, name) for name in Settings.model_fields}
    fields = (before.model_fields_set - _AT_ONCE) | (read.model_fields_set & _AT_ONCE)
    return Reloaded(
        Settings.model_construct(_fields_set=fields, **values),
        at_once,
        [name for name in later if name not in _SOCKETS],
        [name for name in later if name in _SOCKETS],
    )


def _needs_other_middleware(name: str, before: Settings, read: Settings) -> bool:
    """Tell whether a process would have to be put together in another way: a gateway with keys from one without, above all.
    An empty mapping must not open it by mistake, either."""
    if name == "api_keys":
        return bool(before.api_keys) != bool(read.api_keys)
    return name in LIMIT_SETTINGS and not before.api_keys and not has_limits(before)
