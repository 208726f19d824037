"""`responses-gateway key`: generate an API key for a client of the gateway, or hash an existing one."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

# The line of the settings file behind which entries stand, with the indentation of the first one.
_ENTRIES = re.compile(r"^api_keys:[ \t]*(?:#.*)?\n(?:[ \t]*(?:#.*)?\n)*(?=( *))", re.MULTILINE)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the action, and the name of the client."""
    parser.usage = "responses-gateway key {new,hash,add} [--name NAME] [--config FILE]"
    parser.add_argument(
        "action",
        choices=["new", "hash", "add"],
        help="new: generate a key, and print it with its entry for the settings; hash: print the entry for a key read from "
        "standard input, so that it is not in the history of a shell; add: generate a key, and write its entry into the file",
    )
    parser.add_argument("--name", default="alice", help="name of the client in settings, logs and metrics (default: alice)")
    parser.add_argument("--config", type=Path, metavar="FILE", help="the settings file that `add` changes; keeps a backup")


def run(args: argparse.Namespace) -> int:
    """Print the key and the entry for the settings, or write it. Returns 2 for a key or a name that is not valid, 1 for a file
    that cannot be changed."""
    from responses_gateway.settings import ApiKey, SettingsError
    from responses_gateway.settings.keys import SHORTEST_KEY, hash_of, new_key
    from responses_gateway.settings.load import load

    if args.action == "add" and args.config is None:
        print("responses-gateway: add needs --config FILE", file=sys.stderr)
        return 2
    key = sys.stdin.readline().strip() if args.action == "hash" else new_key()
    if len(key) < SHORTEST_KEY:
        print(f"responses-gateway: a key needs at least {SHORTEST_KEY} characters", file=sys.stderr)
        return 2
    hashed = hash_of(key)
    try:
        load({"api_keys": {args.name: hashed}}, None, {})  # checks the name
    except SettingsError as error:
        print(f"responses-gateway: --name: {str(error).rpartition(': ')[2]}", file=sys.stderr)
        return 2
    if args.action == "add":
        return _add(args.config, args.name, key, hashed)
    if args.action == "new":
        print(f"The key, for the client (it is shown this once):\n\n  {key}\n")
        print("Its entry in the gateway's settings file, where only the hash is needed:\n")
    limits = ", ".join(name for name in ApiKey.model_fields if name != "hash")
    print(f"api_keys:\n  {args.name}:\n    hash: {hashed}\n    # optional limits for this key: {limits}")
    return 0


def _add(path: Path, name: str, key: str, hashed: str) -> int:
    from responses_gateway.commands.client_files import change
    from responses_gateway.commands.gateway_offer import Unusable

    try:
        done = change(path, lambda text: (_with_entry(text, name, hashed), ""))
    except Unusable as error:
        print(f"responses-gateway: {path}: {error}", file=sys.stderr)
        return 1
    print(f"The key, for {name} (it is shown this once):\n\n  {key}\n\n{done}")
    print("A gateway that runs takes it after: responses-gateway reload")
    return 0


def _with_entry(before: str, name: str, hashed: str) -> str:
    """Return a settings file with one more key, and all else as it was. Raise `Unusable`."""
    import yaml

    from responses_gateway.commands.gateway_offer import Unusable

    text = before if before.endswith("\n") or not before else f"{before}\n"
    try:
        settings = yaml.safe_load(text) or {}
        keys = settings.get("api_keys") or {}
        if name in keys:
            raise Unusable(f"api_keys has an entry {name} already: choose another name, or delete it")
        place = _ENTRIES.search(text)
        indentation = (place[1] if place is not None else "") or "  "
        entry = f"{indentation}{name}:\n{indentation}{indentation}hash: {hashed}\n"
        end = len(text) if place is None else place.end()
        changed = text[:end] + ("api_keys:\n" if place is None else "") + entry + text[end:]
        is_right = (place is not None or "api_keys" not in settings) and yaml.safe_load(changed) == {
            **settings,
            "api_keys": {**keys, name: {"hash": hashed}},
        }
    except (yaml.YAMLError, AttributeError, TypeError, ValueError, RecursionError):
        raise Unusable("it is no settings file that can be read: see serve --check") from None
    if not is_right:
        raise Unusable(f"its api_keys are not written one below the other: add {name}: {hashed} yourself")
    return changed
