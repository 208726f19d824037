"""`responses-gateway codex-config`: the `config.toml` with which Codex talks to a gateway."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any
from urllib.parse import urlsplit

import httpx
import tomlkit
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import InlineTable, Table

from responses_gateway.settings import Settings, backend_url
from responses_gateway.wire.hosts.addresses import is_loopback

DEFAULT_URL = f"http://{Settings().host}:{Settings().port}"
PROVIDER = "responses-gateway"
_LISTING_TIMEOUT = 15.0
# How much of an error is shown, in characters.
_MESSAGE_LIMIT = 300
# Keys of the user's file that override what the gateway says of a model.
_OVERRIDES = ("model_context_window", "model_auto_compact_token_limit", "model_catalog_json", "model_instructions_file")
_REASONS = {
    "web_search": "live where the gateway has a search provider",
    "suppress_unstable_features_warning": "of standalone_web_search",
    "standalone_web_search": "Codex asks the gateway to search",
    "show_raw_agent_reasoning": "the gateway repeats the reasoning as its summary, which is shown",
    "name": 'not "OpenAI" or "Azure": those names turn on remote compaction',
    "model_catalog_url": "context window, base prompt and tools of each model",
    "experimental_bearer_token": "no key is needed, but without one Codex fetches no catalog",
}


# What an error says to those who have not named a model.
_OR_NAMED = ", or give --model"


class Unusable(Exception):
    """There is no such gateway, or no such file; the text says what to do."""


class BackendDown(Unusable):
    """The gateway answers, but its backend does not."""


@dataclass(frozen=True, slots=True)
class Offer:
    """What a gateway offers: the models that Codex would list, its default first, and whether it searches the web.
    `unknown` says why that is not known."""

    models: tuple[str, ...] = ()
    web_search: bool = False
    unknown: str = ""

    def warn(self) -> None:
        """Tell the user what was decided without the gateway."""
        if self.unknown:
            print(
                "responses-gateway: warning: web search is turned off in this configuration, since it is not known whether the "
                f"gateway has one: {self.unknown}",
                file=sys.stderr,
            )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add where the gateway is, and where the file is."""
    parser.epilog = "Needs Codex 0.169 or later for the model catalog; older versions ignore that line."
    parser.add_argument("--url", default=DEFAULT_URL, help="base URL of the gateway (default: %(default)s)")
    parser.add_argument(
        "--model", help="model to start with (default: that of the file if it is served, else the first one served)"
    )
    parser.add_argument("--env-key", metavar="NAME", help="environment variable with the key, if the backend needs one")
    parser.add_argument("--write", action="store_true", help="write it to the file, leaving the rest as it is; keeps a backup")
    parser.add_argument(
        "--codex-home", type=Path, metavar="DIR", help="folder of config.toml (default: CODEX_HOME or ~/.codex)"
    )


def run(args: argparse.Namespace) -> int:
    """Print or write the configuration. Returns 0, 1 without a gateway to ask or a file that can be used, 2 for a wrong URL."""
    try:
        url = backend_url(args.url)
    except ValueError as error:
        print(f"responses-gateway: --url: {error}", file=sys.stderr)
        return 2
    home = args.codex_home or Path(os.environ.get("CODEX_HOME") or Path.home() / ".codex")
    path = home / "config.toml"
    try:
        offer = offer_of(url, args.env_key, os.environ, needs_models=args.model is None)
        model = args.model or preferred(offer.models, path)
        config = configuration(url, model, args.env_key, web_search=offer.web_search)
        offer.warn()
        if args.write:
            print(write(path, config))
        else:
            print(tomlkit.dumps(merged(tomlkit.document(), config)).rstrip())
    except Unusable as error:
        print(f"responses-gateway: {error}", file=sys.stderr)
        return 1
    return 0


def is_on_this_machine(url: str) -> bool:
    """Tell whether the URL is on this machine, where no HTTP proxy is used, whatever the environment says."""
    return is_loopback(urlsplit(url).hostname or "")


