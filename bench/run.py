"""Measure the gateway beside a plain byte relay and print what it costs.

    python -m bench.run                    everything, about two minutes
    python -m bench.run --quick            the same in half a minute, less exact
    python -m bench.run --scenario paced64 --rounds 9
    python -m bench.run --self-check       a second relay in the gateway's place: must give about 1.0x

See bench/README.md for how to read the tables. Ends with status 1 if an answer was lost or wrong, never for being slow.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlsplit

from bench import processes, programs, turns
from bench.processes import Target
from bench.programs import HarnessError, Latency, Load, Outcome
from bench.report import Measured, Round, summary, tables, verdicts
from bench.scenarios import (
    AGENT,
    CONTINUED,
    FLEET,
    MEMORY,
    MESSAGES,
    RECORDED,
    RESUMABLE,
    SCENARIOS,
    STORED,
    WARM_UP,
    WATCHED,
    Scenario,
)
from bench.visitor import visiting
from bench.vocabulary import tokenizer_file

MAX_FILES = 65536
SETTLE_SECONDS = 0.1
QUICK_ROUNDS = 2
#: A gateway that looks for markup, and finds none.
RAW = ["--reasoning-parser", "qwen3", "--tool-call-parser", "hermes", "--opened-thinking", "no"]
NO_STORE = ["--store", "none"]
#: What makes a gateway of a scenario's variant.
VARIANTS: dict[str, Callable[[], list[str]]] = {
    "raw": lambda: RAW,
    "tokens": lambda: [*RAW, "--tokenizer", str(tokenizer_file())],
    STORED: lambda: [],
    RESUMABLE: lambda: ["--on-disconnect", "continue"],
    WATCHED: lambda: [],
    FLEET: lambda: ["--continue-answers", "0"],
    CONTINUED: lambda: [],
    RECORDED: lambda: ["--continue-answers", "0"],
    AGENT: lambda: [
        *("--repair-calls", "safe", "--strict-calls", "on", "--continue-early-ends", "certain"),
        *("--repetition-notice", "--end-text-loops"),
    ],
}
#: Variants that stand beside another variant, in the relay's place.
BESIDE = {CONTINUED: FLEET, RECORDED: FLEET, RESUMABLE: STORED}


@dataclass(frozen=True)
class Bench:
    """The started processes: the targets, the upstream's port, the client's program. `variants` do more."""

    relay: Target
    gateway: Target
    variants: dict[str, Target]
    upstream_port: int
    client: Path

    def pair(self, scenario: Scenario) -> tuple[Target, Target]:
        """What is measured: the second beside the first."""
        first = self.relay if scenario.beside == "relay" else self.gateway
        if scenario.variant in BESIDE:
            first = self.variants[BESIDE[scenario.variant]]
        return first, self.variants[scenario.variant] if scenario.variant else self.gateway

    def targets(self, scenario: Scenario, number: int) -> list[Target]:
        """Both targets; which one comes first changes from round to round."""
        first, second = self.pair(scenario)
        return [first, second] if number % 2 == 0 else [second, first]

    def drive(self, scenario: Scenario, loads: list[Load], **options: Any) -> dict[str, Outcome]:
        """Run the client; streams of a paced scenario are opened one after the other."""
        seconds = scenario.tokens * scenario.interval_ms * scenario.repeats // 1000
        ramp_ms = min(1000, seconds * 250)
        return programs.drive(
            self.client,
            scenario.model,
            loads,
            repeats=scenario.repeats,
            ramp_ms=ramp_ms,
            timeout_s=30 + 5 * seconds,
            tools_too=scenario.beside == "gateway" and scenario.variant != MESSAGES,
            fields=scenario.fields,
            **options,
        )

    def load(self, target: Target, scenario: Scenario) -> Load:
        """The scenario's load of one target."""
        return Load(target.name, target.protocol, target.port, scenario.streams)


def measure_direct(bench: Bench, scenario: Scenario) -> Latency:
    """The latency of a token with nothing between client and upstream: what the harness and the machine take.

    The calmer of two runs: this is a floor, and whatever else the machine does can only raise it.
    """
    if not scenario.paced:
        return Latency()
    load = Load("direct", "chat", bench.upstream_port, scenario.streams)
    return min((bench.drive(scenario, [load])["direct"].latency for _ in range(2)), key=lambda latency: latency.p99)


