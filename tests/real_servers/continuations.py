"""Answers of a real vLLM that break off after each event, and go on at another one: `make oracle`.

Two servers of the tiny model, each behind a relay that cuts a connection where it is told to, as the death of the process does.
Each script is answered undisturbed once; then once for each event after which its stream is cut. What the client gets has to be
the same. `--stride N` cuts after every Nth event only, `--kill` kills the process of a server in the end, group and all.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from tests.real_servers.gateway import gateway
from tests.real_servers.programs import engine
from tests.real_servers.settings import Setting
from tests.real_servers.tiny_model import FOLDER

_CALLS = ("--enable-auto-tool-choice", "--tool-call-parser")
# Server, and what the gateway in front of it needs to be told.
SETTINGS: dict[str, tuple[Setting, tuple[str, ...]]] = {
    "raw": (Setting("raw", "vLLM", questions=False), ("--reasoning-parser", "qwen3", "--tool-call-parser", "hermes")),
    "hermes": (Setting("hermes", "vLLM", ("--reasoning-parser", "qwen3", *_CALLS, "hermes"), questions=False), ()),
    "xml": (
        Setting("xml", "vLLM", ("--reasoning-parser", "qwen3", *_CALLS, "qwen3_coder"), markup="xml", questions=False),
        (),
    ),
    "r1": (
        Setting("r1", "vLLM", ("--reasoning-parser", "deepseek_r1", *_CALLS, "hermes"), markup="r1", questions=False),
        (),
    ),
    "interval": (
        Setting(
            "interval", "vLLM", ("--reasoning-parser", "qwen3", *_CALLS, "hermes", "--stream-interval", "7"), questions=False
        ),
        (),
    ),
}


@dataclass
class Scissors:
    """When the next chat stream is cut: behind so many events; None for never. `events`: how many the last one had."""

    after: int | None = None
    events: int = 0


@asynccontextmanager
async def relay(url: str, scissors: Scissors) -> AsyncIterator[str]:
    """Pass bytes on between the gateway and a server."""
    target = urlsplit(url)
    tasks: set[asyncio.Task[None]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        there, back = await asyncio.open_connection(target.hostname, target.port)
        chat = False

        async def up() -> None:
            nonlocal chat
            while data := await reader.read(1 << 16):
                if data.startswith(b"POST "):
                    chat = data.startswith(b"POST /v1/chat/completions ")
                    scissors.events = 0 if chat else scissors.events
                back.write(data)

        async def down() -> None:
            while data := await there.read(1 << 16):
                for piece in data.splitlines(keepends=True):
                    if chat and piece.startswith(b"data: "):
                        if scissors.after == scissors.events:
                            scissors.after = None
                            writer.transport.abort()
                            return
                        scissors.events += 1
                    writer.write(piece)

        try:
            _, pending = await asyncio.wait(
                {asyncio.create_task(up()), asyncio.create_task(down())}, return_when="FIRST_COMPLETED"
            )
            for other in pending:
                other.cancel()
        finally:
            back.close()
            writer.close()
            tasks.discard(task)

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for task in tasks:
            task.cancel()


def questions() -> list[tuple[str, dict[str, Any]]]:
    """Return the scripts that the model knows, as requests."""
    manifest = json.loads((FOLDER.parent / "streams" / "hermes" / "manifest.json").read_text(encoding="utf-8"))
    found: list[tuple[str, dict[str, Any]]] = []
    for stream in manifest["streams"]:
        if stream["step"] or stream["variant"]:
            continue
        asked = stream["request"]
        body: dict[str, Any] = {"model": "tiny", "temperature": 0, "stream": True, "input": asked["messages"]}
        if asked.get("tools"):
            body["tools"] = [{"type": "function", **tool["function"], "strict": False} for tool in asked["tools"]]
        found.append((stream["scenario"], body))
    return found


async def answered(session: aiohttp.ClientSession, url: str, body: dict[str, Any]) -> dict[str, Any]:
    """Return what the final response of a request says: without ids, and without what was in a cache."""
    async with session.post(f"{url}/v1/responses", json=body) as answer:
        lines = (await answer.text()).splitlines()
    events = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    final = events[-1]["response"]
    kinds = [event["type"] for event in events if not event["type"].endswith(".delta")]
    items = [{name: value for name, value in item.items() if name not in ("id", "call_id")} for item in final["output"]]
    usage = final["usage"] and {name: final["usage"][name] for name in ("input_tokens", "output_tokens", "total_tokens")}
    return {"status": final["status"], "output": items, "usage": usage, "events": kinds, "error": final["error"]}


async def sweep(name: str, folder: Path, stride: int, only: set[str]) -> Counter[str]:
    setting, flags = SETTINGS[name]
    scissors = Scissors()
    counts: Counter[str] = Counter()
    with ExitStack() as stack:
        servers = [stack.enter_context(engine(setting, folder / f"{name}{number}")) for number in (1, 2)]
        async with AsyncExitStack() as relays:
            urls = [await relays.enter_async_context(relay(server.url, scissors)) for server in servers]
            backends = [part for url in urls for part in ("--backend", url)]
            patience = (
                "--breaker-failures",
                "100000",
                "--continue-answers",
                "1",
                "--store",
                "none",
                "--no-adapt",
                "--no-access-log",
            )
            opened = gateway(folder / f"{name}-gateway", *backends, *patience, *flags)
            url = await asyncio.to_thread(stack.enter_context, opened)
            async with aiohttp.ClientSession() as session:
                for scenario, body in questions():
                    if only and scenario not in only:
                        continue
                    await answered(session, url, body)  # from which the gateway may learn how the model thinks
                    whole = await answered(session, url, body)
                    events = scissors.events
                    for after in range(1, events, stride):
                        scissors.after = after
                        found = await answered(session, url, body)
                        verdict = "same" if found == whole else "failed" if found["status"] == "failed" else "different"
                        counts[verdict] += 1
                        if verdict != "same":
                            print(f"{name} {scenario} cut after {after} of {events}: {verdict}")
                            print("   ", json.dumps(whole, ensure_ascii=False)[:600])
                            print("   ", json.dumps(found, ensure_ascii=False)[:600], flush=True)
                    print(f"{name} {scenario}: {events} events, {dict(counts)}", flush=True)
    return counts


def main() -> int:
    parser = argparse.ArgumentParser(description="Cut answers of real vLLM servers, and have another one go on with them.")
    parser.add_argument("settings", nargs="*", default=list(SETTINGS), help=f"which (default: {' '.join(SETTINGS)})")
    parser.add_argument("--stride", type=int, default=1, help="cut after every Nth event (default: 1)")
    parser.add_argument("--only", action="append", default=[], help="a script; may be repeated")
    args = parser.parse_args()
    total: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        for name in args.settings:
            counts = asyncio.run(sweep(name, Path(folder), args.stride, set(args.only)))
            print(f"{name}: {dict(counts)}", flush=True)
            total += counts
    return 0 if set(total) <= {"same"} else 1


if __name__ == "__main__":
    sys.exit(main())
