"""`responses-gateway codex`: run Codex on the model behind a gateway, with settings and sessions of its own."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from responses_gateway.commands.client_program import (
    NOT_INSTALLED,
    environment_without_proxy,
    find_program,
    run_in_foreground,
    split_at_first_unknown,
    state_folder,
)
from responses_gateway.commands.codex_config import PROVIDER, configuration, preferred, warn, write
from responses_gateway.commands.own_gateway import SWITCHES, VALUED, add_gateway_arguments, offer_at, run_with_gateway

# Codex's background server would outlive it, with the address of a gateway that has ended, and copy itself into the home.
_NO_DAEMON = "--no-daemon"
_HELP_TIMEOUT = 10.0  # in seconds


def split_arguments(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return our arguments, and those of Codex."""
    return split_at_first_unknown(argv, (*VALUED, "--codex-home"), SWITCHES)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add our arguments; what follows them is for Codex."""
    parser.usage = "responses-gateway codex [--backend URL] [OPTION …] [ARGUMENT OF CODEX …]"
    parser.epilog = (
        "The first argument that is not one of these, and all after it, go to Codex: responses-gateway codex exec 'fix the "
        "tests'. The exit status is that of Codex."
    )
    add_gateway_arguments(parser, "the last one picked if it is served, else the first one served")
    parser.add_argument(
        "--codex-home",
        type=Path,
        metavar="DIR",
        help="folder of Codex's settings and sessions (default: separate from ~/.codex)",
    )


def run(args: argparse.Namespace) -> int:
    """Run Codex. Returns its exit status, 127 if it is not installed, 1 without a gateway, 2 for a wrong URL."""
    binary = find_program("codex")
    if binary is None:
        print("responses-gateway: Codex is not installed: npm install -g @openai/codex", file=sys.stderr)
        return NOT_INSTALLED
    home = (args.codex_home or state_folder("codex", os.environ)).absolute()

    def start(url: str) -> int:
        path = home / "config.toml"
        offer = offer_at(url, args)
        model = args.model or preferred(offer.models, path)
        config = configuration(url, model, args.env_key, web_search=offer.web_search)
        warn(offer)
        write(path, config)
        command = [binary, *_without_daemon(binary), *_overrides(config), *args.passed_on]
        return run_in_foreground(command, {**environment_without_proxy(url), "CODEX_HOME": str(home)})

    return run_with_gateway(args, home, start)


def _overrides(config: Mapping[str, Any]) -> list[str]:
    """Return arguments that keep Codex with its gateway, since another one may write its own into the file meanwhile."""
    provider = config["model_providers"][PROVIDER]
    keys = ("base_url", "model_catalog_url")
    return [word for key in keys for word in ("-c", f'model_providers.{PROVIDER}.{key}="{provider[key]}"')]


def _without_daemon(binary: str) -> list[str]:
    """Return the flag that keeps Codex from starting its background server, if this version has it."""
    try:
        done = subprocess.run([binary, "--help"], capture_output=True, text=True, timeout=_HELP_TIMEOUT, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [_NO_DAEMON] if _NO_DAEMON in done.stdout else []
