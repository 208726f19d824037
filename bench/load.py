"""Load with many streams for a while, let backends die and come back meanwhile, and look at every answer.

    python -m bench.load                                        1,000 streams of 5 tokens/s for a minute
    python -m bench.load --streams 200 --seconds 20             smaller
    python -m bench.load --workers 2 --backends 2 --scenario kill
    python -m bench.load --backends 2 --scenario continued      killed, and no answer may be lost
    python -m bench.load --workers 2 --backends 2 --scenario all        killed, slowed down and halted, one after the other
    python -m bench.load --step 10:stall:0 --step 20:resume:0   steps of your own: SECOND:ACTION:BACKEND
    python -m bench.load --json figures.json                    the figures for your own arithmetic

Backends are simulators, all on the loopback interface. Ends with status 1 if a stream was cut without an end, said something
wrong or broke a law; where no backend was touched, or answers go on elsewhere, if one failed; and with several backends if one
came to nothing before its client had seen a token. Never for being slow. See bench/README.md.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import importlib.util
import json
import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal

import psutil
import uvloop

from bench import crowd, processes
from bench.crowd import Ask, Crowd
from bench.figures import Phase, Sample, figures_of, summary, table
from bench.processes import Target
from bench.programs import HarnessError
from responses_gateway.settings import Settings

Action = Literal["kill", "start", "slow", "stall", "resume"]
HOST = "127.0.0.1"
MAX_FILES = 65536
#: How much slower a backend is that is told to be slow.
SLOWNESS = 5
SAMPLE_SECONDS = 1.0
#: How long after the last answer memory is looked at once more.
AFTERWARDS = 3.0


@dataclass(frozen=True)
class Step:
    """What happens to a backend, and when: seconds since the start."""

    at: float
    action: Action
    backend: int


#: Scenario -> steps, in parts of the time of the run; the backend is always the first.
SCENARIOS: dict[str, list[tuple[float, Action]]] = {
    "steady": [],
    "kill": [(1 / 3, "kill"), (2 / 3, "start")],
    "continued": [(1 / 3, "kill"), (2 / 3, "start")],
    "stall": [(1 / 3, "stall"), (2 / 3, "resume")],
    "slow": [(1 / 3, "kill"), (1 / 3, "slow"), (2 / 3, "kill"), (2 / 3, "start")],
    "all": [
        (0.2, "kill"),
        (0.35, "start"),
        (0.5, "kill"),
        (0.5, "slow"),
        (0.65, "kill"),
        (0.65, "start"),
        (0.8, "stall"),
        (0.9, "resume"),
    ],
}


#: Scenario -> flags of the gateway with which every answer has to complete.
FLAGS: dict[str, list[str]] = {"continued": ["--continue-answers", "2"]}


class Simulator:
    """A backend that can be killed, started again, slowed down and halted."""

    def __init__(self, number: int, pace: float) -> None:
        self.number, self.pace = number, pace
        self.port = processes.free_port()
        self.target: Target | None = None
        self._running = ExitStack()

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    @property
    def rss_kb(self) -> float:
        """Its memory; none while it is dead."""
        target = self.target
        try:
            return target.rss_kb() if target is not None else 0.0
        except psutil.NoSuchProcess:
            return 0.0

    def do(self, action: Action) -> None:
        """Carry out a step; returns when it is done. Raises `HarnessError` if the backend does not come up."""
        if action in ("start", "slow"):
            self._start(self.pace if action == "start" else self.pace / SLOWNESS)
        elif self.target is not None:
            signals = {"kill": signal.SIGKILL, "stall": signal.SIGSTOP, "resume": signal.SIGCONT}
            os.kill(self.target.pid, signals[action])
            if action == "kill":
                self.close()

    def close(self) -> None:
        if self.target is not None:
            os.kill(self.target.pid, signal.SIGCONT)  # one that is halted would not hear that it is to end
        self._running.close()
        self.target = None

    def _start(self, pace: float) -> None:
        if self.target is not None:
            return
        command = [
            sys.executable,
            "-m",
            "responses_gateway",
            "simulate",
            "--port",
            str(self.port),
            "--tokens-per-second",
            f"{pace:g}",
        ]
        name = f"simulator-{self.number}"
        self.target = self._running.enter_context(processes.target(name, "chat", command, self.port))


def main() -> int:
    args = _arguments()
    try:
        steps = _steps(args)
        _check_support(args)
        _allow_many_files()
        phases, everything, memory = _run(args, steps)
    except HarnessError as error:
        print(f"bench.load: {error}", file=sys.stderr)
        return 2
    pace = args.tokens_per_second
    print(table(phases, pace))
    total = summary(everything, memory)
    print(total.text())
    if args.json:
        values = {"arguments": vars(args), "phases": [figures_of(phase, pace) for phase in phases], "total": asdict(total)}
        args.json.write_text(json.dumps(values, indent=2, default=str), encoding="utf-8")
    lost = (not steps or args.scenario in FLAGS) and total.completed < total.answers
    return 1 if total.never or lost or (args.backends > 1 and total.needless) else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench.load", description="Many streams, backends that fail, every answer looked at.")
    parser.add_argument("--streams", type=int, default=1000, metavar="N", help="clients at once (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=60, metavar="S", help="how long they ask (default: %(default)s)")
    parser.add_argument("--tokens", type=int, default=50, metavar="N", help="usual length of an answer (default: %(default)s)")
    parser.add_argument(
        "--tokens-per-second", type=float, default=5, metavar="N", help="pace of a stream (default: %(default)s)"
    )
    parser.add_argument("--workers", type=int, default=1, metavar="N", help="worker processes of the gateway")
    parser.add_argument("--backends", type=int, default=1, metavar="N", help="simulators behind it")
    parser.add_argument("--scenario", choices=SCENARIOS, default="steady", help="what happens to backend 0 meanwhile")
    parser.add_argument("--step", action="append", default=[], metavar="S:ACTION:N", help="a step of your own; may be repeated")
    parser.add_argument("--judged", type=float, default=0.1, metavar="PART", help="streams of which every event is checked")
    parser.add_argument("--gateway", action="append", default=[], metavar="FLAG", help="one more flag of the gateway, with =")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here")
    return parser.parse_args()


def _steps(args: argparse.Namespace) -> list[Step]:
    steps = [Step(part * args.seconds, action, 0) for part, action in SCENARIOS[args.scenario]]
    for text in args.step:
        at, action, backend = (*text.split(":"), "", "")[:3]
        known = {"kill", "start", "slow", "stall", "resume"}
        sensible = at.replace(".", "", 1).isdigit() and action in known and backend.isdigit() and int(backend) < args.backends
        if not sensible:
            raise HarnessError(
                f"--step {text}: SECOND:ACTION:BACKEND is expected, with an action of {', '.join(sorted(known))}"
            )
        steps.append(Step(float(at), action, int(backend)))
    return sorted(steps, key=lambda step: step.at)


def _check_support(args: argparse.Namespace) -> None:
    if args.workers > 1 and "workers" not in Settings.model_fields:
        raise HarnessError("this gateway has no worker processes yet: leave --workers at 1")
    if args.backends > 1 and importlib.util.find_spec("responses_gateway.backend.pool") is None:
        raise HarnessError("this gateway has no pool of backends yet: leave --backends at 1")


def _allow_many_files() -> None:
    """For this program and all that it starts."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    most = MAX_FILES if hard == resource.RLIM_INFINITY else min(MAX_FILES, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def _run(args: argparse.Namespace, steps: list[Step]) -> tuple[list[Phase], Crowd, list[Sample]]:
    simulators = [Simulator(number, args.tokens_per_second) for number in range(args.backends)]
    port = processes.free_port()
    command = [sys.executable, "-m", "responses_gateway", "serve", "--port", str(port), "--no-access-log", "--store", "none"]
    command += [part for simulator in simulators for part in ("--backend", simulator.url)]
    command += ["--workers", str(args.workers)] if args.workers > 1 else []
    command += FLAGS.get(args.scenario, [])
    with ExitStack() as running:
        for simulator in simulators:
            running.callback(simulator.close)
            simulator.do("start")
        gateway = running.enter_context(processes.target("gateway-under-load", "responses", [*command, *args.gateway], port))
        _wait_until_ready(port, args.workers)
        ask = Ask(HOST, port, args.tokens, args.judged)
        return uvloop.run(_load(args, ask, steps, simulators, gateway))


