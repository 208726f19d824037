"""`responses-gateway stop`: stop a gateway that runs on this machine, as SIGTERM does, and wait for its end."""

from __future__ import annotations

import argparse
import select
import sys

from responses_gateway.commands import running_gateways
from responses_gateway.server.process.control import STOP, STOP_NOW

_SOON = 1.0  # seconds after which people want to know what they are waiting for


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what names one of several gateways, and whether to wait for running responses."""
    running_gateways.add_arguments(parser)
    parser.add_argument("--now", action="store_true", help="end running responses as failed, instead of waiting for them")


def run(args: argparse.Namespace) -> int:
    """Return when the gateway has ended. Raises `Unusable` if none runs."""
    with running_gateways.chosen(args) as gateway:
        gateway.send(STOP_NOW if args.now else STOP)
        if not select.select([gateway.connection], [], [], _SOON)[0]:
            longest = f"{gateway.introduction.stop_timeout:g} s at most"
            advice = "`responses-gateway stop --now` ends them at once."
            print(f"Waiting for running responses ({longest}). {advice}", file=sys.stderr)
            select.select([gateway.connection], [], [])  # its end closes the connection
        print(f"Stopped {gateway.title}.")
    return 0
