"""`responses-gateway reload`: have a running gateway read its settings file again, as SIGHUP does, and say what has changed."""

from __future__ import annotations

import argparse

import msgspec

from responses_gateway.commands import Unusable, running_gateways
from responses_gateway.server.process.control import RELOAD

add_arguments = running_gateways.add_arguments


def run(args: argparse.Namespace) -> int:
    """Print what takes effect, and when. Raises `Unusable` if nothing has changed because a setting is wrong, or if no gateway
    runs."""
    with running_gateways.chosen(args) as gateway:
        gateway.send(RELOAD)
        gateway.connection.settimeout(None)  # it reads certificates, tokenizers and tables of models
        try:
            outcome = msgspec.json.decode(gateway.lines.readline(), type=str | tuple[list[str], list[str], list[str]])
        except (OSError, msgspec.DecodeError):
            outcome = "It ended while it was reading the file."
    if isinstance(outcome, str):
        raise Unusable(f"{gateway.title} has changed nothing:\n{outcome}")
    at_once, rolling, restart = map(", ".join, outcome)
    has_certificate = gateway.introduction.url.startswith("https:")
    unchanged = "no setting has changed, the certificate was read again" if has_certificate else "nothing has changed"
    print(f"Reloaded {gateway.title}: {at_once or ('nothing yet' if rolling or restart else unchanged)}")
    if rolling:
        print(f"After a rolling restart (kill -USR2 {gateway.introduction.pid}): {rolling}")
    if restart:
        print(f"After a restart (responses-gateway stop, then serve): {restart}")
    return 0
