"""`responses-gateway claude`: run Claude Code on the model behind a gateway."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from responses_gateway.commands import client_program
from responses_gateway.commands.claude_config import OTHER_CREDENTIALS, environment, warn, with_key
from responses_gateway.commands.gateway_offer import Offer, key_in, served_model
from responses_gateway.commands.own_gateway import offer_at, run_with_gateway

_CLIENT = client_program.ClientProgram(
    "claude", "Claude Code", "@anthropic-ai/claude-code", "-p", "the first one served", "separate from ~/.claude"
)
split_arguments = _CLIENT.split_arguments
add_arguments = _CLIENT.add_arguments

# Set to nothing for Claude Code, whose settings files may have them.
_LEFT_OUT = ("ANTHROPIC_API_KEY", "CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX", "CLAUDE_CODE_USE_FOUNDRY")

# How arguments begin that choose a permission mode, and those with which nobody sits at a terminal.
_MODES = ("--permission-mode", "--dangerously-skip-permissions")
_WITHOUT_TERMINAL = frozenset({"-p", "--print"})
_ASKS = (
    "Claude Code asks you before each command (permission mode `default`). Its auto mode needs a gateway that judges tool "
    "calls: see `responses-gateway docs safeguards_model`"
)
# The variable from which Claude Code reads its key.
_KEY = "CLAUDE_GATEWAY_KEY"


def run(args: argparse.Namespace) -> int:
    """Run Claude Code. Returns its exit status. Raises `Unusable`, with the status 127 if it is not installed."""
    binary = _CLIENT.find()
    key = key_in(args.env_key, os.environ)
    home = (args.claude_home or client_program.state_folder("claude", os.environ)).absolute()

    def start(url: str) -> int:
        if args.claude_home is None:
            _answer_first_questions(home)
        offer = offer_at(url, args)
        model = served_model(args.model, offer) or offer.models[0]
        variables = environment(url, model, offer)
        warn(model, offer)
        of_client = {**_kept(client_program.environment_without_proxy(url)), **with_key(variables, key), _KEY: key or ""}
        of_client["CLAUDE_CONFIG_DIR"] = str(home)
        asks = _asks_for_each(args.passed_on, offer)
        in_terminal = not _WITHOUT_TERMINAL.intersection(args.passed_on)
        if asks and in_terminal and sys.stderr.isatty():
            print(f"responses-gateway: {_ASKS}", file=sys.stderr)
        overrides = _overrides(variables, has_key=bool(key), note=_ASKS if asks else "")
        mode = ["--permission-mode", "default"] if asks else []
        began = time.time()
        status = client_program.run_in_foreground([binary, *overrides, *mode, *args.passed_on], of_client)
        if in_terminal:
            client_program.tell_how_to_go_on("claude", args.own, "--resume", (home / "projects").glob("*/*.jsonl"), began)
        return status

    return run_with_gateway(args, home, start)


def _answer_first_questions(home: Path) -> None:
    """Let a home of our own begin as one whose user has been asked for a theme and a login: neither is needed here."""
    notes = home / ".claude.json"
    if not notes.exists():
        home.mkdir(parents=True, exist_ok=True)
        notes.write_text(json.dumps({"hasCompletedOnboarding": True}), encoding="utf-8")


def _asks_for_each(passed_on: Sequence[str], offer: Offer) -> bool:
    """Tell whether Claude Code is to ask before each command, because nobody judges them: in its auto mode, its own default,
    the first one would end in an alert. A mode that the user has chosen stays."""
    return not offer.judges_calls and not any(argument.startswith(_MODES) for argument in passed_on)


def _kept(environ: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environ.items() if not OTHER_CREDENTIALS.fullmatch(name)}


def _overrides(variables: Mapping[str, str], *, has_key: bool, note: str) -> list[str]:
    """Return arguments that keep Claude Code with its gateway: its settings files go before the environment. The key is not
    among them, since other users may see a command line. `note` is shown at the start: Claude Code clears the screen."""
    env = {**with_key(variables, None), **dict.fromkeys(_LEFT_OUT, "")}
    if has_key:
        env["ANTHROPIC_AUTH_TOKEN"] = ""
    settings = {"apiKeyHelper": f"printenv {_KEY}" if has_key else "", "env": env}
    return ["--settings", json.dumps({**settings, "companyAnnouncements": [note]} if note else settings)]
