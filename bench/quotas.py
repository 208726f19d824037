"""Quotas over a long time, with faults: what two gateways have charged must be what their clients were told.

    python -m bench.quotas                     an hour: two gateways before one Redis
    python -m bench.quotas --minutes 10 --clients 8

Every `--kill` seconds a gateway is killed and started again; every `--outage` seconds Redis stops answering for a while (no
gateway is killed then: what it could not charge would be lost, as documented). One client in twenty leaves in the middle.
In the end each key must have been charged all tokens of its complete answers, of both doors, and at most those of the
answers that broke off besides; a key with a small quota was refused beyond it. Ends with status 1 otherwise.
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
from contextlib import ExitStack
from pathlib import Path
from subprocess import DEVNULL, Popen
from tempfile import TemporaryDirectory
from typing import Any

import aiohttp

from bench.churn import free_port, ready
from responses_gateway.settings.keys import hash_of

_COMMAND = (sys.executable, "-m", "responses_gateway")
_ADMIN = "the-key-of-the-operators"
# More tokens than one of the answers has.
_MOST = 100
_SMALL = 5_000
_KEYS = {name: f"rp_{name}-0123456789abcdef" for name in ("alice", "bob", "small")}
# How many of the clients leave after the first bytes of an answer.
_LEAVES = 0.05
# Seconds for which Redis does not answer.
_OUTAGE = 3.0


class Gateways:
    """The gateways, each of which may be killed and started again."""

    def __init__(self, files: list[Path], ports: list[int]) -> None:
        self._files = files
        self.urls = [f"http://127.0.0.1:{port}" for port in ports]
        self._running = [self._start(file) for file in files]

    def _start(self, file: Path) -> Popen[bytes]:
        return Popen((*_COMMAND, "serve", "--config", str(file)), stdout=DEVNULL, stderr=DEVNULL)

    async def replace(self, place: int) -> None:
        """Kill one, and start it again."""
        self._running[place].kill()
        await asyncio.to_thread(self._running[place].wait)
        self._running[place] = self._start(self._files[place])
        await ready(self.urls[place])

    def stop(self) -> None:
        """End all."""
        for process in self._running:
            process.terminate()
            process.wait()


class Told:
    """What the clients of each key were told: tokens of complete answers, answers that broke off, refusals."""

    def __init__(self) -> None:
        self.tokens: Counter[str] = Counter()
        self.broken: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.complete: Counter[str] = Counter()


async def ask(session: aiohttp.ClientSession, gateways: Gateways, number: int, until: float, told: Told) -> None:
    """Ask for one answer after the other, by turns with each key and at both doors."""
    chance = random.Random(number)
    while time.monotonic() < until:
        key = chance.choice(list(_KEYS))
        text = f"tokens: {chance.randrange(5, 60)} tps: 60"
        path, body = chance.choice((_responses, _messages))(text)
        headers = {"Authorization": f"Bearer {_KEYS[key]}"}
        try:
            async with session.post(f"{chance.choice(gateways.urls)}{path}", json=body, headers=headers) as answer:
                if answer.status == 429:
                    told.refused[key] += 1
                    await asyncio.sleep(1)
                    continue
                if chance.random() < _LEAVES:
                    await answer.content.readany()
                    told.broken[key] += 1
                    continue
                stream = await answer.read()
        except aiohttp.ClientConnectorError:  # nothing was sent
            await asyncio.sleep(0.3)
            continue
        except (aiohttp.ClientError, ConnectionError):
            told.broken[key] += 1
            await asyncio.sleep(0.3)
            continue
        tokens = tokens_told(stream)
        if tokens is None:
            told.broken[key] += 1
            continue
        told.complete[key] += 1
        told.tokens[key] += tokens
        await asyncio.sleep(chance.random())


def _responses(text: str) -> tuple[str, dict[str, Any]]:
    return "/v1/responses", {"model": "simulator", "input": text, "stream": True, "store": False}


def _messages(text: str) -> tuple[str, dict[str, Any]]:
    messages = [{"role": "user", "content": text}]
    return "/v1/messages", {"model": "simulator", "messages": messages, "max_tokens": 1000, "stream": True}


def tokens_told(stream: bytes) -> int | None:
    """Return how many tokens a stream of either door says that the answer took; None if it broke off."""
    _, ended, last = stream.partition(b"event: response.completed\ndata: ")
    if ended:
        return int(json.loads(last.partition(b"\n")[0])["response"]["usage"]["total_tokens"])
    if b"event: message_stop" not in stream:
        return None
    last = stream.partition(b"event: message_delta\ndata: ")[2]
    usage = json.loads(last.partition(b"\n")[0])["usage"]
    return sum(int(count) for name, count in usage.items() if name.endswith("put_tokens"))


async def break_things(gateways: Gateways, redis: Popen[bytes], args: argparse.Namespace) -> None:
    """Kill gateways and halt Redis, never both at a time, until cancelled."""
    kill_at = time.monotonic() + args.kill
    halt_at = time.monotonic() + args.outage
    place = 0
    while True:
        await asyncio.sleep(0.5)
        now = time.monotonic()
        if now >= halt_at:
            redis.send_signal(signal.SIGSTOP)
            await asyncio.sleep(_OUTAGE)
            redis.send_signal(signal.SIGCONT)
            await asyncio.sleep(5)  # what waits is charged
            halt_at = time.monotonic() + args.outage
        elif now >= kill_at:
            await gateways.replace(place)
            place = 1 - place
            kill_at = time.monotonic() + args.kill


async def charged(url: str) -> dict[str, int]:
    """Return what the keys have used this month, as the window shows it."""
    headers = {"Authorization": f"Bearer {_ADMIN}"}
    async with aiohttp.ClientSession(headers=headers) as session, session.get(f"{url}/ui/api/usage?days=7") as answer:
        rows = (await answer.json())["quotas"]
    return {f"{row['kind']} {row['name']}": row["used"] for row in rows if row["period"] == "month"}


async def measure(gateways: Gateways, redis: Popen[bytes], args: argparse.Namespace) -> bool:
    """Run the load; tell whether all was charged as it should be."""
    told = Told()
    await asyncio.gather(*map(ready, gateways.urls))
    breaking = asyncio.create_task(break_things(gateways, redis, args))
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), read_bufsize=2**20) as session:
        until = time.monotonic() + 60 * args.minutes
        await asyncio.gather(*(ask(session, gateways, number, until, told) for number in range(args.clients)))
    breaking.cancel()
    await asyncio.gather(breaking, return_exceptions=True)
    redis.send_signal(signal.SIGCONT)
    await asyncio.sleep(5)
    found = await charged(gateways.urls[0])
    right = told.refused["small"] > 0
    for key in _KEYS:
        least = told.tokens[key]
        most = least + told.broken[key] * _MOST
        used = found[f"key {key}"]
        right = right and least <= used <= most
        print(f"{key}: {told.complete[key]} answers, {told.broken[key]} broke off, {told.refused[key]} refused; ", end="")
        print(f"told {least} tokens, charged {used}")
    team = found["team red"] == found["key alice"] + found["key bob"]
    small = found["key small"] <= _SMALL + args.clients * _MOST
    print(f"the team has the sum of its keys: {team}; the small quota held: {small}")
    return right and team and small


def settings_of(redis: int, backend: int, port: int) -> dict[str, Any]:
    """Return the settings of a gateway."""
    entries: dict[str, Any] = {name: {"hash": [hash_of(key)], "tokens_per_month": 10**9} for name, key in _KEYS.items()}
    entries["small"]["tokens_per_month"] = _SMALL
    for name in ("alice", "bob"):
        entries[name]["team"] = "red"
    return {
        "backend": f"http://127.0.0.1:{backend}", "port": port, "store": "none", "log_level": "error", "adapt": False,
        "events": f"redis://127.0.0.1:{redis}/0", "api_keys": entries, "admin_key": _ADMIN,
        "teams": {"red": {"tokens_per_month": 10**9}}, "ui": "open",
    }  # fmt: skip


def main() -> int:
    """Start everything, measure, and return the status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--kill", type=float, default=25)
    parser.add_argument("--outage", type=float, default=60)
    args = parser.parse_args()
    ports = [free_port() for _ in range(4)]
    redis_port, backend, *own = ports
    with TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        files = [folder / f"gateway-{port}.yaml" for port in own]
        for file, port in zip(files, own, strict=True):
            file.write_text(json.dumps(settings_of(redis_port, backend, port)), encoding="utf-8")
        started = []
        for command in (
            ("redis-server", "--port", str(redis_port), "--save", "", "--dir", name),
            (*_COMMAND, "simulate", "--port", str(backend)),
        ):
            started.append(Popen(command, stdout=DEVNULL, stderr=DEVNULL))
            stack.callback(started[-1].wait)
            stack.callback(started[-1].terminate)
        gateways = Gateways(files, own)
        stack.callback(gateways.stop)
        return int(not asyncio.run(measure(gateways, started[0], args)))


if __name__ == "__main__":
    sys.exit(main())
