"""The gateways of this user that run on this machine, and orders to them at their control sockets."""

from __future__ import annotations

import argparse
import os
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, NamedTuple
from urllib.parse import urlsplit

import msgspec

from responses_gateway.commands import Unusable
from responses_gateway.commands.argument_types import count, port
from responses_gateway.server.process.control import Introduction, control_folder

_TIMEOUT = 5.0  # seconds for a gateway to introduce itself; one that is blocked for longer is left out
# Seconds after which a socket that refuses connections was left by a killed process. A younger one may be about to listen.
_SETTLED = 60.0


class RunningGateway(NamedTuple):
    """A gateway, and the connection that takes one order."""

    introduction: Introduction
    connection: socket.socket
    lines: BinaryIO

    @property
    def title(self) -> str:
        return f"the gateway at {self.introduction.url} (process {self.introduction.pid})"

    def send(self, order: str) -> None:
        """Send an order. A gateway that has ended meanwhile closes the connection, as its answer shows."""
        with suppress(OSError):
            self.connection.sendall(order.encode() + b"\n")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what names one of several gateways."""
    parser.add_argument("--port", type=port, metavar="PORT", help="port of the gateway, if several are running")
    parser.add_argument("--pid", type=count, metavar="PID", help="process id of the gateway, or of its workers' parent")


@contextmanager
def chosen(args: argparse.Namespace) -> Iterator[RunningGateway]:
    """Give the only gateway that runs, or the one that the arguments name. Raise `Unusable`."""
    try:
        folder = control_folder(os.environ)
    except OSError as error:
        raise Unusable(str(error)) from None
    with ExitStack() as stack:
        gateways = [gateway for each in _connections(folder) if (gateway := _introduced(each, stack)) is not None]
        yield _only_one(gateways, args, folder)


def _only_one(gateways: list[RunningGateway], args: argparse.Namespace, folder: Path) -> RunningGateway:
    wanted = [gateway for gateway in gateways if _is_named(gateway.introduction, args)]
    if len(wanted) == 1:
        return wanted[0]
    listed = "".join(f"\n  {gateway.introduction.url} (process {gateway.introduction.pid})" for gateway in gateways)
    if wanted:
        raise Unusable(f"several gateways are running: choose one with --port or --pid{listed}")
    if gateways:
        raise Unusable(f"no gateway is running there; these are:{listed}")
    raise Unusable(
        f"this user has no running gateway on this machine ({folder} is empty): see `responses-gateway docs running`"
    )


def _connections(folder: Path) -> list[socket.socket]:
    """Return a connection to each gateway that takes orders in this folder. Delete what processes left that were killed."""
    connections = []
    for path in sorted(folder.glob("*.sock")):
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.connect(str(path))
        except OSError:
            connection.close()
            with suppress(OSError):
                if time.time() - path.stat().st_mtime > _SETTLED:
                    path.unlink()
        else:
            connections.append(connection)
    return connections


def _introduced(connection: socket.socket, stack: ExitStack) -> RunningGateway | None:
    """Return what the other end says of itself; the stack closes the connection."""
    stack.enter_context(connection).settimeout(_TIMEOUT)
    lines = stack.enter_context(connection.makefile("rb"))
    try:
        introduction = msgspec.json.decode(lines.readline(), type=Introduction)
    except (OSError, msgspec.DecodeError):
        return None
    return RunningGateway(introduction, connection, lines)


def _is_named(introduction: Introduction, args: argparse.Namespace) -> bool:
    ports = {urlsplit(url).port for url in introduction.url.split(",") if not url.startswith("unix:")}
    return (args.port is None or args.port in ports) and args.pid in (None, introduction.pid)
