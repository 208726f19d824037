"""A source of EndpointSlices that is followed, and what it has reported."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from responses_gateway.backend.discovery.interface import Target
from responses_gateway.backend.discovery.kubernetes import KubernetesSource
from tests.backend.discovery.api_server import ApiServer

READY = {"ready": True, "serving": True, "terminating": False}


class Followed:
    """What a source has reported."""

    def __init__(self) -> None:
        self.targets: Sequence[Target] = ()
        self.problem: str | None = None
        self.problems: list[str] = []

    def __call__(self, targets: Sequence[Target] | None, problem: str = "") -> None:
        self.targets = self.targets if targets is None else targets
        self.problem = problem
        self.problems += [problem] if problem else []

    @property
    def members(self) -> dict[str, bool]:
        return {target.address: target.draining for target in self.targets}


@asynccontextmanager
async def following(server: ApiServer, folder: Path, **fields: Any) -> AsyncIterator[Followed]:
    source = KubernetesSource("vllm", "models", api=server.url, credentials=folder, **fields)
    found = Followed()
    task = asyncio.create_task(source.watch(found))
    try:
        yield found
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