def offer_of(url: str, env_key: str | None, environ: Mapping[str, str], *, needs_models: bool) -> Offer:
    """Return what the gateway offers: at least one model, if they are needed. Raises `Unusable`; where no models are needed, a
    gateway that cannot be asked offers nothing."""
    try:
        listed = _listed(url, env_key, environ)
        models = _served(url, listed)
    except Unusable as reason:
        if needs_models:
            raise
        return Offer(unknown=str(reason).removesuffix(_OR_NAMED))
    hosted = listed.get("hosted_tools")
    return Offer(models, isinstance(hosted, list) and "web_search" in hosted)


def _listed(url: str, env_key: str | None, environ: Mapping[str, str]) -> dict[str, Any]:
    """Return the gateway's answer about its models. Raises `Unusable`."""
    key = environ.get(env_key) if env_key else None
    if env_key and not key:
        raise Unusable(f"the variable {env_key} is not set: Codex needs it, and so does the list of models")
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    try:
        answer = httpx.get(f"{url}/models", headers=headers, timeout=_LISTING_TIMEOUT, trust_env=not is_on_this_machine(url))
    except httpx.HTTPError:
        raise Unusable(f"no gateway answers at {url}: start it (responses-gateway serve --backend URL){_OR_NAMED}") from None
    if answer.status_code in (401, 403):
        raise Unusable(f"{url} needs a {'valid ' if key else ''}key: name its environment variable with --env-key")
    if answer.status_code >= 500 and answer.headers.get("server") == "responses-gateway":
        raise BackendDown(f"the gateway at {url} answers, but its backend does not: {_message_of(answer)}")
    try:
        listed = answer.json()
    except ValueError:
        listed = None
    if not isinstance(listed, dict) or not isinstance(listed.get("models"), list):
        raise Unusable(f"{url} does not list models as a gateway does (status {answer.status_code}): is it the right URL?")
    return listed


