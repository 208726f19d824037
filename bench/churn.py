"""A pool whose members change all the time, under many streams: no request may be refused, and no stream closed.

    python -m bench.churn                                     1,000 endpoints under 500 streams for half a minute
    python -m bench.churn --endpoints 100 --streams 50 --seconds 10
    python -m bench.churn --kill 10                           half of all endpoints are killed, and the file still names them

The endpoints are addresses of the loopback network, of two simulators. A file names them, and every `--every` seconds
`--changes` of those that it names are replaced by others. Ends with status 1 if a request was refused, or a stream ended
without being complete while nothing was killed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import socket
import sys
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import DEVNULL, Popen
from tempfile import TemporaryDirectory

import aiohttp
import psutil

_COMMAND = (sys.executable, "-m", "responses_gateway")
_WORDS = " ".join(f"word{number}" for number in range(60))
# How an answer ended. What broke off had begun.
COMPLETED, BROKE, REFUSED = "completed", "broke off", "refused"


@dataclass
class Seen:
    """What the clients saw, and what the gateway used."""

    ends: Counter[str] = field(default_factory=Counter)
    first: list[float] = field(default_factory=list)  # seconds until the first byte
    changes: int = 0
    most_memory: int = 0


def free_port() -> int:
    """Return a port that is free now."""
    with socket.socket() as probe:
        probe.bind(("0.0.0.0", 0))  # the simulator listens at all addresses of the loopback network
        number: int = probe.getsockname()[1]
        return number


def addresses(ports: list[int]) -> list[str]:
    """Return many addresses of this machine, with the ports in turn."""
    hosts = [f"127.{second}.{third}.{fourth}" for second in (1, 2) for third in range(8) for fourth in range(1, 251)]
    return [f"{host}:{ports[number % len(ports)]}" for number, host in enumerate(hosts)]


def write(file: Path, targets: list[str]) -> None:
    """Replace the file, as a whole."""
    new = file.with_suffix(".new")
    new.write_text(json.dumps([{"targets": targets}]), encoding="utf-8")
    new.replace(file)


async def replace_members(file: Path, everybody: list[str], args: argparse.Namespace, seen: Seen) -> None:
    """Let endpoints come and go until cancelled."""
    present = everybody[: args.endpoints]
    absent = everybody[args.endpoints :]
    while True:
        await asyncio.sleep(args.every)
        for _ in range(args.changes):
            place = random.randrange(len(present))
            other = random.randrange(len(absent))
            present[place], absent[other] = absent[other], present[place]
        write(file, present)
        seen.changes += args.changes


async def ask(session: aiohttp.ClientSession, url: str, number: int, until: float, seen: Seen) -> None:
    """Ask for one streamed answer after the other."""
    turn = 0
    while time.monotonic() < until:
        turn += 1
        body = {"model": "simulator", "input": f"tps: 20 {number}.{turn} {_WORDS}", "stream": True, "store": False}
        body["prompt_cache_key"] = f"{number}"
        began = time.monotonic()
        try:
            async with session.post(f"{url}/v1/responses", json=body) as answer:
                first = await answer.content.readany()
                seen.first.append(time.monotonic() - began)
                whole = first + await answer.content.read()
                complete = b"event: response.completed" in whole
                broke = b"event: response.output_text.delta" in whole
                failed = f"{BROKE if broke else REFUSED} (HTTP {answer.status}): {reason_in(whole)}"
                seen.ends[COMPLETED if complete else failed] += 1
        except aiohttp.ClientError as error:
            seen.ends[f"{REFUSED}: {type(error).__name__}"] += 1


def reason_in(answer: bytes) -> str:
    """Return why an answer failed, in its own words."""
    _, found, rest = answer.rpartition(b'"message":"')
    return rest.partition(b'"')[0].decode("utf-8", "replace") if found else "nothing is said"


async def watch(process: psutil.Process, seen: Seen) -> None:
    """Note how much memory the gateway takes."""
    while True:
        seen.most_memory = max(seen.most_memory, process.memory_info().rss)
        await asyncio.sleep(0.5)


async def ready(url: str) -> None:
    """Wait until the gateway is ready: minutes on a machine that has much else to do."""
    async with aiohttp.ClientSession() as session:
        for _ in range(6000):
            try:
                async with session.get(f"{url}/ready") as answer:
                    if answer.status == 200:
                        return
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(0.1)
    raise SystemExit("the gateway is not ready")


async def kill(simulator: Popen[bytes], after: float) -> None:
    """Kill the endpoints of a simulator, without a word to anybody."""
    await asyncio.sleep(after)
    simulator.kill()


async def measure(
    url: str, file: Path, everybody: list[str], args: argparse.Namespace, process: psutil.Process, simulator: Popen[bytes]
) -> Seen:
    """Run the load; return what was seen."""
    seen = Seen()
    await ready(url)
    before = process.cpu_times()
    began = time.monotonic()
    others = [asyncio.create_task(replace_members(file, everybody, args, seen)), asyncio.create_task(watch(process, seen))]
    if args.kill is not None:
        others.append(asyncio.create_task(kill(simulator, args.kill)))
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), read_bufsize=2**20) as session:
        until = began + args.seconds
        await asyncio.gather(*(ask(session, url, number, until, seen) for number in range(args.streams)))
    for other in others:
        other.cancel()
    took = time.monotonic() - began
    after = process.cpu_times()
    used = after.user + after.system - before.user - before.system
    first = sorted(seen.first)
    print(f"{args.endpoints} endpoints, {args.streams} streams, {took:.0f} s, {seen.changes} endpoints replaced")
    print("ends: " + ", ".join(f"{number} {end}" for end, number in seen.ends.most_common()))
    print(f"first byte: median {first[len(first) // 2]:.3f} s, p99 {first[int(len(first) * 0.99)]:.3f} s")
    print(f"gateway: {100 * used / took:.0f} % of a core, {seen.most_memory / 1e6:.0f} MB at most")
    return seen


def main() -> int:
    """Start everything, measure, and return the status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--endpoints", type=int, default=1000)
    parser.add_argument("--streams", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--changes", type=int, default=10, help="endpoints that are replaced at a time")
    parser.add_argument("--every", type=float, default=0.25, help="seconds between two times")
    parser.add_argument("--load-interval", type=float, default=0, help="seconds between two questions how busy a member is")
    parser.add_argument("--kill", type=float, help="seconds until one of the two simulators is killed")
    args = parser.parse_args()
    backends = [free_port(), free_port()]
    own = free_port()
    everybody = addresses(backends)
    with TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        write(folder / "pool.json", everybody[: args.endpoints])
        pool = {"file": [str(folder / "pool.json")], "interval": 0.1}
        settings = {"pools": {"pool": pool}, "store": "none", "adapt": False, "port": own, "log_level": "error"}
        settings["load_interval"] = args.load_interval
        (folder / "gateway.yaml").write_text(json.dumps(settings), encoding="utf-8")
        simulate = (*_COMMAND, "simulate", "--host", "0.0.0.0", "--port")
        commands: list[tuple[str, ...]] = [(*simulate, str(port)) for port in backends]
        commands.append((*_COMMAND, "serve", "--config", str(folder / "gateway.yaml")))
        running = []
        for command in commands:
            running.append(Popen(command, stdout=DEVNULL, stderr=DEVNULL))
            stack.callback(running[-1].wait)
            stack.callback(running[-1].terminate)
        _, simulator, gateway = running
        url = f"http://127.0.0.1:{own}"
        seen = asyncio.run(measure(url, folder / "pool.json", everybody, args, psutil.Process(gateway.pid), simulator))
    return int(any(end.startswith(REFUSED) or (end != COMPLETED and args.kill is None) for end in seen.ends))


if __name__ == "__main__":
    sys.exit(main())
