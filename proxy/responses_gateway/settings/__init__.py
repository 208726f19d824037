"""Every setting of the gateway, typed, in sections.

A value comes from the first of these that names it: a flag of `responses-gateway serve`, an environment variable
`RESPONSES_GATEWAY_<FIELD>`, the YAML file named by `--config` or `RESPONSES_GATEWAY_CONFIG`, the default of the field.
`--help` and `docs/configuration.md` are generated from the fields."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from pydantic import ValidationError

from responses_gateway.settings.access import AccessSettings
from responses_gateway.settings.agent_turns import AgentTurnSettings
from responses_gateway.settings.backend import BackendDetails, BackendPool, BackendSettings, check_backend_name
from responses_gateway.settings.background import CompletionWindowSettings, WebhookSettings
from responses_gateway.settings.hosted import Hosted
from responses_gateway.settings.identity import IdentitySettings
from responses_gateway.settings.keys import ApiKey
from responses_gateway.settings.mcp_servers import McpServerDetails
from responses_gateway.settings.moderation import ModerationSettings, SafeguardSettings
from responses_gateway.settings.operation import OperationSettings
from responses_gateway.settings.section import Section, SettingsError, backend_url, without_password
from responses_gateway.settings.serving import ListeningSettings, TimingSettings
from responses_gateway.settings.storage import StorageSettings
from responses_gateway.settings.tool_calls import ToolCallSettings
from responses_gateway.settings.translation import PARSER_SETTINGS, ModelParsers, RequestSettings, ResponseSettings, entry_for
from responses_gateway.wire.validation import problem

__all__ = [
    "CLIENT_KEY_VARIABLE", "CONFIG_VARIABLE", "ENV_PREFIX", "PARSER_SETTINGS", "SECTIONS", "SUPERVISED_VARIABLE", "ApiKey",
    "BackendDetails", "BackendPool", "McpServerDetails", "ModelParsers", "Section", "Settings", "SettingsError",
    "backend_url", "check_backend_name", "describe", "entry_for", "first_problem", "flag", "suggestion", "variable",
]  # fmt: skip

ENV_PREFIX = "RESPONSES_GATEWAY_"
CONFIG_VARIABLE = ENV_PREFIX + "CONFIG"
# Not for users: set by the parent of several workers (see `server/process/worker_link.py`).
SUPERVISED_VARIABLE = ENV_PREFIX + "SUPERVISED"
# No setting: the client's key in the commands that we show, which may be typed in the terminal of the gateway.
CLIENT_KEY_VARIABLE = ENV_PREFIX + "KEY"


class Settings(  # pydantic collects the fields from the last base to the first
    OperationSettings,
    SafeguardSettings,
    ModerationSettings,
    AgentTurnSettings,
    ToolCallSettings,
    Hosted,
    ResponseSettings,
    RequestSettings,
    TimingSettings,
    IdentitySettings,
    AccessSettings,
    ListeningSettings,
    WebhookSettings,
    CompletionWindowSettings,
    StorageSettings,
    BackendSettings,
):
    """The settings of one gateway, frozen. Times are in seconds, sizes in bytes. The constructor uses only its arguments and
    the defaults; `responses_gateway.settings.load.load` also reads the environment and a file."""

    @property
    def identifies_clients(self) -> bool:
        """Whether clients have to say who they are."""
        return bool(self.api_keys) or self.jwt is not None or self.trusted_proxy is not None

    @property
    def forwards_client_key(self) -> bool:
        """Whether a client's own `Authorization` is sent to the backend: never if it is a key for the gateway."""
        return self.forward_authorization and not self.identifies_clients


# In the order of the documentation.
SECTIONS: tuple[type[Section], ...] = tuple(reversed(Settings.__bases__))


def describe(settings: Settings) -> str:
    """Return the settings as YAML for `--config`, with secrets replaced by `**********`."""
    import yaml  # noqa: PLC0415  (only to print the settings)

    values = settings.model_dump(mode="json")
    for name in ("store", "events"):
        values[name] = without_password(values[name])
    return yaml.safe_dump(values, sort_keys=False, allow_unicode=True)


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return ` (did you mean X?)` for the closest known name, or an empty text if none is close."""
    closest = difflib.get_close_matches(name, list(known), n=1)
    return f" (did you mean {closest[0]}?)" if closest else ""


def first_problem(error: ValidationError, known: Iterable[str]) -> tuple[str, str]:
    """Return the first field that is wrong, and what is wrong with it; `known` are the fields that there are. Values are not
    repeated, since one may be a key."""
    detail = error.errors(include_url=False, include_input=False)[0]
    field = ".".join(map(str, detail["loc"]))
    what = problem(detail["type"], detail.get("ctx", {}), detail["msg"])
    return field, what + (suggestion(field, known) if detail["type"] == "extra_forbidden" else "")


def flag(field: str) -> str:
    """Return the flag of a field: `keepalive_event` is `--keepalive-event`."""
    return "--" + field.replace("_", "-")


def variable(field: str) -> str:
    """Return the environment variable of a field."""
    return ENV_PREFIX + field.upper()
