"""Episodes of the real Codex and the real Claude Code: is the record of each rollout what the backend has sent, all of it?

    python -m tests.trainers.episodes               ten episodes of each client; writes docs/training.md
    python -m tests.trainers.episodes --episodes 1  one of each

The wire is tapped on both sides of the gateway: what the client asked tells how many calls there have to be, what the backend
sent tells their tokens. Both clients have to be there: scripts/install-codex, scripts/install-claude."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple
from urllib.request import Request, urlopen

from yarl import URL

from responses_gateway.simulator import DIALECTS, SimulatorOptions, create_app, serving
from scripts.generated_section import updated
from tests.claude.claude_code import ClaudeCode
from tests.codex.codex_cli import Codex
from tests.codex.servers import Background, Stage, open_stage
from tests.codex.wire_tap import Exchange, Tape

_DOCUMENT = Path(__file__).parents[2] / "docs" / "training.md"
_KEY = "sk-of-the-client"

# An answer: the ids of its prompt, those that were sampled, and their log probabilities.
Sampled = tuple[tuple[int, ...], tuple[int, ...], tuple[float, ...]]


class Task(NamedTuple):
    """What a client is asked, one question after the other in one session, of a backend of some kind."""

    questions: Sequence[str]
    dialect: str = "vllm"
    token_true: bool = False


TASKS = (
    Task(["scenario: agent"]),
    Task(["scenario: subagent"]),
    Task(["scenario: parallel"]),
    Task(["scenario: reasoning", "scenario: plain. And now?"]),
    Task(["scenario: agent"], dialect="vllm-raw"),
    Task(["scenario: agent"], token_true=True),
    Task(["scenario: unicode"]),
    Task(["scenario: agent fault: drop=10,once,step=1"]),
    Task(["scenario: plain. Remember this.", "scenario: agent", "scenario: plain. And now?"], token_true=True),
    Task(["scenario: subagent"], dialect="vllm-raw", token_true=True),
)


def run_codex(folder: Path, url: str, task: Task) -> None:
    """Have Codex do a task."""
    codex = Codex(folder, url)
    if task.token_true:
        codex.tables["model_providers.gateway.http_headers"] = {"X-Token-True": "1"}
    for number, question in enumerate(task.questions):
        run = codex.run("--last", question, command="resume") if number else codex.run(question)
        assert run.answers, run.errors


def run_claude(folder: Path, url: str, task: Task) -> None:
    """Have Claude Code do a task."""
    claude = ClaudeCode(folder, url)
    if task.token_true:
        claude.environment["ANTHROPIC_CUSTOM_HEADERS"] = "X-Token-True: 1"
    for number, question in enumerate(task.questions):
        assert claude.run(question, *(["--continue"] if number else [])).result


CLIENTS: dict[str, Callable[[Path, str, Task], None]] = {"Codex": run_codex, "Claude Code": run_claude}


class Episode(NamedTuple):
    """What came of an episode: its calls, how many of them broke off, were sent as ids and tell the tokens of their items, and
    what is wrong with the record."""

    calls: int
    broken: int
    token_true: int
    with_spans: int
    problems: list[str]


def play(background: Background, client: str, task: Task) -> Episode:
    """Play one episode, with servers of its own."""
    stack = AsyncExitStack()
    tape = Tape()
    try:
        stage: Stage = background.run(stack.enter_async_context(_stage(tape, task)))
        with tempfile.TemporaryDirectory() as folder:
            CLIENTS[client](Path(folder), stage.url.removesuffix("/v1") + "/rollouts/ep1/v1", task)
        calls = _read(f"{stage.url.removesuffix('/v1')}/rollouts/ep1?limit=1000")["calls"]
        return _judged(calls, stage.exchanges, tape.exchanges, lambda last: _read_chain(stage.url, last))
    finally:
        background.run(stack.aclose())


@asynccontextmanager
async def _stage(tape: Tape, task: Task) -> AsyncIterator[Stage]:
    """Servers while the block runs: the backend of a task behind a tape, and the gateway in front."""
    settings = {"reasoning_parser": "qwen3", "tool_call_parser": "hermes"} if "raw" in task.dialect else {}
    async with serving(create_app(SimulatorOptions(dialect=DIALECTS[task.dialect]))) as url:
        port = URL(url).port
        assert port is not None
        async with tape.listening("127.0.0.1", port) as tapped:
            backend = f"http://127.0.0.1:{tapped}/v1"
            async with open_stage(SimulatorOptions(), [backend], settings) as stage:
                yield stage


def _read(url: str) -> dict[str, Any]:
    with urlopen(Request(url, headers={"Authorization": f"Bearer {_KEY}"}), timeout=60) as answer:
        found: dict[str, Any] = json.load(answer)
        return found


def _read_chain(url: str, last: str) -> dict[str, Any]:
    return _read(f"{url.removesuffix('/v1')}/rollouts/ep1?limit=1000&chain={last}")


def _judged(
    calls: list[dict[str, Any]],
    asked: list[Exchange],
    answered: list[Exchange],
    chain_to: Callable[[str], dict[str, Any]],
) -> Episode:
    problems: list[str] = []
    requests = [
        exchange for exchange in asked if exchange.status == 200 and exchange.path.endswith(("/responses", "/messages"))
    ]
    requests += [exchange for exchange in asked if exchange.status == 200 and "/messages?" in exchange.path]
    if len(requests) != len(calls):
        problems.append(f"{len(requests)} requests, {len(calls)} calls")
    sent = Counter(_sent(answered))
    kept = Counter(_kept(call) for call in calls if call["generation_token_ids"] is not None)
    if sent != kept:
        problems.append(f"{sum((sent - kept).values())} answers are missing, {sum((kept - sent).values())} were not sent")
    broken = [call["reason"] for call in calls if call["generation_token_ids"] is None]
    problems += [f"no tokens: {reason}" for reason in broken if reason != "broke_off"]
    problems += [problem for call in calls if (problem := _wrong_chain(call, calls, chain_to))]
    by_ids = sum(call.get("token_true", False) for call in calls)
    return Episode(len(calls), len(broken), by_ids, sum(call["item_spans"] is not None for call in calls), problems)


def _sent(exchanges: list[Exchange]) -> Iterator[Sampled]:
    """Read what the backend has sent for each whole answer that has ids, apart from the gateway."""
    for exchange in exchanges:
        choices = [(event, choice) for event in exchange.events for choice in event.get("choices") or ()]
        if not any(choice.get("finish_reason") for _, choice in choices) or not exchange.request.get("return_token_ids"):
            continue
        prompts = [event.get("prompt_token_ids") or choice.get("prompt_token_ids") for event, choice in choices]
        entries = [entry for _, choice in choices for entry in (choice.get("logprobs") or {}).get("content") or ()]
        ids = [number for _, choice in choices for number in choice.get("token_ids") or ()]
        yield tuple(next(filter(None, prompts))), tuple(ids), tuple(entry["logprob"] for entry in entries)


def _kept(call: dict[str, Any]) -> Sampled:
    arrays = (call["prompt_token_ids"], call["generation_token_ids"], call["generation_log_probs"])
    prompt, ids, log_probs = map(tuple, arrays)
    return prompt, ids, log_probs


def _wrong_chain(call: dict[str, Any], calls: list[dict[str, Any]], chain_to: Callable[[str], dict[str, Any]]) -> str:
    """Return what is wrong with the chain that ends with a call, if another call does not continue it; empty if nothing is."""
    if call["generation_token_ids"] is None or call["id"] in {other["parent"] for other in calls}:
        return ""
    chain = chain_to(call["id"])
    begin = chain["breaks"][-1] if chain["breaks"] else 0
    ids = chain["token_ids"]
    sampled = [token for token, mask in zip(ids, chain["mask"], strict=True) if mask]
    by_id = {each["id"]: each for each in calls}
    expected = [token for name in chain["call_ids"] for token in by_id[name]["generation_token_ids"]]
    whole = ids[begin:] == call["prompt_token_ids"] + call["generation_token_ids"]
    return "" if whole and sampled == expected else f"the chain to {call['id']} is not that of its calls"


def section(found: dict[str, list[Episode]]) -> str:
    """Return the lines for the document."""
    lines = ["<!-- episodes: written by `make episodes` -->", ""]
    lines += ["| client | episodes | calls | broke off | sent as ids | with spans | records that are not exact |"]
    lines += ["|---|---|---|---|---|---|---|"]
    for client, episodes in found.items():
        sums = [sum(episode[place] for episode in episodes) for place in range(4)]
        wrong = sum(bool(episode.problems) for episode in episodes)
        lines.append(f"| {client} | {len(episodes)} | {' | '.join(map(str, sums))} | {wrong} |")
    date = datetime.now(UTC).date().isoformat()
    return "\n".join([*lines, "", f"Played on {date}.", "", "<!-- /episodes -->"])


def main(arguments: Sequence[str]) -> int:
    """Return the exit code: 1 if a record is not exact."""
    parser = argparse.ArgumentParser(prog="python -m tests.trainers.episodes", description=__doc__.partition("\n")[0])
    parser.add_argument("--episodes", type=int, default=len(TASKS), help="of each client (default: %(default)s)")
    parser.add_argument("--client", choices=CLIENTS, action="append")
    args = parser.parse_args(arguments)
    background = Background()
    found: dict[str, list[Episode]] = {}
    for client in args.client or CLIENTS:
        found[client] = []
        for task in TASKS[: args.episodes]:
            found[client].append(play(background, client, task))
            print(client, task, found[client][-1], flush=True)
    background.stop()
    print(section(found))
    if any(episode.problems for episodes in found.values() for episode in episodes):
        return 1
    if len(found) == len(CLIENTS) and args.episodes == len(TASKS):
        _DOCUMENT.write_text(updated(_DOCUMENT.read_text(encoding="utf-8"), section(found)), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
