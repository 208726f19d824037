"""The command line: `responses-gateway COMMAND …`.

Each command is a module of `commands` with `add_arguments(parser)` and `run(args) -> exit status`. Only the module of
the given command is imported, so that `--help` and `--version` are fast. A command that runs another program also has
`split_arguments(argv) -> (its own, those of the program)`; the latter become `args.passed_on`. `args.parsers()` is the
parser with the arguments of all commands, and theirs by name."""

from __future__ import annotations

import argparse
import gc
import os
import re
import signal
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any

from responses_gateway.commands import Unusable, printable
from responses_gateway.commands.help_parser import HelpParser

# What imports make stays: with its usual threshold the collector would look through it a hundred times while a command starts.
# A plain `serve` makes 150,000 objects until it listens.
_GC_THRESHOLD = 250_000
_INTERRUPTED = 130  # the exit status after Ctrl-C, as shells report it

# What each command does, in one line.
COMMANDS = {
    "serve": "run the gateway in front of a Chat Completions server",
    "reload": "make a running gateway reload its settings file, and show what has changed",
    "stop": "stop a gateway that is running on this machine, and wait until it has ended",
    "simulate": "run a Chat Completions server that behaves like vLLM, without a model",
    "demo": "show one response of a simulated model in the terminal, through the gateway",
    "check": "send a request to a Responses endpoint and check its stream against the rules of the API",
    "codex": "run Codex with the model behind a gateway; a gateway is started if none is running",
    "codex-config": "print or write the Codex configuration for a gateway",
    "claude": "run Claude Code with the model behind a gateway; a gateway is started if none is running",
    "claude-config": "print or write the Claude Code environment for a gateway",
    "doctor": "examine a backend: what it supports, what to change there, and which settings fit it",
    "key": "generate, add, list and revoke API keys of the gateway's clients",
    "completion": "print the completion script for a shell",
    "docs": "print a page of the documentation, or the description of a setting",
    "replay": "replay recorded exchanges with this version, and show the differences",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line. Returns the exit status: 0 for success, 2 for wrong usage, others as the command says."""
    thresholds = gc.get_threshold()
    gc.set_threshold(_GC_THRESHOLD, *thresholds[1:])
    if sys.stderr is None:  # who starts it has closed it: `2>&-`
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    try:
        status = _run(sys.argv[1:] if argv is None else argv)
        print(end="", flush=True)
        return status
    except KeyboardInterrupt:  # while the command works
        return _INTERRUPTED
    except BrokenPipeError:  # `| head` does not read its output to the end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # because Python writes the rest when it ends
        return 0
    finally:
        gc.set_threshold(*thresholds)


def _run(argv: Sequence[str]) -> int:
    try:
        with _ended_by_interrupts():
            command, args = parse(argv)
    except SystemExit as ended:  # argparse has printed its message: --help, --version, wrong usage
        return ended.code if isinstance(ended.code, int) else 1
    try:
        status: int = command.run(args)
    except Unusable as error:
        print("responses-gateway:", "\n".join(map(printable, str(error).splitlines())), file=sys.stderr)
        status = error.status
    return status


@contextmanager
def _ended_by_interrupts() -> Iterator[None]:
    """Let Ctrl-C end the process while the block imports modules, some of which would swallow a `KeyboardInterrupt`."""
    usual = signal.getsignal(signal.SIGINT) in (signal.SIG_DFL, signal.default_int_handler)  # else it is ignored, or handled
    if not usual or threading.current_thread() is not threading.main_thread():
        yield
        return
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def parse(argv: Sequence[str]) -> tuple[ModuleType, argparse.Namespace]:
    name = next((argument for argument in argv if argument in COMMANDS), None)
    command = _module(name) if name else None
    passed_on: list[str] = []
    own: list[str] = []
    if name is not None and command is not None and hasattr(command, "split_arguments"):
        start = argv.index(name) + 1
        own, passed_on = command.split_arguments(argv[start:])
        argv = [*argv[:start], *own]
    parser, subparsers = _parsers([name] if name else [])
    reporting = subparsers[name] if name else parser  # wrong usage, with its usage line
    if name is None and argv and not argv[0].startswith("-"):
        parser.error(_unknown_command(argv[0]))
    args, unknown = parser.parse_known_args(argv)
    if unknown:
        flags = [argument for argument in unknown if argument.startswith("-")]  # the others may be their values
        reporting.error("\n".join(_unknown_argument(argument, reporting) for argument in flags or unknown[:1]))
    if command is None:
        parser.print_help(sys.stderr)
        parser.error("no command was given; the commands are listed above")
    args.passed_on = passed_on
    args.own = own
    args.parsers = lambda: _parsers(COMMANDS)
    return command, args


def _parsers(complete: Iterable[str]) -> tuple[HelpParser, dict[str, HelpParser]]:
    """Return the parser of the command line, and those of its commands, of which these have all their arguments."""
    parser = HelpParser(
        prog="responses-gateway",
        description="Serve OpenAI's Responses API and Anthropic's Messages API from any Chat Completions server, for Codex, "
        "Claude Code and the SDKs.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and its commit, and exit")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    subparsers = {}
    for name, line in COMMANDS.items():
        description = f"{line[0].upper()}{line[1:]}."
        subparsers[name] = commands.add_parser(name, help=line, description=description, allow_abbrev=False)
    for name in complete:
        _module(name).add_arguments(subparsers[name])
    return parser, subparsers


def _module(name: str) -> ModuleType:
    return import_module(f"responses_gateway.commands.{name.replace('-', '_')}")


class _Version(argparse.Action):
    """Prints the version. The commit may have to be asked from git, which only this option does."""

    def __call__(self, parser: argparse.ArgumentParser, *_unused: Any) -> None:
        from responses_gateway.version import version_line

        print(f"responses-gateway {version_line()}")
        parser.exit()


def _unknown_command(name: str) -> str:
    from responses_gateway.settings import suggestion

    return f"there is no command {name}{suggestion(name, COMMANDS)}; --help lists the commands"


def _unknown_argument(argument: str, parser: argparse.ArgumentParser) -> str:
    from responses_gateway.settings import Settings, suggestion, variable

    name = argument.partition("=")[0]
    field = name[2:].replace("-", "_") if name.startswith("--") else ""
    if parser.prog.endswith(" serve") and field in Settings.model_fields:  # a mapping, since all others are flags
        return f"{name} is no flag: give {field} in the file of --config, or the variable {variable(field)}"
    flags = re.findall(r"--[a-z][a-z-]*", parser.format_help())
    return f"unknown argument {argument}{suggestion(name, flags)}"