def run_round(bench: Bench, scenario: Scenario, number: int, direct: Latency) -> Round:
    """Load both targets, at once or in turn as the scenario says, and read the CPU they took."""
    measured: dict[str, Measured] = {}
    targets = bench.targets(scenario, number)
    turns = [targets] if scenario.together else [[target] for target in targets]
    for turn in turns:
        loads = [bench.load(target, scenario) for target in turn]
        time.sleep(SETTLE_SECONDS)
        before = [target.cpu_us() for target in turn]
        outcomes = bench.drive(scenario, loads)
        for target, cpu_us in zip(turn, before, strict=True):
            measured[target.name] = Measured(outcomes[target.name], target.cpu_us() - cpu_us)
    first, second = (measured[target.name] for target in bench.pair(scenario))
    return Round(scenario, first, second, direct)


def measure_memory(bench: Bench) -> dict[str, float]:
    """How much both processes grow while many streams are open; KB per stream. The processes must be fresh."""
    figures: dict[str, float] = {"streams": MEMORY.streams}
    both = bench.targets(MEMORY, 0)
    before = {target.name: target.rss_kb() for target in both}

    def read() -> None:
        for target in both:
            figures[f"{target.name}_kb"] = (target.rss_kb() - before[target.name]) / MEMORY.streams
            figures[f"{target.name}_idle_mb"] = before[target.name] / 1024

    bench.drive(MEMORY, [bench.load(target, MEMORY) for target in both], when_open=read)
    if "gateway_kb" not in figures:
        raise HarnessError("memory: not every stream was opened")
    return figures


def warm_up(bench: Bench) -> None:
    """Fill the pools and caches. Raises `HarnessError` if a target does not answer at all."""
    for target in (bench.relay, bench.gateway, *bench.variants.values()):
        outcome = bench.drive(WARM_UP, [bench.load(target, WARM_UP)])[target.name]
        if not outcome.answers:
            raise HarnessError(f"the {target.name} gives no correct answer: {outcome.errors}")


def start(stack: ExitStack, options: argparse.Namespace) -> Bench:
    """Build and start everything; `stack` stops it."""
    client = programs.build("client")
    program = programs.build("upstream")
    upstream_port = stack.enter_context(processes.upstream(program, options.upstream_port))

    def start_target(name: str, protocol: str, module: list[str], backends: Sequence[int] = (upstream_port,)) -> Target:
        port = processes.free_port()
        flags = [flag for backend in backends for flag in ("--backend", f"http://127.0.0.1:{backend}")]
        command = [sys.executable, "-m", *module, *flags, "--port", str(port)]
        return stack.enter_context(processes.target(name, protocol, command, port))

    relay = start_target("relay", "chat", ["bench.relay"])
    if options.gateway:
        gateway = processes.running("gateway", "responses", urlsplit(options.gateway).port or 80)
    elif options.self_check:
        gateway = start_target("gateway", "chat", ["bench.relay"])
    else:
        gateway = start_target("gateway", "responses", ["responses_gateway", "serve", "--no-adapt", *NO_STORE])
    variants = {}
    names = {SCENARIOS[name].variant for name in options.scenario if name in SCENARIOS} - {""}
    if MESSAGES in names:
        names.remove(MESSAGES)
        protocol = "chat" if options.self_check else "messages"
        variants[MESSAGES] = replace(gateway, name=MESSAGES, protocol=protocol)
    has_fleet = not {CONTINUED, RECORDED}.isdisjoint(names) and not options.self_check
    fleet = _fleet(stack, program, options) if has_fleet else [upstream_port]
    for name in names | {BESIDE[name] for name in names & BESIDE.keys()}:
        store = NO_STORE
        if name in (STORED, RESUMABLE):
            store = ["--store", f"{stack.enter_context(TemporaryDirectory())}/store.sqlite3"]
        serve = ["responses_gateway", "serve", "--no-adapt", *store, *VARIANTS[name]()]
        backends = fleet if name in (FLEET, CONTINUED, RECORDED) else [upstream_port]
        module, protocol = (["bench.relay"], "chat") if options.self_check else (serve, "responses")
        protocol = "rollout" if module is serve and name == RECORDED else protocol
        variants[name] = start_target(name, protocol, module, backends)
        if name == WATCHED and not options.self_check:
            stack.enter_context(visiting(variants[name].port))
    return Bench(relay, gateway, variants, upstream_port, client)


