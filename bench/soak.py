"""Mixed traffic with faults for a long time: afterwards the gateway must hold no more than before.

    python -m bench.soak                       an hour: two workers, two backends, one of which dies and comes back
    python -m bench.soak --minutes 5 --clients 12
    python -m bench.soak --seed 7              the same choices again
    python -m bench.soak --picture memory.svg  also draw the memory over time

Every stream is judged. After a warm-up, and again at the end, the clients pause and the gateway is asked what it holds: memory,
file descriptors, connections, tasks, threads, objects by type. Ends with status 1 if an answer was wrong, or if more is held at
the end than `BOUNDS` allow. The kinds of clients are in `soak_clients.py`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import aiohttp
import psutil

from bench import processes
from bench.load import Simulator
from bench.processes import Target
from bench.programs import HERE, HarnessError
from bench.soak_clients import KINDS, Visit, client
from responses_gateway.ended_tasks import wait_at_most

# What each worker may hold at the end beyond what it held after the warm-up: a share, and a number.
BOUNDS: dict[str, tuple[float, float]] = {
    "memory_mb": (0.15, 48),  # what the largest body took is kept by the allocator
    "descriptors": (0, 8),
    "connections": (0, 4),
    "tasks": (0, 4),
    "threads": (0, 8),
}
# Objects of one type that may be added: caches of bounded size fill slowly.
OBJECTS_BOUND = (0.10, 1500.0)
# Lists and the like besides: the window remembers 500 requests, with some four of them each, and a short warm-up has fewer.
_REMEMBERED = 2500.0
_WARM_UP = 0.25  # of the whole time
_SAMPLE_SECONDS = 1.0
_QUIET_LIMIT = 30.0  # longest wait for the end of what runs, in seconds
_GATEWAY = (
    "--invariant-sampling", "1", "--idle-timeout", "20", "--health-interval", "0.5", "--breaker-time", "0.5",
    "--log-level", "error", "--max-body-bytes", "20000000",
)  # fmt: skip


@dataclass(frozen=True)
class Holding:
    """What one worker holds."""

    memory_mb: float
    descriptors: int
    connections: int
    tasks: int
    threads: int
    objects: dict[str, int]
    running: dict[str, int] = field(default_factory=dict)  # the tasks by their functions


@dataclass
class Run:
    """What came of a soak. `memory` has (seconds, MB of all workers, exchanges so far)."""

    asked: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    memory: list[tuple[float, float, int]] = field(default_factory=list)
    before: dict[int, Holding] = field(default_factory=dict)
    after: dict[int, Holding] = field(default_factory=dict)

    def note(self, kind: str, wrong: str) -> None:
        """Count an exchange, and what was wrong with it."""
        self.asked[kind] += 1
        if wrong:
            self.wrong.append(f"{kind}: {wrong}")


def main() -> int:
    """Run the soak and print what came of it."""
    args = _arguments()
    seed = args.seed if args.seed is not None else random.SystemRandom().randrange(2**32)
    print(f"soak: {args.minutes:g} minutes, {args.clients} clients, {args.workers} workers, seed {seed}", flush=True)
    try:
        run = _soak(args, seed)
    except HarnessError as error:
        print(f"bench.soak: {error}", file=sys.stderr)
        return 2
    excess = grown(run.before, run.after)
    print(report(run))
    for line in [*run.wrong[:20], *excess]:
        print(f"wrong: {line}")
    if args.picture is not None:
        args.picture.write_text(picture(run.memory), encoding="utf-8")
    return 1 if run.wrong or excess else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench.soak", description="Soak the gateway in mixed traffic with faults.")
    parser.add_argument("--minutes", type=float, default=60.0, help="length of the run (default: %(default)g)")
    parser.add_argument("--clients", type=int, default=24, help="clients at the same time (default: %(default)d)")
    parser.add_argument("--workers", type=int, default=2, help="worker processes of the gateway (default: %(default)d)")
    parser.add_argument("--seed", type=int, help="makes the choices of an earlier run again")
    parser.add_argument("--picture", type=Path, metavar="FILE", help="draw the memory over time (SVG)")
    return parser.parse_args()


def _soak(args: argparse.Namespace, seed: int) -> Run:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="soak-")))
        backends = [Simulator(number, pace=2000) for number in range(2)]
        for backend in backends:
            stack.callback(backend.close)
            backend.do("start")
        port = processes.free_port()
        command = [
            sys.executable,
            "-m",
            "responses_gateway",
            "serve",
            "--port",
            str(port),
            "--workers",
            str(args.workers),
            *_GATEWAY,
        ]
        command += ["--store", str(folder / "store.sqlite")]
        for backend in backends:
            command += ["--backend", backend.url]
        probe = {"SOAK_PROBE": str(folder), "PYTHONPATH": str(HERE / "probe")}
        gateway = stack.enter_context(processes.target("soaked-gateway", "responses", command, port, probe))
        return asyncio.run(_Soak(args, seed, gateway, backends[1], folder, port).run())


class _Soak:
    """One run: clients, the backend that flaps, and what is measured."""

    def __init__(
        self, args: argparse.Namespace, seed: int, gateway: Target, flapping: Simulator, folder: Path, port: int
    ) -> None:
        self._clients = args.clients
        self._seconds = args.minutes * 60
        self._random = random.Random(seed)
        self._gateway = gateway
        self._flapping = flapping
        self._folder = folder
        self._url = f"http://127.0.0.1:{port}/v1"
        self._run = Run()
        self._began = time.monotonic()

    async def run(self) -> Run:
        """Warm up, look, go on for the rest of the time, and look again."""
        sampling = asyncio.create_task(self._sample())
        try:
            await self._traffic(self._seconds * _WARM_UP)
            self._run.before = await self._held()
            await self._traffic(self._seconds * (1 - _WARM_UP))
            self._run.after = await self._held()
        finally:
            sampling.cancel()
        return self._run

    async def _traffic(self, seconds: float) -> None:
        """Let the clients ask for some time, while one backend dies and comes back; return when all have their answers."""
        stop = asyncio.Event()
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector, auto_decompress=False) as session, asyncio.TaskGroup() as group:
            for _ in range(self._clients):
                visit = Visit(session, self._url, random.Random(self._random.random()))
                group.create_task(client(visit, stop, self._run.note))
            group.create_task(self._flap(stop))
            await asyncio.sleep(seconds)
            stop.set()

    async def _flap(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            await wait_at_most(stop, self._random.uniform(2, 8))
            await asyncio.to_thread(self._flapping.do, "kill")
            await wait_at_most(stop, self._random.uniform(0.5, 3))
            await asyncio.to_thread(self._flapping.do, "start")

    async def _held(self) -> dict[int, Holding]:
        """Wait until nothing runs, and return what each worker holds."""
        deadline = time.monotonic() + _QUIET_LIMIT
        while True:
            found = {process.pid: await self._holding(process) for process in self._workers()}
            # A background response has no connection.
            busy = any(holding.connections or holding.tasks > BOUNDS["tasks"][1] for holding in found.values())
            if not busy or time.monotonic() > deadline:
                return found
            await asyncio.sleep(0.5)

    async def _holding(self, process: psutil.Process) -> Holding:
        path = self._folder / f"{process.pid}.json"
        path.unlink(missing_ok=True)
        process.send_signal(signal.SIGRTMIN)
        deadline = time.monotonic() + _QUIET_LIMIT
        while not path.exists():
            if time.monotonic() > deadline:
                raise HarnessError(f"worker {process.pid} does not tell what it holds")
            await asyncio.sleep(0.05)
        told = json.loads(path.read_text(encoding="utf-8"))
        inbound = [each for each in process.net_connections("tcp") if each.status != psutil.CONN_LISTEN]
        return Holding(
            memory_mb=process.memory_info().rss / 2**20,
            descriptors=process.num_fds(),
            connections=sum(1 for each in inbound if each.laddr and each.laddr.port == self._gateway.port),
            tasks=sum(told["tasks"].values()),
            running=told["tasks"],
            threads=told["threads"],
            objects=told["objects"],
        )

    def _workers(self) -> list[psutil.Process]:
        parent = psutil.Process(self._gateway.pid)
        children = [child for child in parent.children() if child.status() != psutil.STATUS_ZOMBIE]
        return children or [parent]

    async def _sample(self) -> None:
        while True:
            memory = sum(process.memory_info().rss for process in self._workers()) / 2**20
            asked = self._run.asked.total()
            now = time.monotonic() - self._began
            self._run.memory.append((now, memory, asked))
            if len(self._run.memory) % 60 == 0:
                wrong = len(self._run.wrong)
                print(f"soak: {now / 60:.0f} min, {asked} exchanges, {wrong} wrong, {memory:.0f} MB", flush=True)
            await asyncio.sleep(_SAMPLE_SECONDS)


def grown(before: dict[int, Holding], after: dict[int, Holding]) -> list[str]:
    """Return what the workers hold more of than they may, as lines of text. A worker that died meanwhile is one of them."""
    found = [f"worker {pid} died" for pid in before.keys() - after.keys()]
    for pid in before.keys() & after.keys():
        old = before[pid]
        new = after[pid]
        for name, (share, number) in BOUNDS.items():
            was = getattr(old, name)
            now = getattr(new, name)
            if now > was * (1 + share) + number:
                running = f": {new.running}" if name == "tasks" else ""
                found.append(f"worker {pid}: {name}: {was:.0f} before, {now:.0f} after{running}")
        share, number = OBJECTS_BOUND
        for kind, count in new.objects.items():
            was = old.objects.get(kind, 0)
            remembered = _REMEMBERED if kind.startswith("builtins.") else 0.0
            if count > was * (1 + share) + number + remembered:
                found.append(f"worker {pid}: objects of {kind}: {was} before, {count} after")
    return found


def report(run: Run) -> str:
    """Return a table of what was asked, and what is held."""
    kinds = ", ".join(f"{kind.__name__} {run.asked[kind.__name__]}" for kind in KINDS)
    lines = [
        f"{run.asked.total()} exchanges, {len(run.wrong)} wrong: {kinds}",
        "",
        "| worker | | memory | descriptors | connections | tasks | threads | objects |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for pid in run.before:
        for moment, held in (("after the warm-up", run.before[pid]), ("at the end", run.after.get(pid))):
            if held is not None:
                numbers = (held.descriptors, held.connections, held.tasks, held.threads, sum(held.objects.values()))
                cells = " | ".join(str(number) for number in numbers)
                lines.append(f"| {pid} | {moment} | {held.memory_mb:.0f} MB | {cells} |")
    return "\n".join(lines)


def picture(memory: Sequence[tuple[float, float, int]], width: int = 860, height: int = 260) -> str:
    """Return a plot of the memory over time, as SVG."""
    left = 60
    bottom = 40
    longest = max((at for at, _, _ in memory), default=1.0) or 1.0
    most = max((size for _, size, _ in memory), default=1.0) * 1.2
    plot_width = width - left - 20
    plot_height = height - bottom - 30
    points = " ".join(
        f"{left + plot_width * at / longest:.1f},{30 + plot_height * (1 - size / most):.1f}" for at, size, _ in memory
    )
    asked = memory[-1][2] if memory else 0
    grid = []
    for step in range(5):
        y = 30 + plot_height * step / 4
        size = most * (1 - step / 4)
        grid.append(f'<line x1="{left}" y1="{y:.1f}" x2="{left + plot_width}" y2="{y:.1f}" stroke="#ddd"/>')
        grid.append(f'<text x="{left - 8}" y="{y + 4:.1f}" text-anchor="end">{size:.0f}</text>')
        x = left + plot_width * step / 4
        minutes = longest * step / 4 / 60
        grid.append(f'<text x="{x:.1f}" y="{height - 18}" text-anchor="middle">{minutes:.3g} min</text>')
    title = f"Memory of all workers, MB; {asked:,} exchanges"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">\n'
        f'<rect width="{width}" height="{height}" fill="#fff"/>\n<text x="{left}" y="18">{title}</text>\n'
        + "\n".join(grid)
        + f'\n<polyline points="{points}" fill="none" stroke="#3465a4" stroke-width="1.5"/>\n</svg>\n'
    )


if __name__ == "__main__":
    sys.exit(main())
