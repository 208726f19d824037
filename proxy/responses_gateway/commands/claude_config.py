"""`responses-gateway claude-config`: the environment with which Claude Code talks to a gateway."""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from responses_gateway.commands import Unusable, client_files
from responses_gateway.commands.client_files import change, restore, restore_own
from responses_gateway.commands.gateway_offer import DEFAULT_URL, Offer, key_in, offer_of, read_url, warn_of_small_window

# What Claude Code would go to another server with, or would send along.
OTHER_CREDENTIALS = re.compile(r"ANTHROPIC_API_KEY|CLAUDE_CODE_USE_.+")
# What stands for a key where the gateway needs none.
_NO_KEY = "none"
_TOKEN = "ANTHROPIC_AUTH_TOKEN"
_HELPER = "apiKeyHelper"
# Settings that count before those of all sessions, if Claude Code is started with `--settings` and this file.
PROFILE = "responses-gateway.json"
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Claude Code compacts when what is left of the window is less than an answer: so no more than a part of it is one.
_WINDOW_PER_OUTPUT = 4
_MOST_OUTPUT = 32_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add where the gateway is, and where the file is."""
    parser.add_argument("--url", default=DEFAULT_URL, help="base URL of the gateway (default: %(default)s)")
    parser.add_argument("--model", help="model to start with (default: the first one served)")
    parser.add_argument("--env-key", metavar="NAME", help="environment variable with the gateway's key, if it needs one")
    client_files.add_arguments(parser, "the environment to a file for `claude --settings FILE`", "`env` in settings.json")
    parser.add_argument(
        "--claude-home", type=Path, metavar="DIR", help="Claude Code's home folder (default: CLAUDE_CONFIG_DIR or ~/.claude)"
    )


def run(args: argparse.Namespace) -> int:
    """Print or write the environment. Returns 0. Raises `Unusable`."""
    if args.env_key is not None and not _VARIABLE.fullmatch(args.env_key):
        raise Unusable("--env-key: expected the name of an environment variable", status=2)
    url = read_url(args.url)
    home = args.claude_home or Path(os.environ.get("CLAUDE_CONFIG_DIR") or client_files.user_home() / ".claude")
    path = home / ("settings.json" if args.default else PROFILE)
    if args.restore:
        print(restore(path) if args.default else restore_own(path))
        return 0
    key_in(args.env_key, os.environ)
    offer = offer_of(url, args.env_key, os.environ, needs_models=args.model is None)
    model = args.model or offer.models[0]
    variables = environment(url, model, offer)
    warn(model, offer)
    if args.write:
        print(write(path, variables, args.env_key))
        if not args.default:
            print(f"Start it with: claude --settings {shlex.quote(str(path))}")
    else:
        print("\n".join(_exported(variables, args.env_key)))
    return 0


def environment(url: str, model: str, offer: Offer) -> dict[str, str]:
    """Return the variables, without the key. The model stands for every name that Claude Code may ask for."""
    window = offer.windows.get(model)
    sizes = {
        "CLAUDE_CODE_MAX_CONTEXT_TOKENS": window,
        "CLAUDE_CODE_MAX_OUTPUT_TOKENS": window and min(max(1, window // _WINDOW_PER_OUTPUT), _MOST_OUTPUT),
    }
    return {
        "ANTHROPIC_BASE_URL": url.removesuffix("/v1"),
        "ANTHROPIC_MODEL": model,
        "ANTHROPIC_DEFAULT_OPUS_MODEL": model,
        "ANTHROPIC_DEFAULT_SONNET_MODEL": model,
        "ANTHROPIC_DEFAULT_HAIKU_MODEL": model,
        **{name: str(size) for name, size in sizes.items() if size},
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CODE_GATEWAY_HINT_HEADERS": "1",
    }


def with_key(variables: Mapping[str, str], key: str | None) -> dict[str, str]:
    """Return the variables with the key, or with what stands for one."""
    return {**variables, _TOKEN: key or _NO_KEY}


_FIRST_REQUEST = 16_000  # tokens of Claude Code's first request: its instructions and tools


def warn(model: str, offer: Offer) -> None:
    """Tell the user that the model's context is too small for what Claude Code sends first, or that Claude Code will not know
    when to compact, because the gateway does not know it either."""
    warn_of_small_window("Claude Code", _FIRST_REQUEST, model, offer)
    if model not in offer.windows:
        why = offer.unknown or f"the gateway does not know the context window of {model}"
        print(
            "responses-gateway: warning: Claude Code will assume a context window of a million tokens, because "
            f"{why}. To change that, set CLAUDE_CODE_MAX_CONTEXT_TOKENS.",
            file=sys.stderr,
        )


def _exported(variables: Mapping[str, str], env_key: str | None) -> list[str]:
    token = f'"${env_key}"' if env_key else _NO_KEY
    return [f"export {name}={shlex.quote(value)}" for name, value in variables.items()] + [f"export {_TOKEN}={token}"]


def write(path: Path, variables: Mapping[str, str], env_key: str | None) -> str:
    """Merge into the file. Returns what was done, as text. Raises `Unusable`."""

    def with_ours(text: str) -> tuple[str, str]:
        before = _read(path, text)
        after = _merged(before, variables, env_key)
        return (text if after == before else json.dumps(after, indent=2, ensure_ascii=False) + "\n"), _note(after)

    return change(path, with_ours)


def _read(path: Path, text: str) -> dict[str, Any]:
    """Return the settings in the text of the file. Raises `Unusable`."""
    try:
        settings = json.loads(text) if text.strip() else {}
    except (ValueError, RecursionError) as error:
        raise Unusable(f"{path} is not valid JSON, so nothing was changed: {error}") from None
    if not isinstance(settings, dict):
        raise Unusable(f"{path} is not a JSON object, so nothing was changed")
    if not isinstance(settings.get("env", {}), dict):
        raise Unusable(f"`env` in {path} is not a JSON object, so nothing was changed")
    return settings


def _merged(settings: Mapping[str, Any], variables: Mapping[str, str], env_key: str | None) -> dict[str, Any]:
    """Return the settings with our variables. A key stays if it was for this gateway and no variable is named; that is read
    when Claude Code starts, so that the file has no key."""
    before: dict[str, Any] = settings.get("env", {})
    env = {**before, **variables}
    has_key = before.get("ANTHROPIC_BASE_URL") == variables["ANTHROPIC_BASE_URL"] and (_TOKEN in before or _HELPER in settings)
    if env_key:
        env.pop(_TOKEN, None)
        return {**settings, "env": env, _HELPER: f"printenv {env_key}"}
    return {**settings, "env": env if has_key else with_key(env, None)}


def _note(settings: Mapping[str, Any]) -> str:
    """Return what to say of credentials for another server, if there are any."""
    names = [name for name, value in settings["env"].items() if value and OTHER_CREDENTIALS.fullmatch(name)]
    names += [_HELPER] if _HELPER in settings and _TOKEN in settings["env"] else []
    return f"\nNote: {', '.join(names)} in this file is for another server: remove it, or the gateway gets it." if names else ""
