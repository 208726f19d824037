"""Answers of a real vLLM that break off after each event, and go on at another one: `make oracle`.

Two servers of the tiny model, each behind a relay that cuts a connection where it is told to, as the death of the process does.
Each script is answered undisturbed first; then once for each event after which its stream is cut. What the client gets has to
be the same. `--stride N` cuts after every Nth event only. In the end the Codex CLI, where it is installed, is given two tasks
whose answers are cut `--codex N` times each, and the processes of a server are killed `--kill N` times.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import signal
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import aiohttp

from responses_gateway.conformance.checker import check_stream
from tests.real_servers import codex
from tests.real_servers.conversation import scenario
from tests.real_servers.cutting_relay import Scissors, relay
from tests.real_servers.gateway import gateway
from tests.real_servers.programs import Server, engine
from tests.real_servers.scripts import Question, questions
from tests.real_servers.settings import Setting

_CALLS = ("--enable-auto-tool-choice", "--tool-call-parser")
_HERMES = ("--reasoning-parser", "qwen3", *_CALLS, "hermes")
_XML = ("--reasoning-parser", "qwen3", *_CALLS, "qwen3_coder")
_R1 = ("--reasoning-parser", "deepseek_r1", *_CALLS, "hermes")
# Server, and what the gateway in front of it needs to be told.
SETTINGS: dict[str, tuple[Setting, tuple[str, ...]]] = {
    "raw": (
        Setting("raw", "vLLM", questions=False),
        ("--reasoning-parser", "qwen3", "--tool-call-parser", "hermes"),
    ),
    "raw-xml": (
        Setting("raw-xml", "vLLM", markup="xml", questions=False),
        ("--reasoning-parser", "qwen3", "--tool-call-parser", "qwen3_coder"),
    ),
    "hermes": (Setting("hermes", "vLLM", _HERMES, questions=False), ()),
    "xml": (Setting("xml", "vLLM", _XML, markup="xml", questions=False), ()),
    "r1": (Setting("r1", "vLLM", _R1, markup="r1", questions=False), ()),
    "interval": (Setting("interval", "vLLM", (*_HERMES, "--stream-interval", "7"), questions=False), ()),
}
_GATEWAY = (
    *("--breaker-failures", "100000", "--continue-answers", "1", "--store", "none", "--no-adapt", "--no-access-log"),
    # On a busy machine everything takes long.
    *("--health-interval", "5", "--connect-timeout", "120"),
)
# An answer of more tokens is cut in a dozen places: each cut takes as long as the whole answer.
_LONG = 500
_KILLED_WITHIN = 600.0
# What Codex is asked to do, and in how many steps the model does it: a thought and a text; two calls and a text.
_TASKS = {"think": 1, "agent": 3}
# At the beginning of what it logs.
_TIME = re.compile(r"^\d{4}-\S+Z ")
# Codex itself is to repeat nothing.
_ONCE = {"stream_max_retries": 0, "request_max_retries": 0}
# Pieces are cut by the pace of the servers, which also tells whether the connection has to be kept alive.
_AS_IT_COMES = (".delta", ".in_progress")


@dataclass
class Findings:
    """What came of the cuts. `continued`: how many answers another server went on with. `pauses`: the longest silence in each
    answer that was cut, and in those that were not, in seconds."""

    verdicts: Counter[str] = field(default_factory=Counter)
    continued: int = 0
    pauses: list[float] = field(default_factory=list)
    usual_pauses: list[float] = field(default_factory=list)

    def text(self) -> str:
        """Say it in a line."""
        found = ", ".join(f"{count} {verdict}" for verdict, count in self.verdicts.most_common())
        pauses = [f"{1000 * statistics.median(values):.0f} ms" for values in (self.pauses, self.usual_pauses) if values]
        return f"{found}; {self.continued} continued; longest silence (median), cut and usual: {', '.join(pauses)}"


@dataclass
class Lane:
    """A gateway with relays to the servers; it asks for one answer at a time."""

    scissors: Scissors
    url: str
    session: aiohttp.ClientSession
    findings: Findings

    async def answered(self, body: dict[str, Any], pauses: list[float]) -> dict[str, Any]:
        """Return what a stream says: without ids, and without what was in a cache."""
        pieces: list[bytes] = []
        silence = 0.0
        async with self.session.post(f"{self.url}/v1/responses", json=body) as answer:
            last = time.monotonic()
            async for piece in answer.content.iter_any():
                now = time.monotonic()
                silence = max(silence, now - last)
                last = now
                pieces.append(piece)
        pauses.append(silence)
        stream = b"".join(pieces)
        events = [json.loads(line[6:]) for line in stream.splitlines() if line.startswith(b"data: {")]
        final = events[-1]["response"]
        usage = final["usage"] and {name: final["usage"][name] for name in ("input_tokens", "output_tokens", "total_tokens")}
        return {
            "status": final["status"],
            "output": [
                {name: value for name, value in item.items() if name not in ("id", "call_id")} for item in final["output"]
            ],
            "usage": usage,
            "events": [event["type"] for event in events if not event["type"].endswith(_AS_IT_COMES)],
            "error": final["error"],
            "against the rules": [str(broken) for broken in check_stream(stream)],
        }

    async def sweep(self, name: str, question: Question, stride: int) -> None:
        """Cut the answer to one question after each event."""
        usual = self.findings.usual_pauses
        await self.answered(question.body, usual)  # from which the gateway may learn how the model thinks
        whole = await self.answered(question.body, usual)
        events = self.scissors.events
        if question.tokens > _LONG:
            stride = max(stride, events // 12)
        counts: Counter[str] = Counter()
        for after in range(1, events, stride):
            counts[await self.cut(f"{name} {question.name}", question.body, whole, after)] += 1
        print(f"{name} {question.name}: {events} events, {dict(counts)}", flush=True)
        self.findings.verdicts += counts

    async def cut(self, title: str, body: dict[str, Any], whole: dict[str, Any], after: int) -> str:
        """Cut an answer after so many events, and compare it with the whole one."""
        self.scissors.after = after
        pauses: list[float] = []
        found = await self.answered(body, pauses)
        if self.scissors.after is not None:  # a busy server sends several tokens at once
            self.scissors.after = None
            return "same, over before the cut" if found == whole else "different undisturbed"
        self.findings.pauses += pauses
        if found == whole:
            return "same"
        verdict = "failed" if found["status"] == "failed" else "different"
        print(f"{title} cut after {after}: {verdict}")
        print("   ", json.dumps(whole, ensure_ascii=False)[:900])
        print("   ", json.dumps(found, ensure_ascii=False)[:900], flush=True)
        return verdict

    async def continuations(self) -> int:
        """Return how many answers another server went on with."""
        return int(await self._metric('responses_gateway_continuations_total{outcome="continued"'))

    async def healthy(self) -> int:
        """Return how many backends are up."""
        return int(await self._metric("responses_gateway_backend_up{"))

    async def _metric(self, beginning: str) -> float:
        async with self.session.get(f"{self.url}/metrics") as answer:
            lines = (await answer.text()).splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(beginning))


class Replicas:
    """Two servers of the same model, each of which can be killed and started again."""

    def __init__(self, setting: Setting, folder: Path, stack: ExitStack) -> None:
        self._setting = setting
        self._folder = folder
        self._stack = stack
        self._started = 2
        with ThreadPoolExecutor() as pool:
            self.servers = list(pool.map(self._start, range(2)))

    def kill(self, url: str) -> None:
        """Kill the server with this URL, with all of its processes."""
        (server,) = [server for server in self.servers if server.url == url]
        assert server.group is not None
        os.killpg(server.group, signal.SIGKILL)

    def start_again(self, number: int) -> None:
        """Start another server in the place of one that was killed."""
        self.servers[number] = self._start(self._started)
        self._started += 1

    def _start(self, number: int) -> Server:
        return self._stack.enter_context(engine(self._setting, self._folder / f"{self._setting.name}{number}"))


@asynccontextmanager
async def lane(name: str, folder: Path, replicas: Replicas, findings: Findings) -> AsyncIterator[Lane]:
    """Run a gateway in front of the servers."""
    scissors = Scissors()
    async with AsyncExitStack() as stack:
        relays = [
            await stack.enter_async_context(relay(lambda number=number: replicas.servers[number].url, scissors))
            for number in range(len(replicas.servers))
        ]
        flags = (*(part for url in relays for part in ("--backend", url)), *_GATEWAY, *SETTINGS[name][1])
        opened = gateway(folder, *flags)
        url = await asyncio.to_thread(opened.__enter__)
        stack.callback(opened.__exit__, None, None, None)
        session = await stack.enter_async_context(aiohttp.ClientSession())
        yield Lane(scissors, url, session, findings)


async def sweep(name: str, folder: Path, args: argparse.Namespace) -> Findings:
    """Cut all answers in one setting."""
    findings = Findings()
    wanted = [question for question in questions() if not args.only or question.name in args.only]
    waiting = sorted(wanted, key=lambda question: question.tokens)
    with ExitStack() as servers:
        replicas = await asyncio.to_thread(Replicas, SETTINGS[name][0], folder, servers)
        async with AsyncExitStack() as stack:
            lanes = [
                await stack.enter_async_context(lane(name, folder / f"{name}-lane{number}", replicas, findings))
                for number in range(args.lanes)
            ]

            async def work(one: Lane) -> None:
                while waiting:
                    await one.sweep(name, waiting.pop(), args.stride)

            await asyncio.gather(*map(work, lanes))
            if args.codex and codex.is_installed():
                await codex_goes_on(name, lanes[0], args.codex)
            if args.kill:
                await kill(name, lanes[0], replicas, wanted, args.kill)
            findings.continued = sum([await one.continuations() for one in lanes])
    return findings


async def codex_goes_on(name: str, lane: Lane, times: int) -> None:
    """Cut the answers that Codex gets, so many times for each task; its user has to see the same as without."""

    async def seen(task: str) -> dict[str, Any]:
        run = await asyncio.to_thread(codex.run_codex, lane.url, "tiny", scenario(task), **_ONCE)
        items = [event["item"] for event in run.events if event["type"] == "item.completed"]
        shown = [{name: value for name, value in item.items() if name != "id"} for item in items]
        errors = [_TIME.sub("", line) for line in run.errors]
        return {"status": run.code, "errors": errors, "items": shown}

    for task, steps in _TASKS.items():
        whole = await seen(task)
        for number in range(times):
            lane.scissors.spared = number % steps
            lane.scissors.after = 2 + 3 * (number // steps)
            before = await lane.continuations()
            found = await seen(task)
            continued = await lane.continuations() - before
            same = found == whole and whole["status"] == 0 and continued == 1
            lane.findings.verdicts["same, seen by Codex" if same else "different, seen by Codex"] += 1
            if not same:
                print(f"{name} Codex, {task}, cut {number}: {continued} continued", whole, found, sep="\n    ", flush=True)
            lane.scissors.after = None
        print(f"{name} Codex: {task} {whole}", flush=True)


async def kill(name: str, lane: Lane, replicas: Replicas, wanted: list[Question], times: int) -> None:
    """Kill the server of an answer so many times, each time in another script and at another place."""
    longer = [question for question in wanted if question.tokens > 30]
    for number in range(times):
        question = longer[number % len(longer)]
        whole = await lane.answered(question.body, lane.findings.usual_pauses)
        killed: list[str] = []

        def strike(url: str, killed: list[str] = killed) -> None:
            killed.append(url)
            replicas.kill(url)

        lane.scissors.kill = strike
        place = 1 + number * 7 % (lane.scissors.events - 1)
        verdict = await lane.cut(f"{name} {question.name}, killed", question.body, whole, place)
        lane.scissors.kill = None
        lane.findings.verdicts[f"{verdict}, killed"] += 1
        print(f"{name} {question.name}: killed after {place} events: {verdict}", flush=True)
        for url in killed:
            (index,) = [index for index, server in enumerate(replicas.servers) if server.url == url]
            await asyncio.to_thread(replicas.start_again, index)
        async with asyncio.timeout(_KILLED_WITHIN):
            while await lane.healthy() < len(replicas.servers):  # noqa: ASYNC110
                await asyncio.sleep(0.2)


def main() -> int:
    parser = argparse.ArgumentParser(description="Cut answers of real vLLM servers, and have another one go on with them.")
    parser.add_argument("settings", nargs="*", default=list(SETTINGS), help=f"which (default: {' '.join(SETTINGS)})")
    parser.add_argument("--stride", type=int, default=1, help="cut after every Nth event (default: 1)")
    parser.add_argument("--lanes", type=int, default=4, help="answers at the same time (default: 4)")
    parser.add_argument("--kill", type=int, default=4, metavar="N", help="kill the process of a server so often (default: 4)")
    parser.add_argument("--codex", type=int, default=6, metavar="N", help="cut the answers to Codex so often (default: 6)")
    parser.add_argument("--only", action="append", default=[], help="a script; may be repeated")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, _leave)
    verdicts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        for name in args.settings:
            began = time.monotonic()
            findings = asyncio.run(sweep(name, Path(folder), args))
            print(f"{name}: {findings.text()}; {time.monotonic() - began:.0f} s", flush=True)
            verdicts += findings.verdicts
    return 0 if all(verdict.startswith("same") for verdict in verdicts) else 1


def _leave(number: int, frame: object) -> NoReturn:
    """End like a program that was interrupted, so that every process is stopped on the way out."""
    raise SystemExit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
