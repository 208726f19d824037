"""Load settings from flags, the environment and a YAML file. Errors name a setting as the user wrote it."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from responses_gateway.settings import (
    CLIENT_KEY_VARIABLE,
    CONFIG_VARIABLE,
    ENV_PREFIX,
    Settings,
    SettingsError,
    flag,
    suggestion,
    variable,
)
from responses_gateway.settings.access import has_quotas, unreachable_limits
from responses_gateway.settings.keys import hash_of
from responses_gateway.settings.reference import kind_of
from responses_gateway.wire.validation import problem

# Kubernetes sets these in every pod of a namespace with a Service called "responses-gateway"; they are not settings.
_SERVICE_LINK = re.compile(r"(SERVICE_(HOST|PORT(_\w+)?)|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)", re.IGNORECASE)
_SERVICE_LINK_ADDRESS = re.compile(r"(tcp|udp|sctp)://", re.IGNORECASE)
# Settings that have an effect beside another one alone.
_BESIDE = {"operations_host": "operations_port", "moderation_prompt": "moderation_model", "trust_remote_code": "tokenizer"}


def load(
    flags: Mapping[str, Any], config_file: Path | None, environ: Mapping[str, str], only: Collection[str] | None = None
) -> Settings:
    """Combine flags, environment, file, OpenTelemetry's own variables and defaults, field by field, in this precedence. `flags`
    maps field names to values (text or typed); `environ` is `os.environ` or a substitute; without `config_file` the variable
    `RESPONSES_GATEWAY_CONFIG` names the file. With `only`, all other fields have
    their defaults, and unknown names are not looked at. Raises `SettingsError`."""
    complaints: list[str] = []
    sources = _sources(flags, config_file, environ, complaints)
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
        complaints += _contradictions(settings)
    if settings is None or (complaints and only is None):
        raise SettingsError("\n".join(dict.fromkeys(complaints)))
    return settings


def origins(flags: Mapping[str, Any], config_file: Path | None, environ: Mapping[str, str]) -> dict[str, str]:
    """Return for each field that is set what sets it: its flag, its variable, or the file."""
    sources: dict[str, str] = {}
    for origin, values in _sources(flags, config_file, environ, []):
        for field in values:
            sources.setdefault(field, {"flag": flag(field), "environment": variable(field)}.get(origin, origin))
    return sources


def _sources(
    flags: Mapping[str, Any], config_file: Path | None, environ: Mapping[str, str], complaints: list[str]
) -> list[tuple[str, dict[str, Any]]]:
    """Return the name and the values of each source, in their precedence."""
    named = environ.get(CONFIG_VARIABLE)
    if config_file is None and named:
        config_file = Path(named)
    return [
        ("flag", dict(flags)),
        ("environment", _from_environment(environ, complaints)),
        (str(config_file), _from_file(config_file, complaints) if config_file else {}),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", _from_opentelemetry(environ)),
    ]


def _from_environment(environ: Mapping[str, str], complaints: list[str]) -> dict[str, Any]:
    """Read the variables, of which those that are empty count as absent."""
    fields = {variable(field): field for field in Settings.model_fields}
    values: dict[str, Any] = {}
    for name, text in environ.items():
        field = fields.get(name.upper())
        if not _is_ours(name, text):
            continue
        if field is None:
            complaints.append(f"unknown environment variable {name}{suggestion(name.upper(), [*fields, CONFIG_VARIABLE])}")
        elif text:
            values[field] = text
    # A variable has JSON for a mapping, but for keys, which have a form of their own.
    mappings = [name for name in values if kind_of(Settings.model_fields[name].annotation) == "MAPPING"]
    for field in [name for name in mappings if name != "api_keys"]:
        try:
            values[field] = json.loads(values[field])
        except ValueError:
            complaints.append(f"{variable(field)}: expected a mapping in JSON")
            del values[field]
    return values


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
    if not name.upper().startswith(ENV_PREFIX) or name in (CONFIG_VARIABLE, CLIENT_KEY_VARIABLE):
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
        complaints.append(f"{path}: expected a mapping of settings, for example `port: 9000`")
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
            yield f"{': '.join(place)}: unknown key {key}{suggestion(key, _keys_of(field))}"
        else:
            context = detail.get("ctx", {})
            # Of a secret the library does not tell that it is a text.
            is_secret = detail["type"] == "too_short" and context["field_type"] == "Value"
            kind = "string_too_short" if is_secret else detail["type"]
            yield f"{': '.join(place)}: {problem(kind, context, detail['msg'])}"


def _keys_of(field: str) -> Iterable[str]:
    """Return the keys of a setting that is a mapping, or of each of its entries."""
    parts = get_args(Settings.model_fields[field].annotation)
    return next(part.model_fields for part in parts if isinstance(part, type) and issubclass(part, BaseModel))


def _contradictions(settings: Settings) -> Iterator[str]:
    """Yield what is wrong with settings each of which is right by itself, but which have no effect together."""
    yield from _quotas_nowhere(settings)
    yield from _without_effect(settings)
    for name, key in settings.api_keys.items():
        if key.team is not None and key.team not in settings.teams:
            yield f"api_keys: {name}: team: there is no team {key.team} in teams"
    for place, entries in (("api_keys", settings.api_keys), ("teams", settings.teams)):
        for name, entry in entries.items():
            yield from (f"{place}: {name}: {field} {problem}" for field, problem in unreachable_limits(entry))
    if 0 < settings.tokens_per_month < settings.tokens_per_day:
        yield "tokens_per_day is more than tokens_per_month"


def _without_effect(settings: Settings) -> Iterator[str]:
    for name, other in _BESIDE.items():
        if getattr(settings, name) and getattr(settings, other) is None:
            yield f"{name} has no effect without {other}"
    if settings.metrics == "key" and not settings.identifies_clients and settings.operations_port is None:
        yield "metrics: key needs api_keys, jwt or trusted_proxy: without them everybody can read the metrics"
    admin = settings.admin_key and hash_of(settings.admin_key.get_secret_value())
    for name, key in settings.api_keys.items():
        if admin in [hashed.get_secret_value() for hashed in key.hash]:
            yield f"api_keys: {name} has the admin_key: who has it would be an operator"


def _quotas_nowhere(settings: Settings) -> Iterator[str]:
    if not has_quotas(settings):
        return
    if not settings.identifies_clients:
        sources = "api_keys, jwt or trusted_proxy"
        yield f"tokens_per_day and tokens_per_month (also of teams) need {sources}, because quotas belong to named clients"
    if settings.store == "none" and settings.events == "store":
        yield "tokens_per_day and tokens_per_month need a store, or Redis in events, to count the tokens"
