"""The Responses API over a WebSocket, as Codex speaks it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from responses_gateway.simulator import COUNTERS, RECEIVED, create_app, serving
from tests.judges import judge_stream
from tests.server.running_gateway import (
    LOOPS_OF_LONG_TESTS,
    TERMINALS,
    Served,
    ask,
    assert_error,
    gateway,
    run,
    simulated,
    until,
)
from tests.server.scripted_backend import HEAD, Connection, backend, text_stream
from tests.waiting import PATIENCE

Event = dict[str, Any]
STORES = ["none", "memory"]
ENDLESS = "scenario: long tokens: 5000 tps: 100"


class Socket:
    """One connection."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.raw = socket

    async def send(self, text: str = "scenario: plain", **fields: Any) -> None:
        body = {"type": "response.create", "model": "simulator", "input": text, "store": False, **fields}
        await self.raw.send_str(json.dumps(body))

    async def next(self) -> Event:
        event: Event = json.loads(await self.raw.receive_str(timeout=PATIENCE))
        return event

    async def rest(self) -> list[Event]:
        """Return the events of one response, judged."""
        events = [await self.next()]
        while events[-1]["type"] not in {*TERMINALS, "error"}:
            events.append(await self.next())
        if events[-1]["type"] != "error":
            frames = (f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)
            assert judge_stream(("".join(frames) + "data: [DONE]\n\n").encode(), unfinished_allowed=True) == []
        return events

    async def ask(self, text: str = "scenario: plain", **fields: Any) -> Event:
        await self.send(text, **fields)
        final: Event = (await self.rest())[-1]["response"]
        return final

    async def error(self, text: str = "scenario: plain", **fields: Any) -> Event:
        await self.send(text, **fields)
        (event,) = await self.rest()
        assert event["type"] == "error"
        return {"status": event["status"], **event["error"]}


@asynccontextmanager
async def connect(served: Served, **headers: str) -> AsyncIterator[Socket]:
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(served.url + "/v1/responses", headers=headers, max_msg_size=0) as socket,
    ):
        yield Socket(socket)


@pytest.mark.parametrize("store", STORES)
def test_a_session_sends_only_what_is_new(store: str) -> None:
    """Warm-up, turn, tool output: with nothing stored, over one connection."""
    tool = {"type": "function", "name": "get_weather", "parameters": {"type": "object", "properties": {"city": {}}}}

    async def test() -> None:
        backend = create_app()
        settings: Any = {"store": store, "invariant_sampling": 1.0}
        async with serving(backend) as url, gateway(url, **settings) as served, connect(served) as socket:
            warm = await socket.ask("base prompt", generate=False, tools=[tool])
            assert (warm["status"], warm["output"]) == ("completed", [])
            (prompt,) = backend[RECEIVED]  # the backend has read it, and was asked for one token
            assert prompt["body"]["max_completion_tokens"] == 1
            assert [tool["function"]["name"] for tool in prompt["body"]["tools"]] == ["get_weather"]
            assert warm["usage"]["input_tokens"] > 0
            turn = await socket.ask("scenario: tool", tools=[tool], previous_response_id=warm["id"])
            assert turn["previous_response_id"] == warm["id"]
            assert turn["store"] is False
            call = next(item for item in turn["output"] if item["type"] == "function_call")
            output = {"type": "function_call_output", "call_id": call["call_id"], "output": "sunny"}
            await socket.send("", input=[output], tools=[tool], previous_response_id=turn["id"])
            assert (await socket.rest())[-1]["response"]["status"] == "completed"
            messages = backend[RECEIVED][-1]["body"]["messages"]
            assert [message["role"] for message in messages] == ["user", "user", "assistant", "tool"]
            assert messages[0]["content"] == "base prompt"

    run(test())


@pytest.mark.parametrize("store", STORES)
def test_what_is_not_known_is_an_error_frame(store: str) -> None:
    async def test() -> None:
        async with simulated(store=store) as served:
            async with connect(served) as socket:
                first = await socket.ask()
                unknown = await socket.error(previous_response_id="resp_x")
                assert (unknown["status"], unknown["code"]) == (400, "previous_response_not_found")
                assert (await socket.ask(previous_response_id=first["id"]))["status"] == "completed"
            async with connect(served) as other:
                assert (await other.error(previous_response_id=first["id"]))["code"] == "previous_response_not_found"

    run(test())


