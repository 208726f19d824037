"""`responses-gateway completion`: print a script with which a shell completes commands, options and their values."""

from __future__ import annotations

import argparse

# Where each shell looks for the completions of a command.
_PLACES = {
    "bash": "~/.local/share/bash-completion/completions/responses-gateway",
    "zsh": '"${fpath[1]}/_responses-gateway"',
    "fish": "~/.config/fish/completions/responses-gateway.fish",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the shell, and where its script belongs."""
    parser.add_argument("shell", choices=list(_PLACES), help="the shell that will use the script")
    lines = "\n".join(f"  responses-gateway completion {shell} > {place}" for shell, place in _PLACES.items())
    parser.epilog = f"Write the script into the folder of your shell, again after each upgrade; new shells use it:\n\n{lines}"
    parser.formatter_class = argparse.RawDescriptionHelpFormatter


def run(args: argparse.Namespace) -> int:
    """Print the script. Returns 0."""
    import shtab

    parser, subparsers = args.parsers()
    for subparser in subparsers.values():
        subparser.complete_paths(shtab.FILE)
    print(shtab.complete(parser, shell=args.shell))
    return 0
