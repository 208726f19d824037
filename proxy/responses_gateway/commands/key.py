"""`responses-gateway key`: generate an API key for a client of the gateway, or hash an existing one."""

from __future__ import annotations

import argparse
import secrets
import sys

# Random bytes in a key: 256 bits.
_BYTES = 32
# By this prefix people, and scanners for leaked keys, recognise one.
_PREFIX = "rp_"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the action, and the name of the client."""
    parser.usage = "responses-gateway key {new,hash} [--name NAME]"
    parser.add_argument(
        "action",
        choices=["new", "hash"],
        help="new: generate a key, and print it with its entry for the settings; hash: print the entry for a key read from "
        "standard input, so that it is not in the history of a shell",
    )
    parser.add_argument("--name", default="alice", help="name of the client in settings, logs and metrics (default: alice)")


def run(args: argparse.Namespace) -> int:
    """Print the key and the entry for the settings. Returns 2 for a key or a name that is not valid."""
    from responses_gateway.settings import ApiKey, SettingsError
    from responses_gateway.settings.keys import SHORTEST_KEY, hash_of
    from responses_gateway.settings.load import load

    key = _PREFIX + secrets.token_urlsafe(_BYTES) if args.action == "new" else sys.stdin.readline().strip()
    if len(key) < SHORTEST_KEY:
        print(f"responses-gateway: a key needs at least {SHORTEST_KEY} characters", file=sys.stderr)
        return 2
    hashed = hash_of(key)
    try:
        load({"api_keys": {args.name: hashed}}, None, {})  # checks the name
    except SettingsError as error:
        print(f"responses-gateway: --name: {str(error).rpartition(': ')[2]}", file=sys.stderr)
        return 2
    if args.action == "new":
        print(f"The key, for the client (it is shown this once):\n\n  {key}\n")
        print("Its entry in the gateway's settings file, where only the hash is needed:\n")
    limits = ", ".join(name for name in ApiKey.model_fields if name != "hash")
    print(f"api_keys:\n  {args.name}:\n    hash: {hashed}\n    # optional limits for this key: {limits}")
    return 0
