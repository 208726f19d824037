"""Two hundred tasks of a simulated weak model under the real Codex and the real Claude Code: what the gateway changes.

    python -m bench.weak                            all of it, an hour or two
    python -m bench.weak --tasks 40 --client codex

Each task has a simulator and a gateway of its own, and the same seed with each of the settings, so that the model makes the
same mistakes. Both clients have to be there: scripts/install-codex, scripts/install-claude."""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from responses_gateway.simulator import SimulatorOptions, WeakModel
from responses_gateway.simulator.weak import DEFAULT_RATES, refuses_a_call
from tests.claude.claude_code import BINARY as CLAUDE
from tests.claude.claude_code import ClaudeCode
from tests.codex.codex_cli import BINARY as CODEX
from tests.codex.codex_cli import Codex
from tests.codex.servers import GREETING, Background, Stage, open_stage

SETTINGS: dict[str, dict[str, Any]] = {
    "off": {"continue_early_ends": "off", "repair_calls": "off"},
    "repair": {"continue_early_ends": "off", "repair_calls": "safe"},
    "certain": {"continue_early_ends": "certain", "repair_calls": "safe"},
    "all": {"continue_early_ends": "all", "repair_calls": "safe"},
}
_SEED = 7
_REPORT = "Done: the file is written and checked"


class Outcome(NamedTuple):
    """What came of a task: whether its file is right and its end reported; the requests of the client, those of the gateway,
    the calls that the client refused, tokens."""

    finished: bool
    client_requests: int
    round_trips: int
    refused: int
    prompt_tokens: int
    generated_tokens: int
    broken: str = ""


def run_codex(folder: Path, url: str, question: str) -> str:
    """Run Codex in a folder, and return its last message."""
    run = Codex(folder, url).run(question)
    return run.answers[-1] if run.answers else ""


def run_claude(folder: Path, url: str, question: str) -> str:
    """Run Claude Code in a folder, and return its result."""
    return ClaudeCode(folder, url).run(question).result


CLIENTS: dict[str, tuple[Path, Callable[[Path, str, str], str]]] = {"codex": (CODEX, run_codex), "claude": (CLAUDE, run_claude)}


def play(background: Background, client: str, settings: dict[str, Any], rates: dict[str, float], number: int) -> Outcome:
    """Play one task and return what came of it."""
    stack = AsyncExitStack()
    options = SimulatorOptions(weak=WeakModel(_SEED, rates))
    stage: Stage = background.run(stack.enter_async_context(open_stage(options, [], settings)))
    broken = ""
    answer = ""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        try:
            answer = CLIENTS[client][1](folder, stage.url, f"scenario: agent. This is task {number}.")
        except (subprocess.TimeoutExpired, LookupError) as error:
            broken = f"{type(error).__name__}: {error}"
        written = folder / "workspace" / "greeting.py"
        right = written.is_file() and written.read_text() == GREETING
    counters = stage.counters
    outcome = Outcome(
        right and _REPORT in answer,
        sum(exchange.is_stream for exchange in stage.exchanges),
        counters.requests,
        _refused(stage.chats),
        counters.prompt_tokens,
        counters.generation_tokens,
        broken,
    )
    background.run(stack.aclose())
    return outcome


def _refused(chats: list[dict[str, Any]]) -> int:
    """Count the calls that the client refused: as the longest of the conversations has them."""
    if not chats:
        return 0
    messages = max((chat["messages"] for chat in chats), key=len)
    return sum(message["role"] == "tool" and refuses_a_call(message) for message in messages)


def measure(client: str, tasks: int, jobs: int, rates: dict[str, float]) -> dict[str, list[Outcome]]:
    """Play all tasks with each of the settings."""
    background = Background()
    outcomes: dict[str, list[Outcome]] = {}
    for name, settings in SETTINGS.items():
        began = time.monotonic()
        with ThreadPoolExecutor(jobs) as pool:
            outcomes[name] = list(pool.map(partial(play, background, client, settings, rates), range(tasks)))
        finished = sum(outcome.finished for outcome in outcomes[name])
        print(f"{client} {name}: {finished} of {tasks} in {time.monotonic() - began:.0f} s", flush=True)
        for problem, times in Counter(outcome.broken for outcome in outcomes[name] if outcome.broken).items():
            print(f"  {times} x {problem}")
    background.stop()
    return outcomes


def table(outcomes: dict[str, list[Outcome]]) -> list[str]:
    """Return the lines of a table in Markdown: a row for each of the settings."""
    lines = [
        "| settings | tasks finished | requests of the client | of the gateway | calls refused | prompt tokens | generated |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, found in outcomes.items():
        sums = [sum(column) for column in zip(*(outcome[:6] for outcome in found), strict=True)]
        lines.append(f"| {name} | {sums[0]} of {len(found)} | " + " | ".join(f"{number:,}" for number in sums[1:]) + " |")
    return lines


def main() -> None:
    """Measure, and print the tables."""
    parser = argparse.ArgumentParser(prog="python -m bench.weak", description=__doc__.partition("\n")[0])
    parser.add_argument("--tasks", type=int, default=200, help="default: %(default)s")
    parser.add_argument("--client", choices=CLIENTS, action="append")
    parser.add_argument("--jobs", type=int, default=2, help="clients at the same time (default: %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write each task's outcome")
    args = parser.parse_args()
    chosen = [name for name in args.client or CLIENTS if CLIENTS[name][0].exists()]
    found = {name: measure(name, args.tasks, args.jobs, dict(DEFAULT_RATES)) for name in chosen}
    for name, outcomes in found.items():
        version = subprocess.run([CLIENTS[name][0], "--version"], check=True, capture_output=True, text=True).stdout
        release = re.search(r"\d+\.\d+\.\d+", version)
        print(f"\n{name} {release[0] if release else ''}, {time.strftime('%Y-%m-%d', time.gmtime())}\n")
        print("\n".join(table(outcomes)))
    if args.json is not None:
        args.json.write_text(json.dumps(found))


if __name__ == "__main__":
    main()