def _fleet(stack: ExitStack, program: Path, options: argparse.Namespace) -> list[int]:
    """Start two vLLM servers that have the models of all scenarios; their ports."""
    models = {_fit(SCENARIOS[name], options).model for name in options.scenario if name in SCENARIOS}
    return [stack.enter_context(processes.upstream(program, models=sorted({*models, WARM_UP.model}))) for _ in range(2)]


def run(options: argparse.Namespace) -> dict[str, Any]:
    """All that was asked for, as one JSON value: `summaries`, `memory`, `verdicts`, `rounds`."""
    rounds: list[Round] = []
    memory: dict[str, float] | None = None
    conversation: list[turns.Turns] = []
    with ExitStack() as stack:
        bench = start(stack, options)
        warm_up(bench)
        if MEMORY.name in options.scenario:
            memory = measure_memory(bench)
        if turns.NAME in options.scenario and not options.self_check:
            conversation = turns.measure(f"http://127.0.0.1:{bench.upstream_port}")
        scenarios = [_fit(SCENARIOS[name], options) for name in options.scenario if name in SCENARIOS]
        direct = {scenario.name: measure_direct(bench, scenario) for scenario in scenarios}
        for number in range(options.rounds):
            for scenario in scenarios:
                found = [run_round(bench, scenario, number + i, direct[scenario.name]) for i in range(scenario.pairs)]
                _progress(found, f"{number + 1}/{options.rounds}")
                rounds += found
    summaries = [summary([one for one in rounds if one.scenario == scenario]) for scenario in scenarios]
    return {
        "summaries": summaries,
        "memory": memory,
        "turns": [asdict(one) for one in conversation],
        "verdicts": verdicts(summaries, memory),
        "rounds": [asdict(one) for one in rounds],
    }


def _fit(scenario: Scenario, options: argparse.Namespace) -> Scenario:
    """The scenario with as many streams and as long answers as asked for."""
    scenario = replace(scenario, streams=min(scenario.streams, options.streams or scenario.streams))
    if scenario.paced:
        kind, _, interval = scenario.model.split(":")
        tokens = max(10, int(options.seconds * 1000 / scenario.interval_ms))
        scenario = replace(scenario, model=f"{kind}:{tokens}:{interval}")
    return scenario


def _progress(rounds: list[Round], number: str) -> None:
    flaws = [flaw for one in rounds for flaw in one.flaws]
    note = f"   not clean: {'; '.join(flaws)}" if flaws else ""
    ratio = median(one.ratio for one in rounds)
    print(f"{number} {rounds[0].scenario.name:10} {ratio:.2f}x{note}", file=sys.stderr, flush=True)


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="bench.run", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [*SCENARIOS, MEMORY.name, turns.NAME]
    parser.add_argument("--scenario", action="append", choices=names, help="only this one; may be given several times")
    parser.add_argument("--rounds", type=int, help=f"rounds of each scenario (5; with --quick {QUICK_ROUNDS})")
    parser.add_argument("--quick", action="store_true", help="two rounds of half the length")
    parser.add_argument("--streams", type=int, help="at most so many streams at once")
    parser.add_argument("--seconds", type=float, help="length of a paced stream (4; with --quick 2)")
    parser.add_argument("--gateway", metavar="URL", help="a gateway that runs already, its backend the upstream")
    parser.add_argument("--upstream-port", type=int, default=0, help="where the upstream listens (any free port)")
    parser.add_argument("--self-check", action="store_true", help="measure a second relay instead of the gateway")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there too")
    options = parser.parse_args(arguments)
    if options.gateway and not options.upstream_port:
        parser.error("--gateway needs --upstream-port, the backend that it was started with")
    options.scenario = options.scenario or names
    options.rounds = options.rounds or (QUICK_ROUNDS if options.quick else 5)
    options.seconds = options.seconds or (2 if options.quick else 4)
    return options


def main(arguments: list[str]) -> int:
    """The command; the exit status."""
    options = _options(arguments)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    limit = MAX_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_FILES)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    try:
        result = run(options)
    except HarnessError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    print(tables(result["summaries"], result["memory"], result["turns"]))
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")
    return 1 if any(one[name]["outcome"]["errors"] for one in result["rounds"] for name in ("relay", "gateway")) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
