"""`responses-gateway codex-config`: the `config.toml` with which Codex talks to a gateway."""

from __future__ import annotations

import argparse
import os
import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import InlineTable, Table

from responses_gateway.commands import Unusable, client_files
from responses_gateway.commands.client_files import change, restore, restore_own
from responses_gateway.commands.gateway_offer import DEFAULT_URL, Offer, offer_of, read_url, warn_of_small_window

PROVIDER = "responses-gateway"
# Codex reads it on top of config.toml, if it is started with `--profile` and this name.
PROFILE = "responses-gateway"
_FIRST_REQUEST = 8_000  # tokens of Codex's first request: its instructions and tools
# Keys of the user's file that override what the gateway says of a model.
_OVERRIDES = ("model_context_window", "model_auto_compact_token_limit", "model_catalog_json", "model_instructions_file")
_REASONS = {
    "web_search": "live if the gateway has a search provider",
    "suppress_unstable_features_warning": "of standalone_web_search",
    "standalone_web_search": "Codex asks the gateway to search",
    "show_raw_agent_reasoning": "the gateway repeats the reasoning as its summary, which is shown",
    "name": 'not "OpenAI" or "Azure": those names turn on remote compaction',
    "model_catalog_url": "context window, base prompt and tools of each model",
    "experimental_bearer_token": "no key is needed, but without one Codex fetches no catalog",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add where the gateway is, and where the file is."""
    parser.epilog = "The model catalog needs Codex 0.169 or later; older versions ignore model_catalog_url."
    parser.add_argument("--url", default=DEFAULT_URL, help="base URL of the gateway (default: %(default)s)")
    parser.add_argument("--model", help="model to start with (default: the one in the file if served, else the first served)")
    parser.add_argument("--env-key", metavar="NAME", help="environment variable with the gateway's key, if it needs one")
    client_files.add_arguments(parser, f"the configuration to a profile for `codex --profile {PROFILE}`", "config.toml")
    parser.add_argument("--codex-home", type=Path, metavar="DIR", help="Codex's home folder (default: CODEX_HOME or ~/.codex)")


def run(args: argparse.Namespace) -> int:
    """Print or write the configuration. Returns 0. Raises `Unusable`."""
    url = read_url(args.url)
    home = args.codex_home or Path(os.environ.get("CODEX_HOME") or client_files.user_home() / ".codex")
    path = home / ("config.toml" if args.default else f"{PROFILE}.config.toml")
    if args.restore:
        print(restore(path) if args.default else restore_own(path))
        return 0
    offer = offer_of(url, args.env_key, os.environ, needs_models=args.model is None)
    model = args.model or preferred(offer.models, path)
    config = configuration(url, model, args.env_key, web_search=offer.web_search)
    warn(model, offer)
    if args.write:
        print(write(path, config))
        if not args.default:
            print(f"Start it with: codex --profile {PROFILE}")
    else:
        print(tomlkit.dumps(merged(tomlkit.document(), config)).rstrip())
    return 0


def warn(model: str, offer: Offer) -> None:
    """Tell the user that the model's context is too small, and what was decided without the gateway."""
    warn_of_small_window("Codex", _FIRST_REQUEST, model, offer)
    if offer.unknown:
        print(
            "responses-gateway: warning: web search is turned off in this configuration, since it is not known whether the "
            f"gateway has one: {offer.unknown}",
            file=sys.stderr,
        )


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
    """Merge into the user's file. Returns what was done, as text. Raises `Unusable`."""
    return change(path, lambda text: _with_ours(path, text, config))


def write_own(path: Path, config: Mapping[str, Any]) -> None:
    """Write the file of the home that Codex has here for itself: the provider is all new, because a key that an earlier start
    named would be asked for at each later one. What Codex has noted there stays. Raises `Unusable`."""
    change(path, lambda text: _with_ours(path, _without_provider(text), config), with_backup=False)


def _without_provider(text: str) -> str:
    try:
        document = tomlkit.parse(text)
        providers: Any = document.get("model_providers")
        if isinstance(providers, Mapping) and PROVIDER in providers:
            del document["model_providers"][PROVIDER]
        return tomlkit.dumps(document)
    except (TOMLKitError, TypeError):  # which the merge reports
        return text


def _with_ours(path: Path, text: str, config: Mapping[str, Any]) -> tuple[str, str]:
    try:
        document = merged(tomlkit.parse(text), config)
    except TOMLKitError as error:
        raise Unusable(f"{path} is not valid TOML, so nothing was changed: {error}") from None
    after = tomlkit.dumps(document).rstrip("\n") + "\n"
    if tomllib.loads(after) != document.unwrap():  # rather change nothing than something else
        raise Unusable(f"{path} cannot be changed safely: run the command without --write, and add by hand what it prints")
    overridden = ", ".join(key for key in _OVERRIDES if key in document)
    return after, f"\nNote: {overridden} in this file overrides what the gateway says about its models." if overridden else ""
