"""Load settings from flags, the environment and a YAML file. Errors name a setting as the user wrote it."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_settings import EnvSettingsSource
from pydantic_settings import SettingsError as EnvironmentSourceError

from responses_gateway.settings import (
    CONFIG_VARIABLE,
    ENV_PREFIX,
    ApiKey,
    BackendDetails,
    BackendPool,
    McpServerDetails,
    ModelParsers,
    Settings,
    SettingsError,
    flag,
    suggestion,
    variable,
)
from responses_gateway.settings.background import WebhookEndpoint
from responses_gateway.settings.contradictions import contradictions
from responses_gateway.settings.identity import TokenIssuer, TrustedProxy
from responses_gateway.settings.keys import Team
from responses_gateway.wire.validation import problem

# Kubernetes sets these in every pod of a namespace with a Service called "responses-gateway"; they are not settings.
_SERVICE_LINK = re.compile(r"(SERVICE_(HOST|PORT(_\w+)?)|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)", re.IGNORECASE)
_SERVICE_LINK_ADDRESS = re.compile(r"(tcp|udp|sctp)://", re.IGNORECASE)

# Settings that are mappings, and the type of their entries, or of the setting itself.
_ENTRIES: dict[str, type[BaseModel]] = {
    "models": ModelParsers,
    "api_keys": ApiKey,
    "teams": Team,
    "backends": BackendDetails,
    "pools": BackendPool,
    "mcp_servers": McpServerDetails,
    "webhooks": WebhookEndpoint,
    "jwt": TokenIssuer,
    "trusted_proxy": TrustedProxy,
}


def load(
    flags: Mapping[str, Any], config_file: Path | None, environ: Mapping[str, str], only: Collection[str] | None = None
) -> Settings:
    """Combine flags, environment, file, OpenTelemetry's own variables and defaults, field by field, in this precedence. `flags`
    maps field names to values (text or typed); `environ` is `os.environ` or a substitute; without `config_file` the variable
    `RESPONSES_GATEWAY_CONFIG` names the file. With `only`, all other fields have
    their defaults, and unknown names are not looked at. Raises `SettingsError`."""
    named = environ.get(CONFIG_VARIABLE)
    if config_file is None and named:
        config_file = Path(named)
    complaints: list[str] = []
    sources: list[tuple[str, dict[str, Any]]] = [
        ("flag", dict(flags)),
        ("environment", _from_environment(environ, complaints)),
        (str(config_file), _from_file(config_file, complaints) if config_file else {}),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", _from_opentelemetry(environ)),
    ]
    values: dict[str, Any] = {}
    for _, source in reversed(sources):
        values.update(source)
    if only is not None:
        values = {name: value for name, value in values.items() if name in only}
    settings = None
    try:
        settings = Settings(**values)
    except ValidationError as error:
        complaints += _messages(error, sources)
    if settings is not None and only is None:
        complaints += contradictions(settings)
    if settings is None or (complaints and only is None):
        raise SettingsError("\n".join(dict.fromkeys(complaints)))
    return settings


def _from_environment(environ: Mapping[str, str], complaints: list[str]) -> dict[str, Any]:
    ours = {name: value for name, value in environ.items() if _is_ours(name, value)}
    known = [variable(field) for field in Settings.model_fields]
    unknown = [name for name in ours if name.upper() not in known]
    complaints += [f"unknown environment variable {name}{suggestion(name.upper(), known)}" for name in unknown]
    # It reads the fields alone, which any model has.
    source = EnvSettingsSource(Settings, env_prefix=ENV_PREFIX, env_ignore_empty=True)  # type: ignore[arg-type]
    source.env_vars = {name.lower(): value for name, value in ours.items() if value and name not in unknown}
    while True:
        try:
            return source()
        except EnvironmentSourceError as error:
            field = next((name for name in _ENTRIES if f'"{name}"' in str(error)), None)
            if field is None or variable(field).lower() not in source.env_vars:
                raise SettingsError("\n".join([*complaints, f"environment: {error}"])) from None
            complaints.append(f"{variable(field)}: a mapping in JSON is expected")
            source.env_vars = {name: value for name, value in source.env_vars.items() if name != variable(field).lower()}


def _from_opentelemetry(environ: Mapping[str, str]) -> dict[str, Any]:
    """Read the collector from the standard variables. Clusters set them for all programs, so they are ignored unless the `otel`
    extra is installed."""
    endpoint = environ.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") or environ.get("OTEL_EXPORTER_OTLP_ENDPOINT")
    if not endpoint or environ.get("OTEL_TRACES_EXPORTER", "otlp") != "otlp":
        return {}
    try:
        distribution("opentelemetry-exporter-otlp-proto-http")
    except PackageNotFoundError:
        return {}
    return {"otel_endpoint": endpoint}


def _is_ours(name: str, value: str) -> bool:
    if not name.upper().startswith(ENV_PREFIX) or name.upper() == CONFIG_VARIABLE:
        return False
    if name.upper() == variable("port") and _SERVICE_LINK_ADDRESS.match(value):
        return False
    return not _SERVICE_LINK.fullmatch(name[len(ENV_PREFIX) :])


def _from_file(path: Path, complaints: list[str]) -> dict[str, Any]:
    from responses_gateway.settings.yaml_file import read_yaml  # noqa: PLC0415  (most gateways start without a file)

    try:
        content = read_yaml(path)
    except SettingsError as error:
        complaints.append(str(error))
        return {}
    if content is not None and not isinstance(content, dict):
        complaints.append(f"{path}: a mapping of settings is expected, for example `port: 9000`")
        return {}
    unknown = [key for key in content or () if key not in Settings.model_fields]
    complaints += [f"{path}: unknown key {key}{suggestion(str(key), Settings.model_fields)}" for key in unknown]
    return {key: value for key, value in (content or {}).items() if key not in unknown}


def _messages(error: ValidationError, sources: list[tuple[str, dict[str, Any]]]) -> Iterable[str]:
    for detail in error.errors(include_url=False, include_input=False):
        field = str(detail["loc"][0])
        origin = next((name for name, values in sources if field in values), "")
        label = {"flag": flag(field), "environment": variable(field)}.get(origin, f"{origin}: {field}")
        place = [label, *(part for part in detail["loc"][1:] if isinstance(part, str))]
        if detail["type"] == "extra_forbidden":
            key = place.pop()
            yield f"{': '.join(place)}: unknown key {key}{suggestion(key, _ENTRIES[field].model_fields)}"
        else:
            context = detail.get("ctx", {})
            # Of a secret the library does not tell that it is a text.
            is_secret = detail["type"] == "too_short" and context["field_type"] == "Value"
            kind = "string_too_short" if is_secret else detail["type"]
            yield f"{': '.join(place)}: {problem(kind, context, detail['msg'])}"
