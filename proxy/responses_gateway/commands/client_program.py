"""The client that a command runs: its arguments, where it is, its environment, and its life in the foreground."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import NamedTuple
from urllib.parse import urlsplit

from responses_gateway.commands import Unusable
from responses_gateway.commands.client_files import user_home
from responses_gateway.commands.gateway_offer import is_on_this_machine
from responses_gateway.commands.own_gateway import SWITCHES, VALUED, add_gateway_arguments

# How the name of a file ends that has a session: with its id.
_SESSION_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$")
_NOT_INSTALLED = 127  # the exit status where the program is not installed, as shells report it


class ClientProgram(NamedTuple):
    """A client that a command runs. `program` is its name on the search path, `title` that for people, `package` that of npm.
    `example` is an argument that makes it work without a terminal; `default_model` and `home` are for the help."""

    program: str
    title: str
    package: str
    example: str
    default_model: str
    home: str

    def split_arguments(self, argv: Sequence[str]) -> tuple[list[str], list[str]]:
        """Return our arguments, and those of the client from the first one on that is not ours. A `--` between is left out."""
        valued = (*VALUED, f"--{self.program}-home")
        place = 0
        while place < len(argv):
            argument = argv[place]
            if argument in valued:
                place += 2
            elif argument in SWITCHES or argument.partition("=")[0] in valued:
                place += 1
            else:
                break
        rest = list(argv[place:])
        return list(argv[:place]), rest[1:] if rest[:1] == ["--"] else rest

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add our arguments; what follows them is for the client."""
        name = self.program
        parser.usage = f"responses-gateway {name} [--backend URL] [OPTION …] [ARGUMENT OF {self.title.upper()} …]"
        parser.epilog = (
            f"The first argument that is not listed here, and all arguments after it, are passed on to {self.title}, for "
            f"example: responses-gateway {name} {self.example} 'fix the tests'. The exit status is that of {self.title}."
        )
        add_gateway_arguments(parser, self.default_model)
        parser.add_argument(
            f"--{name}-home",
            type=Path,
            metavar="DIR",
            help=f"folder of {self.title}'s settings and sessions (default: {self.home})",
        )

    def find(self) -> str:
        """Return its path. Raises `Unusable` if it is not installed."""
        path = find_program(self.program)
        if path is None:
            raise Unusable(f"{self.title} is not installed: npm install -g {self.package}", status=_NOT_INSTALLED)
        return path


def find_program(name: str) -> str | None:
    """Return the path of a client: from the search path, else where its `scripts/install-…` puts it."""
    installed = Path(".cache") / name / "node_modules" / ".bin" / name
    here = (folder / installed for folder in (Path.cwd(), Path(__file__).parents[3]))
    return shutil.which(name) or next((str(path) for path in here if path.exists()), None)


def state_folder(name: str, environ: Mapping[str, str]) -> Path:
    """Return the folder of a client that is kept from one run to the next, apart from the user's own."""
    state = environ.get("XDG_STATE_HOME") or user_home() / ".local" / "state"
    return Path(state) / "responses-gateway" / name


def tell_how_to_go_on(program: str, own: Sequence[str], resume: str, sessions: Iterable[Path], since: float) -> None:
    """Print the command that goes on with the session that was written last, if one was since that Unix time in seconds. What
    the client itself prints would look in another home. `own` are our arguments, `resume` is the client's word for it."""
    times = [(path.stat().st_mtime, path) for path in sessions]
    written, path = max(times, default=(0.0, Path()))
    match = _SESSION_ID.search(path.stem)
    if written >= since and match is not None:
        command = shlex.join(["responses-gateway", program, *own, resume, match[0]])
        print(f"To continue this session, run: {command}", file=sys.stderr)


def environment_without_proxy(url: str) -> dict[str, str]:
    """Return our environment, with which no HTTP proxy is used for a gateway on this machine."""
    environment = dict(os.environ)
    if is_on_this_machine(url):
        for name in ("NO_PROXY", "no_proxy"):
            environment[name] = ",".join(filter(None, [os.environ.get(name), urlsplit(url).hostname]))
    return environment


def run_in_foreground(command: list[str], environment: dict[str, str]) -> int:
    """Run a program in the foreground, where it gets the terminal and its signals. Returns its exit status."""
    process = subprocess.Popen(command, env=environment)

    def pass_on(number: int, _frame: FrameType | None) -> None:
        process.send_signal(number)

    before = {
        signal.SIGTERM: signal.signal(signal.SIGTERM, pass_on),
        signal.SIGHUP: signal.signal(signal.SIGHUP, pass_on),
        signal.SIGINT: signal.signal(signal.SIGINT, signal.SIG_IGN),
    }
    try:
        status = process.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return 128 - status if status < 0 else status  # killed by a signal: as a shell reports it
