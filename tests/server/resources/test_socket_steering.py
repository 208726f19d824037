"""`response.steer` over a WebSocket, against a running gateway: what its client sees, and what the model is asked."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from responses_gateway.simulator import COUNTERS, RECEIVED, create_app, serving
from responses_gateway.state import ResponseRecord, Running, StoreUnavailable
from tests.commands.test_replay import run as replay
from tests.judges import judge_stream
from tests.server.hosted.model import DOCS, MCP, calls, model, says
from tests.server.resources.test_socket_messages import next_of, say
from tests.server.resources.test_websocket_resource import ENDLESS, STORES, Event, Socket, connect, socket_buffers
from tests.server.running_gateway import TERMINALS, Served, ask, gateway, run, simulated, until
from tests.server.scripted_backend import HEAD, Connection, backend, call, chunk, text_stream

THINKING = "scenario: reasoning tokens: 400 tps: 800"
DONE = b"data: [DONE]\n\n"
CLOCK = {"type": "function", "name": "clock", "parameters": {"type": "object", "properties": {}}}


async def steered(socket: Socket, given: Any, behind: str = "response.created", **fields: Any) -> Event:
    """Steer the response that the connection begins, behind its first event of a type; return the answer."""
    event = await socket.next()
    response_id = event["response"]["id"]
    while event["type"] != behind:
        event = await socket.next()
    await say(socket, type="response.steer", previous_response_id=response_id, input=given, **fields)
    event = await socket.next()
    while not event["type"].startswith("response.steer."):
        assert event["type"] not in TERMINALS, "it ended before it was steered"
        event = await socket.next()
    return event


async def end_of(socket: Socket) -> Event:
    """Return the response at its end."""
    event = await socket.next()
    while event["type"] not in TERMINALS:
        event = await socket.next()
    response: Event = event["response"]
    return response


async def whole(socket: Socket) -> list[Event]:
    """Return the events of one response with those of its steers, judged."""
    events = [await socket.next()]
    while events[-1]["type"] not in TERMINALS:
        events.append(await socket.next())
    frames = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)
    assert judge_stream((frames + "data: [DONE]\n\n").encode()) == []
    return events


@pytest.mark.parametrize("store", STORES)
def test_the_successor_begins_unasked(store: str, tmp_path: Path) -> None:
    async def test() -> None:
        behind = create_app()
        recorded: Any = {"store": store, "record": tmp_path}
        async with serving(behind) as url, gateway(url, **recorded) as served, connect(served) as socket:
            await socket.send(THINKING, stream_id="lane", instructions="Be brief.", metadata={"a": "b"}, store=store != "none")
            events = [await socket.next() for _ in range(6)]
            first = events[0]["response"]["id"]
            await say(socket, type="response.steer", previous_response_id=first, input="scenario: plain")
            await say(socket, type="response.steer", previous_response_id=first, input="scenario: plain words: 2")
            await socket.send(previous_response_id=None, stream_id="lane")  # waits
            events += await whole_rest(socket)
            accepted = [event for event in events if event["type"] == "response.steer.accepted"]
            assert [event["stream_id"] for event in accepted] == ["lane", "lane"]
            assert len({event["steer"]["id"] for event in accepted}) == 2
            last = events[-1]["response"]
            assert (last["status"], last["incomplete_details"]) == ("incomplete", {"reason": "steered"})
            assert [item["type"] for item in last["output"]] == ["reasoning"]
            successor = (await whole(socket))[-1]
            assert (successor["response"]["previous_response_id"], successor["stream_id"]) == (first, "lane")
            assert successor["response"]["metadata"] == {"a": "b"}
            messages = behind[RECEIVED][1]["body"]["messages"]
            users = [message["content"] for message in messages if message["role"] == "user"]
            assert (messages[0]["content"], users) == (
                "Be brief.", [THINKING, "scenario: plain", "scenario: plain words: 2"]
            )  # fmt: skip
            waited = (await whole(socket))[-1]["response"]
            assert (waited["status"], waited["previous_response_id"]) == ("completed", None)
            assert not behind[COUNTERS].running
            follow = await socket.ask(previous_response_id=waited["id"])
            assert follow["status"] == "completed"
            if store != "none":
                kept = (await ask(served, "GET", f"/v1/responses/{first}")).json
                assert kept["incomplete_details"] == {"reason": "steered"}

    run(test())
    assert replay(tmp_path) == 0, "the recordings give the same bytes again"


async def whole_rest(socket: Socket) -> list[Event]:
    events = [await socket.next()]
    while events[-1]["type"] not in TERMINALS:
        events.append(await socket.next())
    return events


class Held:
    """A backend whose first answer stops behind its first pieces, until it is let go."""

    def __init__(self, first: list[bytes], rest: list[bytes]) -> None:
        self.first = first
        self.rest = rest
        self.go_on = asyncio.Event()
        self.connections: list[Connection] = []

    async def play(self, connection: Connection) -> None:
        self.connections.append(connection)
        connection.write(HEAD)
        if len(self.connections) == 1:
            connection.send(*self.first)
            await self.go_on.wait()
            connection.send(*self.rest)
            if self.rest[-1] != DONE:
                return  # it would go on
        else:
            connection.send(*text_stream("Done."))
        connection.end()

    def body(self, number: int) -> dict[str, Any]:
        """Return the body of a request."""
        body: dict[str, Any] = json.loads(self.connections[number].request.partition(b"\r\n\r\n")[2])
        return body


def test_a_backend_that_has_said_nothing_is_left_at_once() -> None:
    async def test() -> None:
        held = Held([chunk({"role": "assistant", "content": ""})], [chunk({"content": "Late"})])
        async with backend(held.play) as behind, gateway(behind.url) as served, connect(served) as socket:
            await socket.send("Think.")
            assert (await steered(socket, "Never mind."))["type"] == "response.steer.accepted"
            assert (await end_of(socket))["output"] == []
            await held.connections[0].lost
            held.go_on.set()
            assert (await end_of(socket))["status"] == "completed"

    run(test())


def test_a_backend_is_left_behind_the_item() -> None:
    async def test() -> None:
        held = Held([chunk({"reasoning": "Hm."})], [chunk({"content": "An endless"})] * 2)
        sampled = {"invariant_sampling": 1.0}  # what the client is told of the steer is part of the stream
        async with backend(held.play) as behind, gateway(behind.url, **sampled) as served, connect(served) as socket:
            await socket.send("Think.")
            await steered(socket, "Never mind.", "response.reasoning_text.delta")
            held.go_on.set()
            ended = await end_of(socket)
            assert [item["type"] for item in ended["output"]] == ["reasoning"]
            await held.connections[0].lost
            assert (await end_of(socket))["status"] == "completed"

    run(test())


@pytest.mark.parametrize("store", STORES)
def test_a_client_that_runs_a_tool_is_waited_for(store: str, tmp_path: Path) -> None:
    async def test() -> None:
        rest = [chunk(call("{}")), chunk({}, "tool_calls"), DONE]
        held = Held([chunk({"tool_calls": [{"index": 0, "id": "c1", "function": {"name": "clock"}}]})], rest)
        options = {"store": store, "record": tmp_path}
        async with backend(held.play) as behind, gateway(behind.url, **options) as served, connect(served) as socket:
            await socket.send("Time?", tools=[CLOCK], store=store != "none")
            event = await steered(socket, "In words.", "response.output_item.added")
            assert event["type"] == "response.steer.accepted"
            held.go_on.set()
            called = await end_of(socket)
            assert called["status"] == "completed"
            pending = await socket.next()
            (required,) = pending["required_input"]
            assert (pending["type"], pending["steer"]) == ("response.steer.pending", event["steer"])
            assert required == {"type": "function_call_output", "call_id": required["call_id"], "name": "clock"}
            output = [required | {"output": "12"}]
            await socket.send("", input=output, tools=[CLOCK], previous_response_id=called["id"], metadata={"own": "yes"})
            answered = (await whole(socket))[-1]["response"]
            assert (answered["status"], answered["metadata"]) == ("completed", {"own": "yes"})
            messages = held.body(1)["messages"]
            assert [message["role"] for message in messages] == ["user", "assistant", "tool", "user"]
            assert (messages[2]["content"], messages[3]["content"]) == ("12", "In words.")

    run(test())
    assert replay(tmp_path) == 0


def test_hosted_tools_finish() -> None:
    async def test() -> None:
        asking = calls(("docs__add", {"a": 1, "b": 2}))
        async with (
            model(asking, says("Never."), mcp_servers=DOCS, store="memory") as (served, talking),
            connect(served) as socket,
        ):
            await socket.send("Add.", tools=[MCP], store=True)
            await steered(socket, "And now?", "response.mcp_call.in_progress")
            ended = await end_of(socket)
            assert ended["incomplete_details"] == {"reason": "steered"}
            (made,) = [item for item in ended["output"] if item["type"] == "mcp_call"]
            assert made["status"] == "completed"
            assert (await end_of(socket))["status"] == "completed"
            roles = [message["role"] for message in talking.requests[1]["messages"]]
            assert (len(talking.requests), roles) == (2, ["user", "assistant", "tool", "user"])

    run(test())


def test_input_that_cannot_be_applied_is_returned() -> None:
    """By a cancelled response; by a successor that the backend refuses, which leaves the response to its client."""

    async def test() -> None:
        async with simulated() as served, connect(served) as socket:
            await socket.send(ENDLESS)
            accepted = await steered(socket, "Later.", "response.output_text.delta")
            await say(socket, type="response.cancel")
            assert (await end_of(socket))["status"] == "failed"
            failed = await socket.next()
            assert (failed["error"]["code"], failed["steer"]) == (
                "successor_creation_failed", accepted["steer"] | {"input": "Later."}
            )  # fmt: skip
            await socket.send(THINKING)
            await steered(socket, "fault: status=400", "response.reasoning_text.delta")
            ended = await end_of(socket)
            failed = await next_of(socket, "response.steer.failed")
            assert failed["error"]["code"] == "successor_creation_failed"
            assert (await socket.ask(previous_response_id=ended["id"]))["status"] == "completed"

    run(test())


LASTING = "scenario: long tokens: 5000 tps: 50"


async def successor_of(socket: Socket) -> str:
    """Steer a response; return the id of its successor, which goes on for long."""
    await socket.send(THINKING, store=True)
    await steered(socket, LASTING, "response.reasoning_text.delta")
    await end_of(socket)
    begun: str = (await next_of(socket, "response.created"))["response"]["id"]
    await next_of(socket, "response.output_text.delta")
    return begun


async def kept(served: Served, response_id: str, path: str = "") -> Any:
    return (await ask(served, "GET", f"/v1/responses/{response_id}{path}")).json


@pytest.mark.parametrize("store", ["memory", "sqlite"])
def test_what_was_applied_is_stored_though_its_client_leaves(store: str, tmp_path: Path) -> None:
    """The successor is cancelled, with what it has said, and can be continued."""

    async def test() -> None:
        place = "memory" if store == "memory" else str(tmp_path / "responses.db")
        async with simulated(store=place) as served:
            async with connect(served) as socket:
                successor = await successor_of(socket)
                assert (await kept(served, successor))["status"] == "in_progress"
            found = await kept(served, successor)
            while found["status"] == "in_progress":
                found = await kept(served, successor)
            assert (found["status"], found["error"]["message"]) == ("failed", "The response was cancelled.")
            assert [item["status"] for item in found["output"]] == ["incomplete"]
            (given,) = (await kept(served, successor, "/input_items"))["data"]
            assert given["content"][0]["text"] == LASTING
            body = {"model": "simulator", "input": "scenario: plain", "previous_response_id": successor}
            assert (await ask(served, "POST", "/v1/responses", json=body)).json["status"] == "completed"

    run(test())


def test_a_successor_may_be_deleted_while_it_is_made() -> None:
    async def test() -> None:
        async with simulated(store="memory") as served, connect(served) as socket:
            successor = await successor_of(socket)
            assert (await ask(served, "DELETE", f"/v1/responses/{successor}")).json["deleted"] is True
            ended = await end_of(socket)
            assert (ended["id"], ended["status"], ended["store"]) == (successor, "failed", False)
            assert (await ask(served, "GET", f"/v1/responses/{successor}")).status == 404

    run(test())


def test_steers_are_returned_where_the_store_cannot_have_them(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with simulated(store="memory") as served, connect(served) as socket:
            store = served.parts.store
            assert store is not None

            async def fails(record: ResponseRecord, running: Running) -> None:
                raise StoreUnavailable("gone")

            monkeypatch.setattr(store.running, "begin", fails)
            monkeypatch.setattr("responses_gateway.server.resources.websocket.logs", Mock())  # no error may be left in the log
            await socket.send(THINKING, store=True)
            accepted = await steered(socket, "scenario: plain", "response.reasoning_text.delta")
            ended = await end_of(socket)
            returned = await socket.next()
            assert (returned["type"], returned["error"]["code"], returned["steer"]) == (
                "response.steer.failed", "successor_creation_failed", accepted["steer"] | {"input": "scenario: plain"}
            )  # fmt: skip
            assert (await socket.ask(previous_response_id=ended["id"]))["status"] == "completed"

    run(test())


def test_what_cannot_be_steered() -> None:
    async def test() -> None:
        async with simulated(store="memory") as served, connect(served) as socket, connect(served) as other:
            conversation = (await ask(served, "POST", "/v1/conversations", json={})).json["id"]
            await socket.send(ENDLESS, conversation=conversation, store=True)
            refused = await steered(socket, "Stop.")
            assert refused["error"]["code"] == "steering_not_supported"
            foreign = {"type": "response.steer", "previous_response_id": refused["steer"]["previous_response_id"]}
            await say(other, **foreign, input="Stop.")
            assert (await other.next())["error"]["code"] == "response_not_found"
            await say(socket, **foreign, input=[{"role": "system", "content": "x"}])
            assert (await next_of(socket, "response.steer.failed"))["error"]["code"] == "invalid_input"
            await say(socket, type="response.cancel")
            await end_of(socket)
            await say(socket, **foreign, input="Stop.")
            assert (await socket.next())["error"]["code"] == "response_not_active"

    run(test())


@pytest.mark.slow
def test_no_more_is_read_than_may_wait_for_the_end_of_a_response(monkeypatch: pytest.MonkeyPatch) -> None:
    """While a response is being stored, its steers are refused behind its end: what they held waits in memory."""
    size = 1024 * 1024
    count = socket_buffers() // size + 8
    sent = 0
    told: list[str] = []

    async def flood(socket: Socket, response_id: str) -> None:
        nonlocal sent
        for _ in range(count):
            await say(socket, type="response.steer", previous_response_id=response_id, input="x" * size, more=1)
            sent += 1

    async def test() -> None:
        async with simulated(store="memory") as served, connect(served) as socket:
            store = served.parts.store
            assert store is not None
            save = store.responses.save
            saving = asyncio.Event()
            go_on = asyncio.Event()

            async def slowly(record: ResponseRecord) -> bool:
                saving.set()
                await go_on.wait()
                return await save(record)

            monkeypatch.setattr(store.responses, "save", slowly)
            await socket.send(store=True)
            response_id = (await socket.next())["response"]["id"]
            await saving.wait()
            flooding = asyncio.create_task(flood(socket, response_id))
            await until(lambda: sent >= 2, "some are sent")
            for _ in range(100):  # time enough to read all of them
                assert (await ask(served, "GET", "/health")).status == 200
            assert sent < count
            go_on.set()
            await end_of(socket)
            for _ in range(count):
                failed = await socket.next()
                told.append(failed["error"]["code"])
                assert len(failed["steer"]["input"]) == size
            assert told == ["invalid_input"] * count
            await flooding

    run(test())
