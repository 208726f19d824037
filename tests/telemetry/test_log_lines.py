"""The log line of a response: what the model did and what the client got are two things."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from tests.log_lines import Line, log_lines
from tests.server.running_gateway import RawClient, gateway, post, run, until
from tests.server.scripted_backend import HEAD, Connection, backend, chat_stream, refusing, streaming, text_stream

WEATHER = {"type": "function", "name": "get_weather", "parameters": {"type": "object"}}


@pytest.fixture
def lines() -> Iterator[Callable[[], list[Line]]]:
    """Return the lines of responses that were written so far."""
    with log_lines() as written:
        yield partial(written, "response")


def asked(play: Any, **fields: Any) -> str:
    """Ask once; returns the backend's address."""
    address: list[str] = []

    async def test() -> None:
        async with backend(play) as behind, gateway(behind.url, access_log=True, store="memory") as served:
            await post(served, model="m", tools=[WEATHER], **fields)
            await until(lambda: not served.parts.in_flight.activities)
            address.append(behind.url.removeprefix("http://"))

    run(test())
    return address[0]


def test_a_good_response(lines: Callable[[], list[Line]]) -> None:
    address = asked(streaming(*chat_stream()), headers={"X-Request-Id": "my-id"})
    (line,) = lines()
    expected = {
        "level": "info", "request_id": "my-id", "model": "m", "backend": address, "stream": True, "outcome": "completed",
        "delivery": "complete", "input_tokens": 9, "cached_tokens": 4, "output_tokens": 7, "reasoning_tokens": 2,
        "finish_reason": "stop", "items": 3, "method": "POST", "path": "/v1/responses", "status": 200, "client": "127.0.0.1",
    }  # fmt: skip
    assert line.items() >= expected.items()
    assert 0 <= line["backend_called"] <= line["first_token"] <= line["first_visible"] <= line["seconds"] < 5
    assert line.keys().isdisjoint({"error", "code", "phase", "repairs"})


@pytest.mark.parametrize(
    ("play", "fields", "outcome", "status", "code"),
    [
        (refusing(500, b"{}"), {}, "failed", 502, "server_error"),
        (refusing(429, b"{}"), {}, "rejected", 429, "rate_limit_exceeded"),
        (streaming(*chat_stream()[:4]), {}, "failed", 200, "server_error"),
        (streaming(), {"temperature": "hot"}, "rejected", 400, "invalid_type"),
    ],
)
def test_what_fails(lines: Any, play: Any, fields: Line, outcome: str, status: int, code: str) -> None:
    asked(play, **fields)
    (line,) = lines()
    assert (line["level"], line["outcome"], line["delivery"]) == ("warning", outcome, "complete")
    assert (line["status"], line["code"]) == (status, code)


def test_in_the_background_nobody_waits(lines: Callable[[], list[Line]]) -> None:
    asked(streaming(*chat_stream()), background=True, stream=False)
    (line,) = lines()
    assert (line["outcome"], line["delivery"]) == ("completed", "detached")


def test_a_client_that_leaves_while_the_model_works(lines: Callable[[], list[Line]]) -> None:
    async def play(connection: Connection) -> None:
        connection.write(HEAD)
        connection.send(*chat_stream()[:4])
        await connection.lost

    async def test() -> None:
        async with backend(play) as behind, gateway(behind.url, access_log=True) as served:
            client = await RawClient.connect(served)
            await client.post(model="m")
            await client.read_until(b"output_text.delta")
            client.close()
            await until(lambda: not served.parts.in_flight.activities)

    run(test())
    (line,) = lines()
    assert (line["level"], line["outcome"], line["delivery"], line["phase"]) == ("info", "cancelled", "client_left", "stream")


def test_a_client_that_leaves_before_it_has_read_what_is_complete(lines: Callable[[], list[Line]]) -> None:
    async def test() -> None:
        async with (
            backend(streaming(*text_stream("x" * 30_000))) as behind,
            gateway(behind.url, access_log=True, send_buffer=4096) as served,
        ):
            client = await RawClient.connect(served, receive_buffer=4096)
            await client.post(model="m")
            await until(lambda: any(one.slow for one in served.parts.in_flight.activities), "slow")
            client.reset()
            await until(lambda: not served.parts.in_flight.activities)

    run(test())
    (line,) = lines()
    assert (line["outcome"], line["delivery"]) == ("completed", "client_left")


def test_a_name_that_a_client_made_up_does_not_fill_the_log(lines: Callable[[], list[Line]]) -> None:
    async def test() -> None:
        async with backend(refusing(404, b"{}")) as behind, gateway(behind.url, access_log=True) as served:
            await post(served, model="m" * 4096)

    run(test())
    (line,) = lines()
    assert line["model"] == "m" * 200
