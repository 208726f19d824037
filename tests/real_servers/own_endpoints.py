"""What goes wrong at endpoints that servers have of their own: `responses-gateway check` asks each, and the gateway in front.

Prints the table of docs/comparison.md."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.real_servers import programs
from tests.real_servers.gateway import gateway
from tests.real_servers.processes import plain_environment
from tests.real_servers.settings import SETTINGS, Program, Setting

# How each server is started.
_CHOSEN: dict[Program, str] = {"vLLM": "vllm-hermes", "llama.cpp": "llamacpp", "transformers serve": "transformers"}
_PROTOCOLS = {"responses": "/v1/responses", "messages": "/v1/messages"}
_ASKED: dict[str, tuple[str, ...]] = {"text": (), "a call": ("--tools",)}
_WITHIN = 300.0


def checked(url: str, model: str, protocol: str, folder: Path, *flags: str) -> str:
    """Return what `check` says of one answer: the rules that it breaks, or why there was none."""
    command = [
        sys.executable,
        "-m",
        "responses_gateway",
        "check",
        url,
        "--model",
        model,
        "--protocol",
        protocol,
        "--json",
        *flags,
    ]
    environment = plain_environment(folder) | {"PYTHONPATH": str(programs.ROOT / "proxy")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=_WITHIN, check=False)
    if done.returncode == 2:
        return done.stderr.strip().splitlines()[-1][:160]
    rules: dict[str, dict[str, None]] = {}
    for violation in json.loads(done.stdout)["violations"]:
        rules.setdefault(violation["level"], {})[f"`{violation['rule']}`"] = None
    return (
        "; ".join(f"{level}: {', '.join(rules[level])}" for level in ("breaks", "spec", "stricter") if level in rules) or "none"
    )


def print_rows(setting: Setting, folder: Path) -> None:
    """Start a server, and print the rows of its endpoints."""
    folder.mkdir()
    version = programs.version_of(setting.program)
    with (
        programs.engine(setting, folder / "server") as server,
        gateway(folder / "gateway", "--backend", f"{server.url}/v1") as url,
    ):
        for protocol, path in _PROTOCOLS.items():
            for what, flags in _ASKED.items():
                own = checked(server.url, server.model, protocol, folder, *flags)
                through = checked(url, server.model, protocol, folder, *flags)
                print(f"| {setting.program} {version} | `{path}` | {what} | {own} | {through} |", flush=True)


def main() -> None:
    """Print the table."""
    with TemporaryDirectory() as folder:
        for program, name in _CHOSEN.items():
            setting = next(each for each in SETTINGS if each.name == name)
            reason = programs.why_not([setting])
            if reason is None:
                print_rows(setting, Path(folder) / name)
            else:
                print(f"{program}: {reason}", file=sys.stderr)


if __name__ == "__main__":
    main()