def _wait_until_ready(port: int, workers: int) -> None:
    """Ask until so many answers in a row came that every worker was among them: the port is there before they are."""
    deadline = time.monotonic() + processes.START_SECONDS
    answers = 0
    while answers < 4 * workers:
        if time.monotonic() > deadline:
            raise HarnessError(f"the gateway did not answer within {processes.START_SECONDS:.0f} s")
        connection = http.client.HTTPConnection(HOST, port, timeout=1)
        try:
            connection.request("GET", "/health")
            answers = answers + 1 if connection.getresponse().status == 200 else 0
        except OSError:
            answers = 0
        finally:
            connection.close()


async def _load(
    args: argparse.Namespace, ask: Ask, steps: list[Step], simulators: list[Simulator], gateway: Target
) -> tuple[list[Phase], Crowd, list[Sample]]:
    """Load, take the steps when they are due, and measure each second."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    everything = Crowd()

    def sample() -> Sample:
        around = {"simulators": sum(one.rss_kb for one in simulators), "clients": psutil.Process().memory_info().rss / 1024}
        return Sample(loop.time(), gateway.cpu_us(), gateway.rss_kb(), everything.open, around)

    samples = [sample()]
    ramp = min(args.seconds / 4, args.tokens / args.tokens_per_second)  # so that they do not move in step
    clients = asyncio.create_task(crowd.gather(ask, args.streams, args.seconds, ramp, everything))
    measuring = asyncio.create_task(_measure(sample, samples))
    marks = [(began, "start")]
    try:
        for step in steps:
            await asyncio.sleep(max(0.0, began + step.at - loop.time()))
            due = loop.time()
            marks.append((due, f"{step.action} {step.backend}"))
            await asyncio.to_thread(simulators[step.backend].do, step.action)
            taken = loop.time() - due  # a backend that starts slowly shortens nothing that comes after it
            began += taken
            everything.end += taken
        await clients
    finally:
        measuring.cancel()
        clients.cancel()
    ended = loop.time()
    await asyncio.sleep(AFTERWARDS)
    samples.append(sample())
    ends = [*(at for at, _ in marks[1:]), ended]
    phases = [Phase(name, at, end, [], []) for (at, name), end in zip(marks, ends, strict=True)]
    filled = [_filled(phase, everything, samples) for phase in phases]
    return [phase for phase in filled if phase.answers or phase.samples], everything, samples


async def _measure(sample: Callable[[], Sample], samples: list[Sample]) -> None:
    while True:
        await asyncio.sleep(SAMPLE_SECONDS)
        samples.append(sample())


def _filled(phase: Phase, everything: Crowd, samples: list[Sample]) -> Phase:
    """The phase with the answers that ended in it, and what was measured meanwhile."""
    within = [answer for answer in everything.answers if phase.began <= answer.last < phase.ended]
    return replace(phase, answers=within, samples=[sample for sample in samples if phase.began <= sample.at <= phase.ended])


if __name__ == "__main__":
    sys.exit(main())
