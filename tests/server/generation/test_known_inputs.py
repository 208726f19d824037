"""A history that is known from the last request of its thread, through the front door."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise
from operator import is_
from typing import Any

import httpx
import pytest
from aiohttp import web

from responses_gateway.server.generation.preparation.known_inputs import SMALLEST
from responses_gateway.simulator import create_app as create_simulator
from responses_gateway.simulator import serving
from responses_gateway.state import histories
from responses_gateway.state.interfaces import Sql
from responses_gateway.state.records import NO_ITEMS, KnownItems
from tests.server.resources.test_websocket_resource import connect
from tests.server.running_gateway import Served, gateway, run
from tests.waiting import PATIENCE

# Long enough that each body is worth being kept.
LONG = "Follow the house rules. " * (SMALLEST // 20)
TOOLS = [{"type": "function", "name": "read", "parameters": {"type": "object", "properties": {}}}]


def recording(asked: list[bytes]) -> web.Application:
    """Return a simulator that notes what it is asked."""
    app = create_simulator()

    @web.middleware
    async def note(request: web.Request, handler: Any) -> web.StreamResponse:
        if request.path.endswith("/chat/completions"):
            asked.append(await request.read())
        answer: web.StreamResponse = await handler(request)
        return answer

    app.middlewares.append(note)
    return app


@asynccontextmanager
async def two_gateways(
    store: str, **settings: Any
) -> AsyncIterator[tuple[Served, Served, httpx.AsyncClient, dict[str, list[bytes]]]]:
    """Serve a gateway that keeps histories and one that keeps none; yield them, a client, and what each asks its backend."""
    asked: dict[str, list[bytes]] = {"known": [], "unknown": []}
    async with (
        serving(recording(asked["known"])) as one,
        serving(recording(asked["unknown"])) as other,
        gateway(one, store=store, **settings) as with_memory,
        gateway(other, store=store, known_history_bytes=0, **settings) as without,
        httpx.AsyncClient(timeout=PATIENCE) as client,
    ):
        yield with_memory, without, client, asked


@pytest.mark.parametrize("store", ["none", "memory"])
def test_the_backend_gets_the_same_whether_a_history_is_known(store: str) -> None:
    async def test() -> None:
        async with two_gateways(store, seal_key="0" * 32) as (with_memory, without, client, asked):
            items: list[Any] = [{"type": "message", "role": "user", "content": "Do it. " + LONG}]
            for number in range(6):
                items.append({"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]})
                items.append({"type": "function_call", "call_id": f"c{number}", "name": "read", "arguments": "{}"})
                items.append({"type": "function_call_output", "call_id": f"c{number}", "output": f"{number}" * 900})
                asked_for = {"include": ["reasoning.encrypted_content"], "tools": TOOLS}
                body = json.dumps({"model": "simulator", "input": items, **asked_for}).encode()
                answers = []
                for served in (with_memory, without):
                    headers = {"Content-Type": "application/json"}
                    answers.append(await client.post(f"{served.url}/v1/responses", content=body, headers=headers))
                assert [answer.status_code for answer in answers] == [200, 200]
                losses = [answer.headers.get("x-responses-gateway-losses") for answer in answers]
                assert losses[0] == losses[1]
                items += [
                    item for item in answers[0].json()["output"] if item["type"] != "reasoning" or item.get("encrypted_content")
                ]
            assert with_memory.parts.responses.preparation.known.size > 0
            assert asked["known"] == asked["unknown"]
            assert all(len(later) > len(earlier) for earlier, later in pairwise(asked["known"]))

    run(test())


def test_the_backend_of_claude_code_gets_the_same_though_its_mark_for_the_cache_moves() -> None:
    async def test() -> None:
        async with two_gateways("none") as (with_memory, without, client, asked):
            known = with_memory.parts.responses.preparation.known
            found: list[int] = []
            read = known.read

            def noting(*arguments: Any) -> Any:
                growing = read(*arguments)
                found.append(0 if growing is None else len(growing.continued.values.elements))
                return growing

            known.read = noting
            messages: list[Any] = [{"role": "user", "content": [{"type": "text", "text": "Do it. " + LONG}]}]
            for number in range(6):
                call = {"type": "tool_use", "id": f"c{number}", "name": "read", "input": {"path": f"{number}"}}
                thought = {"type": "thinking", "thinking": "Hm.", "signature": ""}
                result = {"type": "tool_result", "tool_use_id": f"c{number}", "content": f"{number}" * 900}
                marked = {**result, "cache_control": {"type": "ephemeral"}}
                messages.append({"role": "assistant", "content": [thought, call]})
                body = {
                    "model": "simulator",
                    "messages": [*messages, {"role": "user", "content": [marked]}],
                    "system": [{"type": "text", "text": "You help.", "cache_control": {"type": "ephemeral"}}],
                    "tools": [{"name": "read", "input_schema": {"type": "object", "properties": {}}}],
                    "max_tokens": 100,
                }
                answers = []
                for served in (with_memory, without):
                    headers = {"Content-Type": "application/json"}
                    content = json.dumps(body).encode()
                    answers.append(await client.post(f"{served.url}/v1/messages", content=content, headers=headers))
                assert [answer.status_code for answer in answers] == [200, 200]
                losses = [answer.headers.get("x-responses-gateway-losses") for answer in answers]
                assert losses[0] == losses[1]
                messages.append({"role": "user", "content": [result]})
            assert found == [0, 0, 3, 5, 7, 9]  # the first has no turn yet whose calls were all reported before
            assert asked["known"] == asked["unknown"]
            assert all(len(later) > len(earlier) for earlier, later in pairwise(asked["known"]))

    run(test())


def test_a_turn_of_a_known_history_stores_its_own_items_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[int] = []
    append = histories.append_each

    def noted(sql: Sql, tenant: str, place: int, items: Sequence[Any], results: Mapping[str, bytes] | None = None) -> list[int]:
        written.append(len(items))
        return append(sql, tenant, place, items, results)

    monkeypatch.setattr(histories, "append_each", noted)

    async def test() -> None:
        async with (
            serving(create_simulator()) as backend,
            gateway(backend, store="memory") as served,
            httpx.AsyncClient(timeout=PATIENCE) as client,
        ):
            items: list[Any] = [{"type": "message", "role": "user", "content": "Do it. " + LONG}]
            for number in range(40):
                items.append({"type": "message", "role": "user", "content": f"number {number}"})
            for _ in range(3):
                sent = len(items)
                written.clear()
                answer = await client.post(f"{served.url}/v1/responses", json={"model": "simulator", "input": items})
                assert answer.status_code == 200
                items += [*answer.json()["output"], {"type": "message", "role": "user", "content": "Go on."}]
            assert max(written) <= 5  # what the model said, the next question, and the answer to it
            listed = await client.get(f"{served.url}/v1/responses/{answer.json()['id']}/input_items?limit=100&order=asc")
            assert len(listed.json()["data"]) == sent

    run(test())


@pytest.mark.slow
def test_a_turn_of_a_chain_reads_and_translates_its_own_items_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    items = histories.HistoryTable.items

    async def noted(table: histories.HistoryTable, end: int, known: KnownItems = NO_ITEMS) -> Sequence[dict[str, Any]]:
        found = await items(table, end, known)
        read.append(len(found) - sum(map(is_, found, known.items)))
        return found

    async def test() -> None:
        async with two_gateways("memory") as (with_memory, without, client, asked):

            async def ask(served: Served, sent: Any, previous: str | None) -> str:
                body = {"model": "simulator", "input": sent, "tools": TOOLS, "previous_response_id": previous}
                answer = await client.post(f"{served.url}/v1/responses", json=body)
                assert answer.status_code == 200, answer.text
                response_id: str = answer.json()["id"]
                return response_id

            chains: list[list[str]] = [[], []]
            for number in range(8):
                sent: Any = response_items(number, "done" * 20) if number % 2 else f"Do it. {'' if number else LONG}"
                chains[1].append(await ask(without, sent, chains[1][-1] if number else None))
                read.clear()
                with monkeypatch.context() as patch:
                    patch.setattr(histories.HistoryTable, "items", noted)
                    chains[0].append(await ask(with_memory, sent, chains[0][-1] if number else None))
                if number > 2:
                    assert max(read) <= 5  # those of the last turn
            for served, responses in zip((with_memory, without), chains, strict=True):
                await ask(served, "Another way.", responses[-2])  # of which nothing is kept any more
                await ask(served, "And this one?", responses[-1])
                await ask(served, "Once more.", responses[-1])
            assert asked["known"] == asked["unknown"]
            assert len(json.loads(asked["known"][7])["messages"]) == 15

    run(test())


def test_a_chain_of_a_connection_goes_on_from_the_store() -> None:
    """What came over a connection is in the store with the first of its responses that is stored."""

    async def test() -> None:
        asked: list[bytes] = []
        async with (
            serving(recording(asked)) as backend,
            gateway(backend, store="memory") as served,
            httpx.AsyncClient(timeout=PATIENCE) as client,
            connect(served) as socket,
        ):
            previous = None
            for number, store in enumerate((False, False, False, True, True)):
                sent = f"Question {number}. {LONG if number == 0 else ''}"
                answer = await socket.ask(sent, store=store, previous_response_id=previous)
                previous = answer["id"]
            for number in (5, 6):
                body = {"model": "simulator", "input": f"Question {number}.", "previous_response_id": previous}
                previous = (await client.post(f"{served.url}/v1/responses", json=body)).json()["id"]
            told = [message["content"][:11] for message in json.loads(asked[-1])["messages"] if message["role"] == "user"]
            assert told == [f"Question {number}." for number in range(7)]

    run(test())


def response_items(number: int, output: str) -> list[Any]:
    """Return a call and its output."""
    call = {"type": "function_call", "call_id": f"c{number}", "name": "read", "arguments": "{}"}
    return [call, {"type": "function_call_output", "call_id": f"c{number}", "output": output}]


def messages(number: int, output: str) -> list[Any]:
    """Return the same for the Messages API."""
    call = {"type": "tool_use", "id": f"c{number}", "name": "read", "input": {}}
    result = {"type": "tool_result", "tool_use_id": f"c{number}", "content": output}
    return [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]


@pytest.mark.parametrize(
    ("path", "field", "turn"), [("/v1/responses", "input", response_items), ("/v1/messages", "messages", messages)]
)
def test_half_a_character_in_a_history_does_not_end_the_session(path: str, field: str, turn: Any) -> None:
    """Programs in JavaScript cut a tool's output within an emoji, and send it again with each turn."""

    async def test() -> None:
        asked: list[bytes] = []
        async with (
            serving(recording(asked)) as backend,
            gateway(backend) as served,
            httpx.AsyncClient(timeout=PATIENCE) as client,
        ):
            history: list[Any] = [{"role": "user", "content": "Do it. " + LONG}]
            for number in range(3):
                history += turn(number, "cut \ud83d, whole \U0001f600" * 99)
                body = json.dumps({"model": "simulator", "max_tokens": 99, field: history}).encode()
                answer = await client.post(served.url + path, content=body, headers={"Content-Type": "application/json"})
                assert answer.status_code == 200
                assert "cut \ufffd, whole \U0001f600" in json.loads(asked[-1])["messages"][2]["content"]
            assert served.parts.responses.preparation.known.size > 0

    run(test())
