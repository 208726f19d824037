"""A disk without a byte left, a real one: answers go on, what was stored is there, and what is not stored says so."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.chaos.faults import Place, ask, fill, small_disk
from tests.ports import free_port
from tests.server.gateway_process import ROOT, program
from tests.server.running_gateway import assert_error, run, until
from tests.waiting import PATIENCE

FAST = "scenario: plain tps: 2000"


def test_under_the_store(tmp_path: Path) -> None:
    async def test() -> None:
        with small_disk(tmp_path / "disk", 2048) as disk:
            async with program("--simulator", "--no-adapt", "--store", str(disk / "x.sqlite3")) as running:
                first = (await ask(running, input=FAST)).final["id"]
                ballast = fill(disk)
                unsaved = [(await ask(running, input=f"{FAST} {'long ' * 2000} {n}")).final for n in range(5)]
                assert {response["status"] for response in unsaved} == {"completed"}
                assert unsaved[-1]["store"] is False
                kept = [response["id"] for response in unsaved if response["store"]]  # there was room in its files yet
                assert_error(await ask(running, background=True, stream=False, input="x" * 100_000), 503)
                assert (await ask(running, previous_response_id=first, store=False, input=FAST)).final["status"] == "completed"
                await running.says("not stored")
                ballast.unlink()
                late = (await ask(running, input=FAST)).final
                assert late["store"] is True
                for name in (first, *kept, late["id"]):
                    assert (await ask(running, "GET", f"/v1/responses/{name}")).status == 200
                assert_error(await ask(running, "GET", f"/v1/responses/{unsaved[-1]['id']}"), 404)
                assert "Traceback" not in running.said

    run(test())


def test_under_the_log(tmp_path: Path) -> None:
    """Answers, keep-alives and time limits do not depend on a log that can be written; it says afterwards what it lost."""

    async def test() -> None:
        with small_disk(tmp_path / "disk", 64) as disk:
            async with logging_to(disk / "log") as served:
                ballast = fill(disk)
                for _ in range(30):  # the log has room to the end of its block
                    assert (await ask(served, input=FAST)).final["status"] == "completed"
                answer = await ask(served, input="fault: silence=30 tps: 2000")
                assert "sent nothing for 1 seconds" in answer.final["error"]["message"]
                assert b": keep-alive" in answer.body
                ballast.unlink()
                assert (await ask(served, input=FAST)).final["status"] == "completed"
                await until(lambda: "log lines lost" in (disk / "log").read_text(encoding="utf-8"), "the log goes on")

    run(test())


@asynccontextmanager
async def logging_to(log: Path) -> AsyncIterator[Place]:
    """Run a gateway that writes its log to a file."""
    port = free_port()
    flags = ("--simulator", "--no-adapt", "--store", "none", "--idle-timeout", "1", "--keepalive-comment", "0.3")
    with log.open("ab") as file:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "responses_gateway", "serve", "--port", str(port), *flags, cwd=ROOT, stderr=file
        )
    try:
        await until(lambda: " listening " in log.read_text(encoding="utf-8"), "it listens")
        yield Place(f"http://127.0.0.1:{port}")
    finally:
        process.terminate()
        await asyncio.wait_for(process.wait(), PATIENCE)
