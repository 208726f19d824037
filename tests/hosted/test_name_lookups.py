"""Look-ups of names that others choose keep nobody else waiting."""

from __future__ import annotations

import asyncio
import socket
from threading import Event
from typing import Any
from unittest import mock

import aiohttp
import pytest

from responses_gateway.hosted.name_lookups import NameLookups
from tests.server.running_gateway import LOOPS, run
from tests.waiting import PATIENCE

MANY = 100  # more than there are threads
real = socket.getaddrinfo


@pytest.mark.parametrize("loop", LOOPS)
def test_names_that_nobody_answers_for_keep_no_other_from_being_looked_up(loop: str) -> None:
    answered = Event()

    def getaddrinfo(host: str, *arguments: Any, **named: Any) -> Any:
        if host != "localhost":
            answered.wait(PATIENCE)
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        return real(host, *arguments, **named)

    async def test() -> None:
        lookups = NameLookups()
        slow = [asyncio.create_task(lookups.resolve(f"slow{number}.example", 80)) for number in range(MANY)]
        await asyncio.sleep(0)
        try:
            resolver = aiohttp.ThreadedResolver()  # the one of connections to backends
            found = await asyncio.wait_for(resolver.resolve("localhost", 80), PATIENCE / 2)
            assert "127.0.0.1" in {address["host"] for address in found}
            assert await asyncio.wait_for(asyncio.to_thread(lambda: "done"), PATIENCE / 2) == "done"
            slow[0].cancel()  # whose thread goes on
        finally:
            answered.set()
        ends = await asyncio.gather(*slow, return_exceptions=True)
        assert {type(end) for end in ends[1:]} == {socket.gaierror}
        assert "127.0.0.1" in {address["host"] for address in await lookups.resolve("localhost", 80)}

    with mock.patch("socket.getaddrinfo", getaddrinfo):
        run(test(), loop)


def test_a_system_without_threads_fails_the_look_up_and_the_next_one_works() -> None:
    async def test() -> None:
        lookups = NameLookups()
        with mock.patch(
            "responses_gateway.hosted.name_lookups.Thread.start", side_effect=RuntimeError("can't start new thread")
        ):
            for _ in range(MANY):
                with pytest.raises(OSError, match="can't start new thread"):
                    await lookups.resolve("localhost", 80)
        assert await lookups.resolve("localhost", 80)

    run(test())


def test_a_name_that_cannot_be_one_is_an_error_as_others_are() -> None:
    async def test() -> None:
        with pytest.raises(OSError, match="label"):
            await NameLookups().resolve("a" * 70 + ".example", 80)

    run(test())