def test_a_rollout_that_cannot_have_its_name_is_refused_before_the_handshake() -> None:
    async def test() -> None:
        async with simulated() as served, aiohttp.ClientSession() as session:
            with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                await session.ws_connect(served.url + "/v1/responses", headers={"Authorization": "Bearer sk-abc:no name!"})
            assert refused.value.status == 400

    run(test())


def test_a_continuation_that_failed_is_forgotten() -> None:
    async def test() -> None:
        async with simulated() as served, connect(served) as socket:
            first = await socket.ask()
            lone = {"type": "function_call_output", "call_id": "call_x", "output": "x"}
            await socket.send(input=[lone], previous_response_id=first["id"])
            (error,) = await socket.rest()
            assert (error["status"], error["error"]["code"]) == (400, "tool_call_not_found")
            assert (await socket.error(previous_response_id=first["id"]))["code"] == "previous_response_not_found"

    run(test())


def test_stored_responses_are_those_of_http() -> None:
    async def test() -> None:
        async with simulated(store="memory") as served:
            async with connect(served, Authorization="Bearer a") as socket:
                first = await socket.ask(store=True)
                second = await socket.ask("go on", store=True, previous_response_id=first["id"])
            headers = {"Authorization": "Bearer a"}
            for response in (first, second):
                assert (await ask(served, "GET", f"/v1/responses/{response['id']}", headers=headers)).json == response
            assert_error(await ask(served, "GET", f"/v1/responses/{first['id']}"), 404)
            async with connect(served, Authorization="Bearer a") as socket:
                third = await socket.ask("and on", store=False, previous_response_id=second["id"])
                fourth = await socket.ask("still", store=True, previous_response_id=third["id"])
            listed = await ask(served, "GET", f"/v1/responses/{fourth['id']}/input_items?limit=100", headers=headers)
            assert len([item for item in listed.json["data"] if item.get("role") == "user"]) == 4
            async with connect(served, Authorization="Bearer b") as socket:
                assert (await socket.error(previous_response_id=second["id"]))["code"] == "previous_response_not_found"

    run(test())


def test_errors_of_the_backend_are_frames() -> None:
    async def test() -> None:
        async with simulated() as served, connect(served) as socket:
            error = await socket.error("scenario: plain fault: status=429")
            assert (error["status"], error["code"]) == (429, "rate_limit_exceeded")
            await socket.send("scenario: plain fault: status=429,retry-after=2")
            assert (await socket.next())["headers"] == {"retry-after": "2"}  # without it Codex gives up
            broken = await socket.ask("scenario: plain fault: drop=text")
            assert broken["status"] == "failed"
            assert (await socket.ask())["status"] == "completed"

    run(test())


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ("not json", "invalid_json"),
        ("[]", "invalid_json"),
        ('{"type":"session.update"}', "invalid_value"),
        ('{"type":"response.create","input":"x"}', "missing_required_parameter"),
        ('{"type":"response.create","model":"x","input":"x","background":true}', "unsupported_parameter"),
        ('{"type":"response.create","model":"x","input":"x","conversation":"conv_x"}', "unsupported_parameter"),
    ],
)
def test_a_wrong_message_ends_nothing(message: str, code: str) -> None:
    async def test() -> None:
        async with simulated() as served, connect(served) as socket:
            await socket.raw.send_str(message)
            (event,) = await socket.rest()
            assert (event["type"], event["status"], event["error"]["code"]) == ("error", 400, code)
            assert (await socket.ask())["status"] == "completed"

    run(test())


def test_events_bear_the_name_of_their_message() -> None:
    async def test() -> None:
        async with simulated() as served, connect(served) as socket:
            name = "lane_1.a-Z"
            await socket.send(stream_id=name)
            await socket.send()
            assert {event.get("stream_id") for event in await socket.rest()} == {name}
            assert not any("stream_id" in event for event in await socket.rest())
            await socket.send(stream_id=name, generate=False)
            assert {event.get("stream_id") for event in await socket.rest()} == {name}
            await socket.send(stream_id=name, previous_response_id="resp_x")
            assert (await socket.next())["stream_id"] == name
            assert "stream_id" not in await socket.error(previous_response_id="resp_x")

    run(test())


def test_messages_are_answered_one_after_the_other() -> None:
    async def test() -> None:
        async with simulated() as served, connect(served) as socket:
            for number in range(3):
                await socket.send(f"scenario: plain {number}")
            answers = [await socket.rest() for _ in range(3)]
            texts = [answer[-1]["response"]["output"][-1]["content"][0]["text"] for answer in answers]
            assert [f"plain {number}" in text for number, text in enumerate(texts)] == [True] * 3

    run(test())


