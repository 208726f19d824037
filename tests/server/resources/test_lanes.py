"""Lanes of a WebSocket, as OpenAI's contract has them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from responses_gateway.conformance.checker import check_stream
from responses_gateway.simulator import COUNTERS, RECEIVED, create_app, serving
from tests.log_lines import log_lines
from tests.server.resources.test_socket_messages import say
from tests.server.resources.test_websocket_resource import ENDLESS, STORES, Event, Socket, connect
from tests.server.running_gateway import TERMINALS, Served, gateway, run, simulated, until
from tests.server.scripted_backend import HEAD, Connection, backend, text_stream

ENDS = {*TERMINALS, "error"}


class Gates:
    """A backend that answers each request when its gate is opened, by its last message."""

    def __init__(self) -> None:
        self.running: dict[str, asyncio.Future[bytes]] = {}
        self.prompts: dict[str, list[str]] = {}  # what users said in each request
        self.most = 0  # that ran at the same time

    async def play(self, connection: Connection) -> None:
        messages = json.loads(connection.request.partition(b"\r\n\r\n")[2])["messages"]
        said = [message["content"] for message in messages if message["role"] == "user"]
        name = said[-1]
        gate = self.running[name] = asyncio.get_running_loop().create_future()
        self.prompts[name] = said
        self.most = max(self.most, len(self.running))
        try:
            connection.write(head := await gate)
            if head is HEAD:
                connection.send(*text_stream(name))
                connection.end()
        finally:
            del self.running[name]

    def open(self, *names: str) -> None:
        for name in names:
            self.running[name].set_result(HEAD)

    def refuse(self, name: str) -> None:
        body = b'{"error": {"message": "no", "type": "BadRequestError"}}'
        head = b"HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
        self.running[name].set_result(head + body)


class Reader:
    """Reads a connection, and sorts its events by lane."""

    def __init__(self, socket: Socket) -> None:
        self.socket = socket
        self.events: dict[str | None, list[Event]] = {}

    async def read(self) -> Event:
        event = await self.socket.next()
        self.events.setdefault(event.get("stream_id"), []).append(event)
        return event

    async def end(self, lane: str | None) -> Event:
        """Return the last event of what is answered in a lane."""
        event = await self.read()
        while event.get("stream_id") != lane or event["type"] not in ENDS:
            event = await self.read()
        return event

    def judged(self) -> None:
        """Check every response of every lane."""
        for lane_events in self.events.values():
            events = [event for event in lane_events if event.get("error", {}).get("code") != "response_not_found"]
            frames = ""
            for event in events:
                frames += f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" if event["type"] != "error" else ""
                if event["type"] in TERMINALS:
                    assert check_stream((frames + "data: [DONE]\n\n").encode()) == []
                    frames = ""
            assert frames == ""


@asynccontextmanager
async def gated(**settings: Any) -> AsyncIterator[tuple[Gates, Served, Reader]]:
    gates = Gates()
    async with (
        backend(gates.play) as behind,
        gateway(behind.url, **settings) as served,
        connect(served) as socket,
    ):
        yield gates, served, Reader(socket)


async def send(reader: Reader, text: str, lane: str | None = None, **fields: Any) -> None:
    named = {} if lane is None else {"stream_id": lane}
    await reader.socket.send(text, **named, **fields)


@pytest.mark.parametrize("slow", [None, "slow"])
def test_a_slow_lane_holds_no_other(slow: str | None) -> None:
    """While two dozen requests wait in it, each of which is answered in its turn."""
    names = [f"slow {number}" for number in range(25)]

    async def test() -> None:
        async with gated() as (gates, _, reader):
            for name in names:
                await send(reader, name, slow)
            await until(lambda: gates.running)
            for number in range(3):
                await send(reader, f"fast {number}", "fast")
                await until(lambda: len(gates.running) == 2)
                gates.open(f"fast {number}")
                assert (await reader.end("fast"))["type"] == "response.completed"
            await send(reader, "other", None if slow else "other")
            await until(lambda: "other" in gates.running)
            gates.open("other")
            await reader.end(None if slow else "other")
            assert list(gates.running) == names[:1]
            for name in names:
                await until(lambda: gates.running)
                assert list(gates.running) == [name]
                gates.open(name)
                final = (await reader.end(slow))["response"]
                assert final["output"][0]["content"][0]["text"] == name
            reader.judged()

    run(test())


def test_messages_that_run_at_once_have_ids_of_their_own() -> None:
    """vLLM before 0.14 refuses an id that another request has that runs."""
    running: set[str] = set()

    @web.middleware
    async def refusing(request: web.Request, handler: Any) -> web.StreamResponse:
        request_id = request.headers["X-Request-Id"]
        if request_id in running:
            return web.json_response({"error": {"message": f"Request id {request_id} already running."}}, status=400)
        running.add(request_id)
        try:
            answer: web.StreamResponse = await handler(request)
        finally:
            running.remove(request_id)
        return answer

    async def test() -> None:
        app = create_app()
        app.middlewares.insert(0, refusing)
        with log_lines() as written:
            async with serving(app) as url, gateway(url, access_log=True) as served:
                async with connect(served, **{"X-Request-Id": "mine"}) as socket:
                    reader = Reader(socket)
                    await send(reader, "scenario: plain fault: silence=600", "a")
                    await until(lambda: running)
                    await send(reader, "scenario: plain", "b")
                    assert (await reader.end("b"))["type"] == "response.completed"
                await until(lambda: not served.parts.in_flight.activities)
        lines = written("response")
        assert [line["request_id"] for line in lines] == ["mine.2", "mine"]
        assert len({line["backend_request_id"] for line in lines}) == 2

    run(test())


def test_sixteen_responses_are_made_at_the_same_time() -> None:
    async def test() -> None:
        async with gated() as (gates, _, reader):
            for number in range(18):
                await send(reader, f"r{number}", f"lane-{number}")
            await until(lambda: len(gates.running) == 16)
            await send(reader, "r0 again", "lane-0")  # has had its turn: the others come first
            gates.open("r0")
            await until(lambda: "r16" in gates.running)
            gates.open("r1")
            await until(lambda: "r17" in gates.running)
            assert "r0 again" not in gates.running
            gates.open(*list(gates.running))
            await until(lambda: "r0 again" in gates.running)
            gates.open("r0 again")
            await reader.end("lane-0")
            while sum(event["type"] in ENDS for events in reader.events.values() for event in events) < 19:
                await reader.read()
            assert gates.most == 16
            reader.judged()

    run(test())


def test_a_request_with_half_a_character_is_answered_in_its_lane() -> None:
    async def test() -> None:
        async with simulated() as served, connect(served) as socket:
            await socket.send("cut \ud83d", stream_id="l1")
            events = await socket.rest()
            assert {event["stream_id"] for event in events} == {"l1"}
            assert events[-1]["response"]["status"] == "completed"

    run(test())


def test_a_connection_has_thirty_two_names() -> None:
    """None is free again, and none that was refused counts."""

    async def test() -> None:
        async with simulated() as served, connect(served) as socket:
            for name in ("", "ä", "a b", "x" * 257, 'lane "1"\n', 7, ["a"], {}, True):
                await socket.send(stream_id=name)
                error = await socket.next()
                assert (error["type"], error["status"], "stream_id" in error) == ("error", 400, False)
                assert (error["error"]["code"], error["error"]["param"]) == ("invalid_stream_id", "stream_id")
            names = [f"l{number}" for number in range(31)] + ["x" * 256]
            for name in names:
                await socket.send(
                    "scenario: plain", stream_id=name, **({"previous_response_id": "resp_x"} if name == "l3" else {})
                )
                assert {event["stream_id"] for event in await socket.rest()} == {name}
            for name in ("another", "Az09_.-"):
                await socket.send(stream_id=name)
                error = await socket.next()
                assert (error["type"], error["status"], error["stream_id"]) == ("error", 400, name)
                assert (error["error"]["code"], error["error"]["param"]) == ("websocket_stream_limit_reached", "stream_id")
            await socket.send(stream_id=names[-1])
            assert (await socket.rest())[-1]["type"] == "response.completed"
            await socket.send(stream_id=None)
            assert not any("stream_id" in event for event in await socket.rest())
            async with connect(served) as other:
                await other.send(stream_id="another")
                assert (await other.rest())[-1]["stream_id"] == "another"

    run(test())


@pytest.mark.parametrize("key", ["stream_id", "str\\u0065am_id"], ids=["plain", "escaped"])
@pytest.mark.parametrize("padding", [0, 300_000])
def test_a_lane_is_known_however_it_is_written(key: str, padding: int) -> None:
    async def test() -> None:
        async with gated() as (gates, _, reader):
            await send(reader, "slow")
            await until(lambda: gates.running)
            text = '{"model": "m", "input": "fast", "store": false, "type": "response.create", "x": "%s", "%s": "fast"}'
            await reader.socket.raw.send_str(text % ("x" * padding, key))
            await until(lambda: "fast" in gates.running)
            gates.open("fast")
            assert (await reader.end("fast"))["type"] == "response.completed"
            gates.open("slow")
            await reader.end(None)

    run(test())


def test_an_error_comes_in_its_lane_and_disturbs_no_other() -> None:
    async def test() -> None:
        async with gated() as (gates, _, reader):
            await send(reader, "first", "a")
            await send(reader, "x", "b", previous_response_id="resp_x")
            assert (await reader.end("b"))["error"]["code"] == "previous_response_not_found"
            await send(reader, "x", "b", temperature="hot")
            assert (await reader.end("b"))["error"]["param"] == "temperature"
            await send(reader, "refused", "b")
            await until(lambda: "refused" in gates.running)
            gates.refuse("refused")
            assert (await reader.end("b"))["status"] == 400
            await send(reader, "x", previous_response_id="resp_x")
            assert "stream_id" not in await reader.end(None)
            gates.open("first")
            assert (await reader.end("a"))["type"] == "response.completed"
            reader.judged()

    run(test())


@pytest.mark.parametrize("store", STORES)
def test_a_response_is_continued_in_any_lane(store: str) -> None:
    async def test() -> None:
        async with gated(store=store) as (gates, _, reader):

            async def ask(text: str, lane: str | None, **fields: Any) -> str:
                await send(reader, text, lane, **fields)
                await until(lambda: text in gates.running)
                gates.open(text)
                made: str = (await reader.end(lane))["response"]["id"]
                return made

            first = await ask("one", "a")
            second = await ask("two", "a", previous_response_id=first)
            fork = await ask("three", "b", previous_response_id=first)
            await ask("four", None, previous_response_id=first)
            await ask("five", "b", previous_response_id=second)
            await ask("six", "a", previous_response_id=fork)
            assert gates.prompts["five"] == ["one", "two", "five"]
            assert gates.prompts["six"] == ["one", "three", "six"]
            await ask("seven", "a", previous_response_id=first)
            reader.judged()

    run(test())


@pytest.mark.parametrize("how", ["refused", "wrong", "unreadable parameter"])
@pytest.mark.parametrize("lane", ["a", "b", None])
def test_only_a_failure_in_its_own_lane_forgets_a_response(how: str, lane: str | None) -> None:
    wrong: dict[str, Any] = {
        "refused": {"text": "fault: status=400"},
        "wrong": {"input": [{"type": "function_call_output", "call_id": "c", "output": "x"}]},
        "unreadable parameter": {"temperature": "hot"},
    }

    async def test() -> None:
        async with simulated() as served, connect(served) as socket:
            first = await socket.ask(stream_id="a")
            await socket.send(**({} if lane is None else {"stream_id": lane}), previous_response_id=first["id"], **wrong[how])
            (error,) = await socket.rest()
            assert (error["status"], error.get("stream_id")) == (400, lane)
            await socket.send(stream_id="a", previous_response_id=first["id"])
            last = (await socket.rest())[-1]
            if lane == "a":
                assert last["error"]["code"] == "previous_response_not_found"
            else:
                assert last["response"]["status"] == "completed"

    run(test())


def test_a_fork_that_runs_outlives_what_it_was_made_from() -> None:
    """As the contract says: from its `response.in_progress` on its source may go on, or fail."""

    async def test() -> None:
        async with gated() as (gates, _, reader):
            await send(reader, "one", "a")
            await until(lambda: gates.running)
            gates.open("one")
            first = (await reader.end("a"))["response"]["id"]
            await send(reader, "fork", "b", previous_response_id=first)
            await until(lambda: "fork" in gates.running)
            await send(reader, "failing", "a", previous_response_id=first)
            await until(lambda: "failing" in gates.running)
            gates.refuse("failing")
            assert (await reader.end("a"))["type"] == "error"
            gates.open("fork")
            fork = (await reader.end("b"))["response"]["id"]
            await send(reader, "on", "c", previous_response_id=fork)
            await until(lambda: "on" in gates.running)
            assert gates.prompts["on"] == ["one", "fork", "on"]
            gates.open("on")
            await reader.end("c")

    run(test())


def test_the_last_responses_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "responses_gateway.server.resources.socket_responses.UnstoredResponses.__init__.__defaults__", (3, 10**6)
    )

    async def test() -> None:
        async with simulated() as served, connect(served) as socket:
            ids = [(await socket.ask(stream_id=lane))["id"] for lane in "aabb"]
            codes = []
            for number, each in enumerate(ids):
                await socket.send(stream_id=f"fork-{number}", previous_response_id=each, generate=False, store=False)
                last = (await socket.rest())[-1]
                codes.append(last["error"]["code"] if last["type"] == "error" else "kept")
            assert codes[0] == "previous_response_not_found"
            assert codes[-1] == "kept"

    run(test())


async def answer_in_order(gates: Gates, reader: Reader, number: int) -> None:
    """Answer the requests of a lane one by one, as they were sent."""
    for place in range(number):
        await until(lambda: gates.running)
        assert list(gates.running) == [f"slow {place}"]
        gates.open(f"slow {place}")
        assert (await reader.end("slow"))["type"] == "response.completed"


def test_a_lane_that_is_full_refuses_what_is_too_much() -> None:
    """Where there are others, which would wait with it if nothing more were read."""

    async def test() -> None:
        async with gated() as (gates, _, reader):
            await send(reader, "slow 0", "slow")
            await until(lambda: gates.running)
            for number in range(1, 40):
                await send(reader, f"slow {number}", "slow")
            errors = [await reader.read() for _ in range(7)]
            assert {(error["status"], error["error"]["code"], error["stream_id"]) for error in errors} == {
                (429, "rate_limit_exceeded", "slow")
            }
            await send(reader, "large", "fast", padding="x" * 5_000_000)
            await until(lambda: "large" in gates.running)
            gates.open("large")
            assert (await reader.end("fast"))["type"] == "response.completed"
            await answer_in_order(gates, reader, 33)

    run(test())


def test_two_dozen_requests_may_wait_in_a_lane_however_large_they_are() -> None:
    async def test() -> None:
        async with gated() as (gates, _, reader):
            await send(reader, "slow 0", "slow")
            await until(lambda: gates.running)
            for number in range(1, 26):
                await send(reader, f"slow {number}", "slow", padding="x" * 250_000)
            error = await reader.read()
            assert (error["status"], error["error"]["code"], error["stream_id"]) == (429, "rate_limit_exceeded", "slow")
            await answer_in_order(gates, reader, 25)

    run(test())


def test_a_cancellation_may_name_a_lane() -> None:
    async def test() -> None:
        behind = create_app()
        async with serving(behind) as url, gateway(url) as served, connect(served) as socket:
            reader = Reader(socket)
            begun = {}
            for lane in "abc":
                await send(reader, ENDLESS, lane)
                while lane not in reader.events:
                    await reader.read()
                begun[lane] = reader.events[lane][0]["response"]["id"]
            await until(lambda: behind[COUNTERS].running == 3)
            await say(socket, type="response.cancel", stream_id="b")
            assert (await reader.end("b"))["response"]["id"] == begun["b"]
            await say(socket, type="response.cancel", stream_id="nobody")
            await say(socket, type="response.cancel", response_id=begun["c"])
            assert (await reader.end("c"))["response"]["id"] == begun["c"]
            assert behind[COUNTERS].running
            await say(socket, type="response.cancel")
            assert (await reader.end("a"))["response"]["id"] == begun["a"]

    run(test())


def test_each_lane_is_steered_by_itself() -> None:
    """The successor begins in the lane of the response that was steered, before what waits there; the other lane goes on."""

    async def test() -> None:
        behind = create_app()
        async with serving(behind) as url, gateway(url) as served, connect(served) as socket:
            reader = Reader(socket)
            await send(reader, "scenario: reasoning tokens: 400 tps: 2000", "a")
            await send(reader, "scenario: plain waits", "a")
            await send(reader, "scenario: reasoning tokens: 2000 tps: 200", "b")
            while "a" not in reader.events or reader.events["a"][-1]["type"] != "response.reasoning_text.delta":
                await reader.read()
            first = reader.events["a"][0]["response"]["id"]
            await say(socket, type="response.steer", previous_response_id=first, input="scenario: plain steered")
            steered = (await reader.end("a"))["response"]
            assert steered["incomplete_details"] == {"reason": "steered"}
            successor = (await reader.end("a"))["response"]
            assert successor["previous_response_id"] == first
            waited = (await reader.end("a"))["response"]
            assert waited["previous_response_id"] is None
            assert {event["type"] for event in reader.events["a"]} >= {"response.steer.accepted"}
            running = reader.events["b"][0]["response"]["id"]
            await say(socket, type="response.steer", previous_response_id=running, input="scenario: plain b", extra=1)
            await say(socket, type="response.steer", previous_response_id="resp_x", input="scenario: plain b")
            await say(socket, type="response.steer", previous_response_id=running, input="scenario: plain b")
            assert (await reader.end("b"))["response"]["incomplete_details"] == {"reason": "steered"}
            assert (await reader.end("b"))["response"]["previous_response_id"] == running
            failed = [event for event in reader.events["b"] if event["type"] == "response.steer.failed"]
            assert [event["error"]["code"] for event in failed] == ["invalid_input"]
            assert [event["error"]["code"] for event in reader.events[None]] == ["response_not_found"]
            reader.judged()
            assert behind[RECEIVED][-1]["body"]["messages"][-1]["content"] == "scenario: plain b"

    run(test())
