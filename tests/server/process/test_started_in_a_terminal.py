"""A gateway that was started in a terminal: what its user reads there, and Ctrl-C."""

from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import re
import sys
import termios
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from responses_gateway.simulator import SimulatorOptions, create_app, serving
from tests.ports import free_port
from tests.server.running_gateway import RawClient, body_of, final_of, run, until
from tests.waiting import PATIENCE

ROOT = Path(__file__).parents[3]
CTRL_C = b"\x03"


class Terminal:
    """A terminal, and the gateway that runs in it."""

    def __init__(self, terminal: int, process: asyncio.subprocess.Process) -> None:
        self._terminal = terminal
        self.process = process
        self.shown = ""
        asyncio.get_running_loop().add_reader(terminal, self._read)

    @property
    def port(self) -> int:
        found = re.search(r"listening url=http://127\.0\.0\.1:(\d+)", self.shown)
        assert found, self.shown
        return int(found[1])

    async def shows(self, text: str) -> None:
        await until(lambda: text in self.shown, f"{text!r} in a terminal")

    def type(self, keys: bytes) -> None:
        os.write(self._terminal, keys)

    def _read(self) -> None:
        try:
            self.shown += os.read(self._terminal, 65536).decode(errors="replace")
        except OSError:  # Linux reports so that the program has ended
            asyncio.get_running_loop().remove_reader(self._terminal)


@asynccontextmanager
async def terminal(*flags: str) -> AsyncIterator[Terminal]:
    """Run `serve` in a terminal of its own, which Ctrl-C can be typed into."""
    ours, its = pty.openpty()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RESPONSES_GATEWAY")}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "responses_gateway", "serve", "--port", "0", "--store", "memory", *flags,
        cwd=ROOT, env=environment, stdin=its, stdout=its, stderr=its,
        start_new_session=True, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )  # fmt: skip
    os.close(its)
    running = Terminal(ours, process)
    try:
        yield running
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        asyncio.get_running_loop().remove_reader(ours)
        os.close(ours)


@pytest.mark.parametrize("key", ["", "the key of the backend"])
def test_it_is_ready_when_its_backend_answers_and_until_then_says_which_one_does_not(key: str) -> None:
    async def test() -> None:
        port = free_port()
        flags = ["--backend-api-key", key] if key else []
        async with terminal("--backend", f"http://127.0.0.1:{port}", *flags) as window:
            await window.shows(f"no backend answers yet: http://127.0.0.1:{port}/v1")
            assert "ready" not in window.shown
            async with serving(create_app(SimulatorOptions(models=("qwen3",), api_key=key or None)), port=port):
                await window.shows("live")
            assert "The gateway is ready at" in window.shown
            assert '"model": "qwen3"' in window.shown
            for client in ("codex", "claude"):
                assert f"responses-gateway {client} --url http://127.0.0.1:" in window.shown
            assert " request " not in window.shown  # it has sent none to itself

    run(test())


def test_ctrl_c_says_how_many_responses_it_waits_for_and_a_second_one_ends_them() -> None:
    async def test() -> None:
        async with terminal("--simulator", "--drain-timeout", "600") as window:
            await window.shows("live")
            clients = [await RawClient.connect(window) for _ in range(2)]
            for client in clients:
                await client.post(input="scenario: plain tps: 1")
                await client.read_until(b"response.in_progress")
            window.type(CTRL_C)
            await window.shows("Waiting for 2 responses to end, 600 s at most. Ctrl-C again ends them at once.")
            window.type(CTRL_C)
            for client in clients:
                await client.read_all()
                assert final_of(body_of(client.received))["status"] == "failed"
                client.close()
            assert await asyncio.wait_for(window.process.wait(), PATIENCE) == 0

    run(test())


def test_several_workers_are_waited_for_in_one_line(tmp_path: Path) -> None:
    async def test() -> None:
        store = str(tmp_path / "responses.sqlite3")
        async with terminal("--simulator", "--workers", "2", "--store", store, "--drain-timeout", "600") as window:
            await window.shows("live")
            clients = [await RawClient.connect(window) for _ in range(6)]  # with one at least for each worker, nearly always
            for client in clients:
                await client.post(input="scenario: plain tps: 1")
                await client.read_until(b"response.in_progress")
            window.type(CTRL_C)
            await window.shows("Waiting for 6 responses to end, 600 s at most. Ctrl-C again ends them at once.")
            window.type(CTRL_C)
            for client in clients:
                await client.read_all()
                client.close()
            assert await asyncio.wait_for(window.process.wait(), PATIENCE) == 0
            assert window.shown.count("Waiting for") == 1

    run(test())


def test_ctrl_c_with_nothing_under_way_waits_for_nothing() -> None:
    async def test() -> None:
        async with terminal("--simulator") as window:
            await window.shows("live")
            window.type(CTRL_C)
            assert await asyncio.wait_for(window.process.wait(), PATIENCE) == 0
            assert "Waiting" not in window.shown

    run(test())