def test_a_client_that_leaves_frees_the_backend() -> None:
    async def test() -> None:
        backend = create_app()
        async with serving(backend) as url, gateway(url) as served:
            async with connect(served) as socket:
                await socket.send(ENDLESS)
                await until(lambda: backend[COUNTERS].running, "the backend is at work")
            await until(lambda: not backend[COUNTERS].running, "the backend is free")

    run(test())


def test_a_slow_reader_slows_the_model_and_loses_nothing() -> None:
    async def test() -> None:
        async with simulated() as served, connect(served) as socket:
            await socket.send("tokens: 4000")
            await asyncio.sleep(0.3)
            events = await socket.rest()
            assert [event["sequence_number"] for event in events] == list(range(len(events)))

    run(test())


def test_a_message_that_is_too_large_ends_the_connection() -> None:
    async def test() -> None:
        async with simulated(max_body_bytes=1000) as served, connect(served) as socket:
            await socket.send("x" * 2000)
            message = await socket.raw.receive(timeout=PATIENCE)
            assert (message.type, message.data) == (aiohttp.WSMsgType.CLOSE, aiohttp.WSCloseCode.MESSAGE_TOO_BIG)

    run(test())


def test_a_connection_does_not_last_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Expect the reason for its end, in the middle of a response too, and a free backend."""
    monkeypatch.setattr("responses_gateway.server.resources.websocket.LIFETIME", 0.3)

    async def test() -> None:
        backend = create_app()
        async with serving(backend) as url, gateway(url) as served, connect(served) as socket:
            await socket.send(ENDLESS)
            last = (await socket.rest())[-1]
            assert (last["type"], last["status"]) == ("error", 400)
            assert last["error"]["code"] == "websocket_connection_limit_reached"
            assert (await socket.raw.receive(timeout=PATIENCE)).type == aiohttp.WSMsgType.CLOSE
            await until(lambda: not backend[COUNTERS].running, "the backend is free")

    run(test())


@pytest.mark.slow
def test_a_connection_ends_in_time_though_nobody_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("responses_gateway.server.resources.websocket.LIFETIME", 0.5)
    monkeypatch.setattr("responses_gateway.server.resources.websocket.CLOSE_TIMEOUT", 0.1)

    async def test() -> None:
        async with simulated() as served, connect(served) as socket:
            await socket.send("tokens: 100000")
            await until(lambda: served.parts.in_flight.activities, "it is being answered")
            await until(lambda: not served.parts.in_flight.activities, "it has ended")

    run(test())


def test_pings_are_answered() -> None:
    async def test() -> None:
        async with (
            simulated() as served,
            aiohttp.ClientSession() as session,
            session.ws_connect(served.url + "/v1/responses", autoping=False) as socket,
        ):
            await socket.ping(b"are you there")
            answer = await socket.receive(timeout=PATIENCE)
            assert (answer.type, answer.data) == (aiohttp.WSMsgType.PONG, b"are you there")

    run(test())


def test_a_client_that_answers_no_ping_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("responses_gateway.server.resources.websocket.PING_INTERVAL", 0.2)

    async def test() -> None:
        backend = create_app()
        async with (
            serving(backend) as url,
            gateway(url) as served,
            aiohttp.ClientSession() as session,
            connect(served) as lively,
            session.ws_connect(served.url + "/v1/responses", autoping=False) as silent,
        ):
            await Socket(silent).send(ENDLESS)
            await until(lambda: backend[COUNTERS].running, "the backend is at work")
            waiting = asyncio.create_task(lively.next())  # it answers pings while it reads
            await until(lambda: not backend[COUNTERS].running, "the backend is free")
            await lively.send()
            assert (await waiting)["type"] == "response.created"
            while (await lively.next())["type"] != "response.completed":
                pass

    run(test())


def test_a_warm_up_can_be_stored_and_continued() -> None:
    async def test() -> None:
        backend = create_app()
        async with serving(backend) as url, gateway(url, store="memory") as served:
            async with connect(served) as socket:
                warm = await socket.ask("remember 7", generate=False, store=True)
                assert (warm["status"], warm["output"], len(backend[RECEIVED])) == ("completed", [], 1)
            async with connect(served) as socket:
                await socket.ask("scenario: plain", previous_response_id=warm["id"])
                assert [m["content"] for m in backend[RECEIVED][-1]["body"]["messages"]] == ["remember 7", "scenario: plain"]

    run(test())


def test_it_can_be_switched_off() -> None:
    async def test() -> None:
        async with simulated(websocket=False) as served:
            with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                async with connect(served):
                    pass
            assert refused.value.status == 426
            assert_error(await ask(served, "GET", "/v1/responses"), 426, "websocket_not_supported")

    run(test())


def test_a_gateway_that_stops_says_so() -> None:
    async def test() -> None:
        async with serving(create_app()) as url, aiohttp.ClientSession() as session:
            async with gateway(url) as served:
                socket = await session.ws_connect(served.url + "/v1/responses")
                await Socket(socket).ask()
                leaving = asyncio.create_task(socket.receive())
            assert (await leaving).data == aiohttp.WSCloseCode.GOING_AWAY

    run(test())


def test_a_large_message_is_answered_like_any_other() -> None:
    async def test() -> None:
        async with simulated() as served, connect(served) as socket:
            assert (await socket.ask("scenario: plain" + " " * 300_000))["status"] == "completed"

    run(test())


def test_large_messages_wait_their_turn_at_the_client() -> None:
    """Few of them are held at a time; all are answered, in order."""

    async def test() -> None:
        async with simulated() as served, connect(served) as socket:
            padding = "x" * 300_000
            sending = asyncio.create_task(
                _send_all(socket, [{"text": f"tokens: {3 + number}", "x": padding} for number in range(6)])
            )
            finals = [(await socket.rest())[-1]["response"] for _ in range(6)]
            await sending
            assert [final["usage"]["output_tokens"] for final in finals] == sorted(
                final["usage"]["output_tokens"] for final in finals
            )

    run(test())


@pytest.mark.slow
@pytest.mark.parametrize("loop", LOOPS_OF_LONG_TESTS)
def test_no_more_than_one_large_message_waits_here(loop: str) -> None:
    """The others stay at the client, which cannot send on when the buffers of the system are full."""
    size = 8 * 1024 * 1024
    buffered = socket_buffers() // size + 1
    count = 4 + buffered  # one is answered, one waits, one is on its way into the gateway, one stays at the client
    sent = 0
    turns: list[asyncio.Event] = []

    async def play(connection: Connection) -> None:
        turn = asyncio.Event()
        turns.append(turn)
        await turn.wait()
        connection.write(HEAD)
        connection.send(*text_stream("done"))
        connection.end()

    async def send_all(socket: Socket) -> None:
        nonlocal sent
        for _ in range(count):
            await socket.send("x" * size)
            sent += 1

    async def test() -> None:
        async with backend(play) as behind, gateway(behind.url) as served, connect(served) as socket:
            sending = asyncio.create_task(send_all(socket))
            await until(lambda: turns and sent >= 2, "one is answered, the next waits")
            assert (await ask(served, "GET", "/health")).status == 200
            assert sent <= 3 + buffered
            assert served.metric("request_body_bytes") < 2.5 * size
            for number in range(count):
                await until(lambda: len(turns) > number)  # noqa: B023 (called at once)
                turns[number].set()
                assert (await socket.rest())[-1]["type"] == "response.completed"
                assert served.metric("request_body_bytes") < 2.5 * size
            await sending

    run(test(), loop)


def test_a_client_whose_messages_wait_is_not_taken_for_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is read from it, so that its answers to pings would not be seen either."""
    monkeypatch.setattr("responses_gateway.server.resources.websocket.PING_INTERVAL", 0.5)
    monkeypatch.setattr("responses_gateway.server.resources.websocket.LONGEST_PAUSE", 0.05)

    async def test() -> None:
        async with simulated() as served, connect(served) as socket:
            await socket.send("tokens: 90 tps: 60")
            await socket.send("scenario: plain", x="x" * 5_000_000)
            assert [(await socket.rest())[-1]["type"] for _ in range(2)] == ["response.completed"] * 2

    run(test())


def socket_buffers() -> int:
    """Return how many bytes the system may hold between two ends of a connection."""
    limits = (Path("/proc/sys/net/ipv4/tcp_rmem"), Path("/proc/sys/net/ipv4/tcp_wmem"))
    return sum(int(limit.read_text().split()[-1]) if limit.exists() else 8 * 1024 * 1024 for limit in limits)


async def _send_all(socket: Socket, messages: list[dict[str, Any]]) -> None:
    for message in messages:
        await socket.send(**message)
