"""`responses-gateway key`: generate an API key for a client of the gateway, or hash an existing one; add a key to the settings
file, or to a gateway that runs, whose keys can be listed and removed."""

from __future__ import annotations

import argparse
import os
import re
import sys
from pathlib import Path

from responses_gateway.commands import Unusable

# The name of a client that nobody has named.
_NAME = "alice"
# Actions that are for a gateway that runs alone.
_AT_GATEWAYS = ("list", "remove")
# The line of the settings file behind which entries stand, with the indentation of the first one.
_ENTRIES = re.compile(r"^api_keys:[ \t]*(?:#.*)?\n(?:[ \t]*(?:#.*)?\n)*(?=( *))", re.MULTILINE)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the action, and the name of the client."""
    parser.usage = (
        "responses-gateway key {new,hash,add,list,remove} [--name NAME] [--config FILE | --url URL] [--limit FIELD=VALUE]"
    )
    parser.add_argument(
        "action",
        choices=["new", "hash", "add", *_AT_GATEWAYS],
        help="new: generate a key, and print it with its entry for the settings file; hash: print the entry for a key that "
        "is read from standard input, which keeps it out of the shell's history; add: generate a key in the settings file "
        "(--config) or at a running gateway (--url); list, remove: show the keys of a running gateway, or revoke one",
    )
    parser.add_argument("--name", help=f"client's name in settings, logs and metrics (default for new, hash, add: {_NAME})")
    parser.add_argument("--config", type=Path, metavar="FILE", help="with add: the settings file to change; a backup is kept")
    parser.add_argument(
        "--url",
        help="with add, list and remove: URL of a running gateway (default for list and remove: the usual port of this "
        "machine); its admin key is read from the variable RESPONSES_GATEWAY_ADMIN_KEY",
    )
    parser.add_argument(
        "--limit",
        action="append",
        default=[],
        metavar="FIELD=VALUE",
        help="with add --url: a limit of the key, its team or its models, such as tokens_per_day=100000; can be repeated",
    )


def run(args: argparse.Namespace) -> int:
    """Do what the action says. Returns 0. Raises `Unusable`."""
    problem = _misuse(args)
    if problem:
        raise Unusable(problem, status=2)
    args.name = args.name or _NAME
    if args.action in _AT_GATEWAYS or args.url is not None:
        _at_gateway(args)
    else:
        _for_settings(args)
    return 0


def _misuse(args: argparse.Namespace) -> str:
    """Return what is wrong with the arguments together; an empty text for nothing."""
    is_for_gateway = args.url is not None or args.action in _AT_GATEWAYS
    if args.action == "add" and (args.config is None) == (args.url is None):
        return "add needs either --config FILE or --url URL"
    if args.action == "remove" and args.name is None:
        return "remove needs --name NAME"
    if is_for_gateway and (args.action not in ("add", *_AT_GATEWAYS) or args.config is not None):
        return "--url is for add, list and remove; --config is for add"
    if args.limit and not (args.action == "add" and is_for_gateway):
        return "--limit is for add --url: in a settings file, write the limits below the key's hash"
    return ""


def _at_gateway(args: argparse.Namespace) -> None:
    from responses_gateway.commands.gateway_keys import GatewayKeys, read_fields
    from responses_gateway.commands.gateway_offer import DEFAULT_URL, read_url

    keys = GatewayKeys.of_environment(read_url(args.url or DEFAULT_URL), os.environ)
    name = args.name
    if args.action == "list":
        print("\n".join(keys.lines()) or "There are no keys.")
    elif args.action == "remove":
        keys.remove(name)
        print(f"Revoked the key of {name}.")
    else:
        print(f"The key for {name}, which is shown only once:\n\n  {keys.add(name, read_fields(args.limit))}\n")


def _for_settings(args: argparse.Namespace) -> None:
    """Print the key and the entry for the settings, or write it."""
    from responses_gateway.settings import ApiKey, SettingsError
    from responses_gateway.settings.keys import SHORTEST_KEY, hash_of, new_key
    from responses_gateway.settings.load import load

    key = sys.stdin.readline().strip() if args.action == "hash" else new_key()
    if len(key) < SHORTEST_KEY:
        raise Unusable(f"a key needs at least {SHORTEST_KEY} characters", status=2)
    hashed = hash_of(key)
    try:
        load({"api_keys": {args.name: hashed}}, None, {})  # checks the name
    except SettingsError as error:
        raise Unusable(f"--name: {str(error).rpartition(': ')[2]}", status=2) from None
    if args.action == "add":
        _add(args.config, args.name, key, hashed)
        return
    if args.action == "new":
        print(f"The key for the client, which is shown only once:\n\n  {key}\n")
        print("Add this entry to the gateway's settings file, which needs only the hash:\n")
    limits = ", ".join(name for name in ApiKey.model_fields if name != "hash")
    print(f"api_keys:\n  {args.name}:\n    hash: {hashed}\n    # optional limits for this key: {limits}")


def _add(path: Path, name: str, key: str, hashed: str) -> None:
    from responses_gateway.commands.client_files import change

    try:
        done = change(path, lambda text: (_with_entry(text, name, hashed), ""))
    except Unusable as error:
        raise Unusable(f"{path}: {error}") from None
    print(f"The key for {name}, which is shown only once:\n\n  {key}\n\n{done}")
    print("A running gateway reads it with: responses-gateway reload")


def _with_entry(before: str, name: str, hashed: str) -> str:
    """Return a settings file with one more key, and all else as it was. Raise `Unusable`."""
    import yaml

    text = before if before.endswith("\n") or not before else f"{before}\n"
    try:
        settings = yaml.safe_load(text) or {}
        keys = settings.get("api_keys") or {}
        if name in keys:
            raise Unusable(f"api_keys already has an entry {name}: choose another name, or delete that entry")
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
        raise Unusable("the file is not valid: `responses-gateway serve --config FILE --check` says why") from None
    if not is_right:
        raise Unusable(f"its api_keys are not written one below the other: add this entry yourself: {name}: {hashed}")
    return changed
