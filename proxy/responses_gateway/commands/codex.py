"""`responses-gateway codex`: run Codex on the model behind a gateway, with settings and sessions of its own."""

from __future__ import annotations

import argparse
import os
import subprocess
import time
from collections.abc import Mapping
from typing import Any

from responses_gateway.commands import client_program
from responses_gateway.commands.codex_config import PROVIDER, configuration, preferred, warn, write_own
from responses_gateway.commands.gateway_offer import served_model
from responses_gateway.commands.own_gateway import offer_at, run_with_gateway

_CLIENT = client_program.ClientProgram(
    "codex",
    "Codex",
    "@openai/codex",
    "exec",
    "the one used last if it is served, else the first one served",
    "separate from ~/.codex",
)
split_arguments = _CLIENT.split_arguments
add_arguments = _CLIENT.add_arguments

# Codex's background server would outlive it, with the address of a gateway that has ended, and copy itself into the home.
_NO_DAEMON = "--no-daemon"
# Commands of Codex that need no terminal.
_WITHOUT_TERMINAL = frozenset({"exec", "e", "review"})
_HELP_TIMEOUT = 10.0  # in seconds


def run(args: argparse.Namespace) -> int:
    """Run Codex. Returns its exit status. Raises `Unusable`, with the status 127 if it is not installed."""
    binary = _CLIENT.find()
    home = (args.codex_home or client_program.state_folder("codex", os.environ)).absolute()

    def start(url: str) -> int:
        path = home / "config.toml"
        offer = offer_at(url, args)
        model = served_model(args.model, offer) or preferred(offer.models, path)
        config = configuration(url, model, args.env_key, web_search=offer.web_search)
        warn(model, offer)
        write_own(path, config)
        command = [binary, *_without_daemon(binary), *_overrides(config), *args.passed_on]
        began = time.time()
        status = client_program.run_in_foreground(
            command, {**client_program.environment_without_proxy(url), "CODEX_HOME": str(home)}
        )
        if not _WITHOUT_TERMINAL.intersection(args.passed_on[:1]):
            client_program.tell_how_to_go_on("codex", args.own, "resume", (home / "sessions").rglob("*.jsonl"), began)
        return status

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
