"""A backend that falls silent: signs of life for the client, which are true, and an end when it lasts too long."""

from __future__ import annotations

from typing import Any

import pytest

from tests.server.running_gateway import LOOPS, RawClient, assert_error, body_of, events_of, final_of, gateway, post, run, until
from tests.server.scripted_backend import HEAD, PHASES, UNFINISHED, Connection, backend, chat_stream

WEATHER = {"type": "function", "name": "get_weather", "parameters": {"type": "object"}}
# The finished items in a snapshot, by phase: one that is still open is not among them.
FINISHED = {
    "before the first token": [],
    "role": [],
    "reasoning": [],
    "text": ["reasoning"],
    "arguments": ["reasoning", "message"],
}


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("phase", UNFINISHED)
def test_silence_that_lasts_too_long_ends_the_stream(phase: str, loop: str) -> None:
    async def play(connection: Connection) -> None:
        connection.write(HEAD)
        connection.send(*chat_stream()[: PHASES[phase]])
        await connection.lost

    async def test() -> None:
        async with backend(play) as behind, gateway(behind.url, idle_timeout=0.75) as served:
            final = (await post(served, tools=[WEATHER])).final
            assert (final["status"], final["error"]["code"]) == ("failed", "server_error")
            assert "0.75 seconds" in final["error"]["message"]
            assert_error(await post(served, tools=[WEATHER], stream=False), 504, "server_error")
            await until(lambda: all(connection.lost.done() for connection in behind.connections))

    run(test(), loop)


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("stream", [True, False])
def test_a_backend_that_never_gives_a_status(stream: bool, loop: str) -> None:
    async def play(connection: Connection) -> None:
        await connection.lost

    async def test() -> None:
        async with backend(play) as behind, gateway(behind.url, idle_timeout=0.25) as served:
            assert_error(await post(served, stream=stream), 504, "server_error")
            await behind.connections[0].lost
        async with backend(play) as behind, gateway(behind.url, idle_timeout=0.25, header_grace=0) as served:
            answer = await post(served, stream=stream)
            if stream:
                assert answer.final["status"] == "failed"
            else:
                assert_error(answer, 504, "server_error")

    run(test(), loop)


@pytest.mark.parametrize("phase", UNFINISHED)
def test_keep_alives_tell_what_is_finished(phase: str) -> None:
    async def test() -> None:
        connections: list[Connection] = []

        async def play(connection: Connection) -> None:
            connections.append(connection)
            connection.write(HEAD)
            connection.send(*chat_stream()[: PHASES[phase]])

        async with backend(play) as behind, gateway(behind.url, keepalive_comment=0.01, keepalive_event=0.1) as served:
            client = await RawClient.connect(served)
            await client.post(tools=[WEATHER])
            while client.received.count(b"event: response.in_progress") < 4 or b"\n:" not in client.received:
                assert await client.read()
            connections[0].send(*chat_stream()[PHASES[phase] :])
            connections[0].end()
            await client.read_until(b"\r\n0\r\n\r\n")
            client.close()
            body = body_of(client.received)
            assert final_of(body)["status"] == "completed"
            snapshots = [event["response"] for event in events_of(body) if event["type"] == "response.in_progress"][1:]
            assert all([item["type"] for item in one["output"]] == FINISHED[phase] for one in snapshots[1:3])
            assert body.count(b"\n:") + body.startswith(b":") > 0
            assert served.metric("keep_alives_total", kind="event") == len(snapshots)

    run(test())


def test_keep_alives_can_be_switched_off() -> None:
    async def play(connection: Connection) -> None:
        connection.write(HEAD)
        await connection.lost

    async def test() -> None:
        settings: dict[str, Any] = {"keepalive_comment": 0, "keepalive_event": 0, "idle_timeout": 0.2}
        async with backend(play) as behind, gateway(behind.url, **settings) as served:
            answer = await post(served)
            assert [event["type"] for event in answer.events] == [
                "response.created", "response.in_progress", "response.failed",
            ]  # fmt: skip
            assert b"\n:" not in answer.body

    run(test())


def test_a_stream_that_speaks_now_and_then_is_not_silent() -> None:
    async def test() -> None:
        async def play(connection: Connection) -> None:
            connection.write(HEAD)
            for piece in chat_stream()[: PHASES["finished"]]:
                before = served.metric("keep_alives_total", kind="comment")
                await until(lambda: served.metric("keep_alives_total", kind="comment") > before)  # noqa: B023
                connection.send(piece)
            # At once, because the gateway ends a finished answer whose body goes on: no comment may come after that.
            connection.send(*chat_stream()[PHASES["finished"] :])
            connection.end()

        settings: dict[str, Any] = {"keepalive_comment": 0.1, "keepalive_event": 0, "idle_timeout": 0.6}
        async with backend(play) as behind, gateway(behind.url, **settings) as served:
            assert (await post(served, tools=[WEATHER])).final["status"] == "completed"

    run(test())
