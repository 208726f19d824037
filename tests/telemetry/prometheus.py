"""A real Prometheus that scrapes gateways four times a second, for as long as a test wants."""

from __future__ import annotations

import asyncio
import json
import math
import shutil
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from tests.waiting import PATIENCE

PROMETHEUS = shutil.which("prometheus")
PROMTOOL = shutil.which("promtool")
Sample = tuple[dict[str, str], float]


@dataclass
class Prometheus:
    """A running one."""

    url: str
    session: aiohttp.ClientSession

    async def ask(self, path: str, **parameters: str) -> Any:
        """Return the data of an answer. Fails the test for a query that is refused."""
        async with self.session.get(f"{self.url}/api/v1/{path}", params=parameters) as answer:
            body = await answer.json()
        assert body["status"] == "success", (parameters, body)
        return body["data"]

    async def query(self, expression: str) -> list[Sample]:
        """Return the samples of an instant query; a number that is none is left out, as a picture would leave it out."""
        result = (await self.ask("query", query=expression))["result"]
        found = [(sample["metric"], float(sample["value"][1])) for sample in result]
        return [(labels, value) for labels, value in found if not math.isnan(value)]

    async def value(self, expression: str) -> float | None:
        """Return the only sample of a query, if there is one."""
        found = await self.query(expression)
        return found[0][1] if found else None

    async def wait_for(self, expression: str, seconds: float = PATIENCE) -> None:
        """Wait until a query has an answer."""
        async with asyncio.timeout(seconds):
            while not await self.query(expression):  # noqa: ASYNC110  (another process: there is no event to wait for)
                await asyncio.sleep(0.05)


@asynccontextmanager
async def prometheus(folder: Path, targets: Sequence[str], rules: Sequence[Path]) -> AsyncIterator[Prometheus]:
    """Scrape these (`host:port`) under the job `responses-gateway`, with these files of rules. Keeps its data in `folder`."""
    assert PROMETHEUS is not None
    config = {
        "global": {"scrape_interval": "250ms", "scrape_timeout": "250ms", "evaluation_interval": "250ms"},
        "rule_files": [str(path) for path in rules],
        "scrape_configs": [{"job_name": "responses-gateway", "static_configs": [{"targets": list(targets)}]}],
    }
    (folder / "prometheus.yml").write_text(json.dumps(config), encoding="utf-8")  # which is YAML as well
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    options = [
        f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={address}", "--log.level=warn",
    ]  # fmt: skip
    with (folder / "log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(PROMETHEUS, *options, stdout=log, stderr=log)
        try:
            async with aiohttp.ClientSession() as session:
                await _ready(session, address, process)
                yield Prometheus(f"http://{address}", session)
        finally:
            process.kill()
            await process.wait()


async def _ready(session: aiohttp.ClientSession, address: str, process: asyncio.subprocess.Process) -> None:
    async with asyncio.timeout(PATIENCE):
        while process.returncode is None:
            try:
                async with session.get(f"http://{address}/-/ready") as answer:
                    if answer.status == 200:
                        return
            except aiohttp.ClientConnectionError:
                pass
            await asyncio.sleep(0.05)
    raise AssertionError("prometheus did not start: its log is in the test's folder")
