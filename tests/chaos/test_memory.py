"""The memory of a request that was answered is free when it is over, not when the collector of cycles comes, minutes later."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest

from proxy.server.generation.create import Creation
from proxy.server.generation.generation import Generation
from proxy.stream.translator import Translator
from tests.server.harness import post, run, simulated, until


@pytest.fixture
def _uncollected() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def alive() -> int:
    """How many parts of requests there are; other tests may have left some."""
    return sum(isinstance(one, Creation | Generation | Translator) for one in gc.get_objects())


@pytest.mark.usefixtures("_uncollected")
@pytest.mark.parametrize(
    "question",
    [
        {"input": "scenario: demo"},
        {"input": "scenario: demo", "stream": False},
        {"input": "scenario: demo", "store": True},
    ],
    ids=["streamed", "whole", "stored"],
)
def test_a_request_leaves_nothing(question: dict[str, Any]) -> None:
    async def test() -> None:
        async with simulated(store="memory") as served:
            before = alive()
            for _ in range(3):
                await post(served, question)
            await until(lambda: alive() <= before, "nothing is left")

    run(test())