def _served(url: str, listed: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the models that Codex would list. Raises `Unusable`."""
    try:
        catalog = [model for model in listed["models"] if model["visibility"] == "list"]
        models = tuple(str(model["slug"]) for model in sorted(catalog, key=lambda model: model["priority"]))
    except (KeyError, TypeError):
        raise Unusable(f"{url} does not list models as a gateway does: is it the right URL?") from None
    if not models:
        raise Unusable(f"{url} lists no model: is its backend running? Or give --model")
    return models


def _message_of(answer: httpx.Response) -> str:
    """Return what the gateway says of the failure, else the status."""
    try:
        return str(answer.json()["error"]["message"])[:_MESSAGE_LIMIT]
    except (ValueError, LookupError, TypeError):
        return f"status {answer.status_code}"


def preferred(served: Sequence[str], path: Path) -> str:
    """Return the model that the file names, if it is served (Codex keeps there what its user has picked), else the first."""
    try:
        named = tomllib.loads(path.read_text(encoding="utf-8")).get("model")
    except (OSError, ValueError):  # writing the file reports what is wrong with it
        named = None
    return named if isinstance(named, str) and named in served else served[0]


def configuration(url: str, model: str, env_key: str | None, *, web_search: bool = False) -> dict[str, Any]:
    """Return the settings that Codex needs, as nested dicts in the order of the file. Context window, prompt and the rest come
    with the catalog, from the gateway. With `web_search` Codex posts its searches to the gateway; up to 0.169 at least it does
    so only with a feature that it calls unstable, and warns of at each start unless that is turned off."""
    provider = {
        "name": PROVIDER,
        "base_url": url,
        "wire_api": "responses",
        "model_catalog_url": f"{url}/models",
        **({"supports_standalone_web_search": True} if web_search else {}),
        **({"env_key": env_key} if env_key else {"experimental_bearer_token": "none"}),
    }
    return {
        "model": model,
        "model_provider": PROVIDER,
        "web_search": "live" if web_search else "disabled",
        **({"suppress_unstable_features_warning": True} if web_search else {}),
        "show_raw_agent_reasoning": False,
        "model_providers": {PROVIDER: provider},
        **({"features": {"standalone_web_search": True}} if web_search else {}),
    }


def merged(document: tomlkit.TOMLDocument, config: Mapping[str, Any]) -> tomlkit.TOMLDocument:
    """Return the document with our keys set; everything else, comments too, stays where it is. Raises `Unusable` if there is
    another kind of value where a table is needed."""
    for key, value in config.items():
        if not isinstance(value, Mapping):
            _put(document, key, value)
    if "model_providers" not in document:
        document["model_providers"] = tomlkit.table(is_super_table=True)
    providers: Any = document["model_providers"]
    for name, fields in config["model_providers"].items():
        try:
            if name in providers:
                _set_provider(providers[name], fields)
            else:
                providers[name] = _new_provider(fields, inline=_inline(document))
        except (AttributeError, TypeError):
            raise Unusable(f"model_providers.{name} is not a table") from None
    if "features" in config:
        _set_features(document, config["features"])
    return document


def _set_features(document: tomlkit.TOMLDocument, features: Mapping[str, Any]) -> None:
    """Set features, behind all else: the header of a new table would include the keys after it."""
    if "features" not in document:
        document["features"] = tomlkit.table()
    table: Any = document["features"]
    try:
        for key, value in features.items():
            _put(table, key, value)
    except (AttributeError, TypeError):
        raise Unusable("features is not a table") from None


def _inline(document: tomlkit.TOMLDocument) -> bool:
    """Tell whether the providers are an inline table, or dotted keys: a table with a header would include the keys after it."""
    dotted = any(key is not None and key.key == "model_providers" and key.is_dotted() for key, _ in document.body)
    return dotted or isinstance(document["model_providers"], InlineTable)


def _new_provider(fields: Mapping[str, Any], *, inline: bool) -> Table | InlineTable:
    table = tomlkit.inline_table() if inline else tomlkit.table()
    _set_provider(table, fields)
    if not inline:
        table.add(tomlkit.nl())
    return table


def _set_provider(table: Any, fields: Mapping[str, Any]) -> None:
    if "env_key" in fields:  # Codex refuses two kinds of credentials
        for other in ("experimental_bearer_token", "auth"):
            table.pop(other, None)
    has_key = any(key in table for key in ("env_key", "experimental_bearer_token", "auth"))
    for key, value in fields.items():
        if not (key == "experimental_bearer_token" and has_key):  # the user's own credentials stay
            _put(table, key, value)


def _put(table: Any, key: str, value: object) -> None:
    """Set a key. A new one gets a comment that says why it is there."""
    item = tomlkit.item(value)
    if key in _REASONS and key not in table and not isinstance(table, InlineTable):
        item.comment(_REASONS[key])
    table[key] = item


def write(path: Path, config: Mapping[str, Any]) -> str:
    """Merge into the file, which may be missing, and keep a backup beside it. Returns what was done, as text. Raises
    `Unusable`."""
    path = path.resolve()  # a symbolic link stays one
    try:
        before = path.read_text(encoding="utf-8") if path.exists() else ""
        document = merged(tomlkit.parse(before), config)
        after = tomlkit.dumps(document).rstrip("\n") + "\n"
        if tomllib.loads(after) != document.unwrap():  # rather change nothing than something else
            raise Unusable(f"{path} cannot be merged: please add by hand what is printed without --write")
        if after == before:
            return f"{path} is up to date"
        path.parent.mkdir(parents=True, exist_ok=True)
        backup = _back_up(path) if before else None
        _replace(path, after)
    except (OSError, UnicodeDecodeError) as error:
        raise Unusable(f"{path}: {error}") from None
    except TOMLKitError as error:
        raise Unusable(f"{path} is not valid TOML, nothing was changed: {error}") from None
    overridden = [key for key in _OVERRIDES if key in document]
    note = f"\nnote: {', '.join(overridden)} in it overrides what the gateway says of its models" if overridden else ""
    return f"wrote {path}{f' (before: {backup})' if backup else ''}{note}"


def _back_up(path: Path) -> Path:
    """Copy the file to the first name that is free, so that no backup overwrites another."""
    number = 0
    while True:
        backup = path.with_name(f"{path.name}.bak{f'.{number}' if number else ''}")
        if not backup.exists():
            shutil.copy2(path, backup)
            return backup
        number += 1


def _replace(path: Path, text: str) -> None:
    """Replace the file in one step, since Codex may be reading it."""
    with NamedTemporaryFile("w", encoding="utf-8", dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
        file.write(text)
    if path.exists():
        shutil.copymode(path, file.name)
    os.replace(file.name, path)
