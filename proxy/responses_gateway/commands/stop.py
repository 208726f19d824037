"""`responses-gateway stop`: stop a gateway that runs on this machine, as SIGTERM does, and wait for its end."""

from __future__ import annotations

import argparse
import sys

from responses_gateway.commands import running_gateways
from responses_gateway.server.process.control import STOP, STOP_NOW

# Seconds after which people want to know what they are waiting for.
_SOON = 1.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what names one of several gateways, and whether to wait for running responses."""
    running_gateways.add_arguments(parser)
    parser.add_argument("--now", action="store_true", help="end running responses as failed instead of waiting for them")


def run(args: argparse.Namespace) -> int:
    """Return when the gateway has ended; 1 if none runs."""
    try:
        with running_gateways.chosen(args) as gateway:
            _stop(gateway, STOP_NOW if args.now else STOP)
    except running_gateways.NoGateway as error:
        return running_gateways.report(error)
    return 0


def _stop(gateway: running_gateways.RunningGateway, order: str) -> None:
    gateway.order(order)
    if not _ended(gateway, _SOON):
        print(
            f"Waiting for running responses, {gateway.introduction.stop_timeout:g} s at most. `responses-gateway stop --now` "
            "ends them at once.",
            file=sys.stderr,
        )
        _ended(gateway, None)
    print(f"Stopped {gateway.title}.")


def _ended(gateway: running_gateways.RunningGateway, seconds: float | None) -> bool:
    """Wait for the end of a gateway, which closes the connection; None for any time. Return whether it has ended."""
    gateway.connection.settimeout(seconds)
    try:
        gateway.connection.recv(1)
    except TimeoutError:
        return False
    except OSError:
        pass
    return True
