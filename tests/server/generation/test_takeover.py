"""A response in the background goes on in another gateway that shares the store, unless that would say anything else."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from responses_gateway.server.custom_tools.repair import InputRepair
from responses_gateway.server.features.rollouts.keeping import ResponseKeeper
from responses_gateway.settings.keys import hash_of
from responses_gateway.simulator import DIALECTS, SimulatorOptions, create_app, serving
from responses_gateway.simulator.state import FAULT_COUNTS
from responses_gateway.state import EventRow, EventsUnavailable, NewEvents, ResponseRecord, StoreUnavailable
from responses_gateway.stream.reading.leading_thought import MarkupOf
from responses_gateway.stream.tape import Call, Tape
from responses_gateway.stream.translator import Translator
from tests.judges import judge_stream
from tests.ports import free_port
from tests.request.example_grammars import PATCHES
from tests.server.custom_tools.test_custom_tools import GOOD, counted
from tests.server.fleet_of_simulators import READINGS, WEATHER
from tests.server.generation.test_completion_windows import CLIENTS, contents
from tests.server.running_gateway import Served, ask, events_of, gateway, post, run, until

SILENT = "scenario: demo fault: silence=600,times=1"


@asynccontextmanager
async def two(
    path: Path,
    second: str | None = None,
    dialect: str = "vllm",
    size: int = 1,
    speed: float = 0.0,
    repair: str = "off",
    continued: Any = 1,
    api_keys: Any = None,
    common: Mapping[str, Any] = {},
    backend_key: str | None = None,
    **settings: Any,
) -> AsyncIterator[tuple[Served, Served]]:
    """Run two gateways on one store, in front of the same backends, which send so many tokens per second and may want a key;
    both have the settings `common`, the second one `settings` besides, or a `second` backend."""
    common = {
        "store": str(path / "x.sqlite3"),
        "adapt": False,
        "continue_answers": continued,
        "api_keys": api_keys or {},
        **READINGS[dialect],
        **common,
    }
    common["repair_custom_tools"] = repair
    options = SimulatorOptions(dialect=DIALECTS[dialect], tokens_per_second=speed)
    apps = [create_app(options) for _ in range(size)]
    for app in apps if backend_key is not None else ():
        app.middlewares.append(wants(f"Bearer {backend_key}"))
    async with AsyncExitStack() as stack:
        for app in apps:
            app[FAULT_COUNTS] = apps[0][FAULT_COUNTS]
        urls = [await stack.enter_async_context(serving(app)) for app in apps]
        one = await stack.enter_async_context(gateway(*urls, **common))
        others = urls if second is None else [second]
        yield one, await stack.enter_async_context(gateway(*others, **{**common, **settings}))


def wants(authorization: str) -> Any:
    """Return what refuses requests without a key to a server that lists its models to everybody, as llama.cpp does."""

    @web.middleware
    async def check(request: web.Request, handler: Any) -> web.StreamResponse:
        if request.method == "POST" and request.headers.get("Authorization") != authorization:
            return web.json_response({"error": {"message": "Invalid API Key"}}, status=401)
        answer: web.StreamResponse = await handler(request)
        return answer

    return check


async def stuck(one: Served, **fields: Any) -> str:
    """Start a response whose backend falls silent, in a gateway that gives no more sign of life; return its id."""
    asked = [{"role": "user", "content": text} for text in ("Hello.", SILENT)]
    answer = await post(one, input=asked, background=True, stream=False, tools=[WEATHER], **fields)
    name = str(answer.json["id"])
    store = one.parts.store
    assert store is not None
    async with asyncio.timeout(60):
        while b"output_text.delta" not in await events_in_store(one, name):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    await silence(one)
    await expire(one)
    return name


async def silence(served: Served) -> None:
    """Have a gateway give no more sign of life, and look for none."""
    background = served.parts.background
    assert background is not None
    await background.end_upkeep()


async def expire(served: Served) -> None:
    """Make all heartbeats old."""
    late = "UPDATE responses SET alive_until = alive_until - 30"
    assert served.parts.store is not None
    await served.parts.store.database.run(lambda sql: sql.execute(late).rowcount)


def _spoken(response: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the items of a response without their ids."""
    return [{name: value for name, value in item.items() if name not in ("id", "call_id")} for item in response["output"]]


async def events_in_store(served: Served, name: str) -> bytes:
    """Return the events of a response that are in the store."""
    assert served.parts.store is not None
    return b"".join(row.data for row in await served.parts.store.events.read(name, -1))


async def ended(served: Served, name: str, headers: dict[str, str] | None = None) -> dict[str, Any]:
    async with asyncio.timeout(60):
        while True:
            response: dict[str, Any] = (await ask(served, "GET", f"/v1/responses/{name}", headers=headers)).json
            assert "status" in response, response
            if response["status"] not in ("queued", "in_progress"):
                return response
            await asyncio.sleep(0.02)


async def streamed(served: Served, name: str) -> bytes:
    return (await ask(served, "GET", f"/v1/responses/{name}?stream=true")).body


def test_a_quota_is_charged_once_for_a_response_that_two_gateways_have_run(tmp_path: Path) -> None:
    async def test() -> None:
        key = "rp_alice-0123456789"
        keys = {"alice": {"hash": hash_of(key), "tokens_per_day": 10**6}}
        headers = {"Authorization": f"Bearer {key}"}
        async with two(tmp_path, api_keys=keys) as (slow, other):
            response = await ended(other, await stuck(slow, headers=headers), headers)
            assert response["status"] == "completed"
            await slow.parts.pool.close()
        with closing(sqlite3.connect(tmp_path / "x.sqlite3")) as database:  # when the first one, too, has noted what it used
            charged = database.execute("SELECT tokens FROM quota_counters").fetchall()
        assert charged == [(response["usage"]["total_tokens"],)] * 2

    run(test())


@pytest.mark.parametrize(
    "settings",
    [{}, {"seal_key": "a secret"}, {"backend_api_key": CLIENTS}],
    ids=["default", "seal_key", "backend_api_key"],
)
def test_the_backend_gets_its_key_from_the_next_gateway_too(settings: dict[str, Any], tmp_path: Path) -> None:
    async def test() -> None:
        headers = {"Authorization": "Bearer none" if "backend_api_key" in settings else f"Bearer {CLIENTS}"}
        async with two(tmp_path, common=settings, backend_key=CLIENTS) as (slow, other):
            response = await ended(other, await stuck(slow, headers=headers), headers)
            assert response["status"] == "completed"
            await slow.parts.pool.close()
        with closing(sqlite3.connect(tmp_path / "x.sqlite3")) as database:
            assert database.execute("SELECT COUNT(*) FROM journals").fetchone() == (0,)
        assert CLIENTS.encode() not in contents(tmp_path)

    run(test())


def test_a_key_that_the_next_gateway_cannot_open_ends_the_response(tmp_path: Path) -> None:
    async def test() -> None:
        headers = {"Authorization": f"Bearer {CLIENTS}"}
        async with two(tmp_path, common={"seal_key": "a secret"}, backend_key=CLIENTS, seal_key="another") as (slow, other):
            assert (await ended(other, await stuck(slow, headers=headers), headers))["status"] == "failed"
            assert other.metric("continuations_total", outcome="failed", reason="unreadable") == 1
            await slow.parts.pool.close()

    run(test())


@pytest.mark.parametrize("size", [1, 2])
def test_with_default_settings_it_depends_on_whether_backends_are_alike(tmp_path: Path, size: int) -> None:
    async def test() -> None:
        async with two(tmp_path, size=size, continued="auto") as (slow, other):
            response = await ended(other, await stuck(slow))
            assert response["status"] == ("completed" if size == 2 else "failed")
            await slow.parts.pool.close()

    run(test())


def test_a_gateway_that_was_only_slow_changes_nothing(tmp_path: Path) -> None:
    async def test() -> None:
        async with two(tmp_path) as (slow, other):
            name = await stuck(slow)
            response = await ended(other, name)
            assert response["status"] == "completed"
            background = slow.parts.background
            assert background is not None
            assert name in background.running
            await background.renew_claims()  # it wakes up
            await until(lambda: not background.running)
            assert await ended(slow, name) == response
            body = await streamed(slow, name)
            assert judge_stream(body) == []
            events = events_of(body)
            assert [event["sequence_number"] for event in events] == list(range(len(events)))
            assert events[-1]["response"] == response
            assert other.metric("continuations_total", outcome="continued", reason="restart") == 1
            await slow.parts.pool.close()  # its idle connections would count as tasks that the other one left

    run(test())


def test_a_client_of_a_gateway_that_was_only_slow_gets_the_rest_from_the_next_one(
    tmp_path: Path,
) -> None:
    """The slow one does not know yet that its response runs elsewhere, and would send events that nobody stored."""

    async def test() -> None:
        async with two(tmp_path) as (slow, other):
            name = await stuck(slow)
            following = [asyncio.create_task(streamed(slow, name)) for _ in range(2)]
            background = slow.parts.background
            assert background is not None
            response = background.running[name]
            await until(lambda: len(response.followers) == 2, "both follow it")
            assert (await ended(other, name))["status"] == "completed"
            response.write(b"event: x\ndata: not stored by anybody\n\n")
            for body in await asyncio.gather(*following):
                assert judge_stream(body) == []
                assert body == await streamed(other, name)
            assert response.followers == set()
            await background.renew_claims()
            await until(lambda: not background.running)
            await slow.parts.pool.close()

    run(test())


def test_the_rest_is_streamed_as_it_comes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with two(tmp_path) as (one, other):
            asked = {"input": "scenario: long tokens: 200 tps: 100", "background": True, "stream": False}
            name = str((await post(one, **asked)).json["id"])
            async with asyncio.timeout(60):
                while b"output_text.delta" not in await events_in_store(one, name):  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            slow = one.parts.background
            store = one.parts.store
            assert slow is not None
            assert store is not None
            await silence(one)
            wakes = asyncio.Event()
            append = store.events.append

            async def halted(pieces: Sequence[NewEvents]) -> dict[str, bool]:
                await wakes.wait()
                return await append(pieces)

            monkeypatch.setattr(store.events, "append", halted)
            seen = len(events_of(await events_in_store(one, name)))
            await expire(one)
            assert (await ended(other, name))["status"] == "completed"
            wakes.set()
            await slow.renew_claims()
            await until(lambda: not slow.running)
            await one.parts.pool.close()
            rest = events_of(await streamed(other, name))[seen:]
            assert sum(event["type"] == "response.output_text.delta" for event in rest) > 20

    run(test())


PATCH = {"type": "custom", "name": "apply_patch", "description": "Edits files."}


def lose_tokens_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a gateway stop before it has kept the tokens of a response."""
    keeps = iter([keeps_nothing])
    keep = ResponseKeeper.keep

    async def keep_later(keeper: ResponseKeeper, translator: Translator) -> None:
        await next(keeps, keep)(keeper, translator)

    monkeypatch.setattr(ResponseKeeper, "keep", keep_later)


async def keeps_nothing(_keeper: ResponseKeeper, _translator: Translator) -> None:
    pass


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scenario", "last"),
    [
        ("demo", b"response.reasoning_text.delta"),
        ("demo", b"response.function_call_arguments.delta"),
        ("patch", b"response.custom_tool_call_input.delta"),
        ("patch", b"response.output_item.added"),
        ("patch", b""),  # all but the terminal event
    ],
)
def test_wherever_its_gateway_stops(scenario: str, last: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with two(tmp_path) as (one, other):
            asked: dict[str, Any] = {"tools": [WEATHER, PATCH], "background": True, "stream": False}
            asked |= {"input": f"scenario: {scenario} tps: 100", "headers": {"X-Rollout-Id": "ep1"}}
            whole = await ended(other, str((await post(other, **asked)).json["id"]))
            assert whole["status"] == "completed"
            if not last:
                lose_tokens_once(monkeypatch)
            name, response = await stopped_at(last, one, other, asked, monkeypatch)
            assert _spoken(response) == _spoken(whole)
            assert response["usage"]["output_tokens"] == whole["usage"]["output_tokens"]
            events = events_of(await streamed(other, name))
            assert judge_stream(await streamed(other, name)) == []
            assert [event["sequence_number"] for event in events] == list(range(len(events)))
            assert events[-1]["response"] == response
            calls = (await ask(other, "GET", "/rollouts/ep1")).json["calls"]
            assert [(call["id"], call["reason"]) for call in calls] == [(whole["id"], None), (name, None)]
            assert calls[1]["generation_token_ids"] == calls[0]["generation_token_ids"]
            assert len(calls[1]["generation_log_probs"]) == response["usage"]["output_tokens"]
            await one.parts.pool.close()

    run(test())


@pytest.mark.slow
@pytest.mark.parametrize("dialect", ["vllm", "vllm-raw"])
@pytest.mark.parametrize("place", ["1", "12", "60"])
def test_after_another_backend_had_gone_on_with_it(
    dialect: str, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the first gateway did by then is repeated: it began the answer anew, or joined it to what it had."""

    async def test() -> None:
        async with two(tmp_path, dialect=dialect, size=2, speed=200) as (one, other):
            asked: dict[str, Any] = {"tools": [WEATHER], "background": True, "stream": False}
            asked["input"] = "scenario: demo fault: drop=000,times=0"
            whole = await ended(other, str((await post(other, **asked)).json["id"]))
            asked["input"] = f"scenario: demo fault: drop={place},times=1"
            name, response = await stopped_at(b"response.function_call_arguments.delta", one, other, asked, monkeypatch)
            assert one.metric("continuations_total", outcome="continued", reason="broke") == 1
            assert other.metric("continuations_total", outcome="continued", reason="restart") == 1
            assert _spoken(response) == _spoken(whole)
            assert judge_stream(await streamed(other, name)) == []
            await one.parts.pool.close()

    run(test())


def test_a_verdict_on_a_custom_tool_stays_what_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The gateway stops once the events for the verdict are stored, and before the end is."""
    layout = {"type": "grammar", "syntax": "lark", "definition": PATCHES}
    tools = [{"type": "custom", "name": "apply_patch", "format": layout}]
    asked: dict[str, Any] = {"input": "scenario: wrong_patch", "tools": tools, "background": True, "stream": False}
    last = b"response.custom_tool_call_input.done"
    settle = InputRepair.settle

    async def test() -> None:
        async with two(tmp_path, repair="once") as (one, other):
            stored = asyncio.Event()
            store = one.parts.store
            assert store is not None
            append = store.events.append

            async def append_and_tell(pieces: Sequence[NewEvents]) -> dict[str, bool]:
                written = await append(pieces)
                if any(last in piece.row.data for piece in pieces):
                    stored.set()
                return written

            async def settle_and_wait(repair: InputRepair, *parts: Any) -> None:
                await settle(repair, *parts)
                await asyncio.wait_for(stored.wait(), 60)

            monkeypatch.setattr(store.events, "append", append_and_tell)
            monkeypatch.setattr(InputRepair, "settle", settle_and_wait)
            name, response = await stopped_at(last, one, other, asked, monkeypatch)
            assert response["status"] == "completed"
            assert judge_stream(await streamed(other, name)) == []
            assert response["output"][-1]["input"] == GOOD
            assert (counted(one), counted(other)) == ({"repaired": 1}, {})
            await one.parts.pool.close()

    run(test())


async def stopped_at(
    last: bytes, one: Served, other: Served, asked: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> tuple[str, dict[str, Any]]:
    """Have a gateway stop once it has stored these events, or all but the terminal one, and the other one take over; return the
    id of the response, and how it has ended."""
    store = one.parts.store
    slow = one.parts.background
    assert store is not None
    assert slow is not None
    await silence(one)
    reached = asyncio.Event()
    wakes = asyncio.Event()
    append, end = store.events.append, store.running.end

    async def append_until(pieces: Sequence[NewEvents]) -> dict[str, bool]:
        if reached.is_set():
            await wakes.wait()
        written = await append(pieces)
        if last and any(last in piece.row.data for piece in pieces):
            reached.set()
        return written

    async def end_late(record: ResponseRecord, last: EventRow) -> bool:
        reached.set()
        await wakes.wait()
        return await end(record, last)

    monkeypatch.setattr(store.events, "append", append_until)
    monkeypatch.setattr(store.running, "end", end_late)
    name = str((await post(one, **asked)).json["id"])
    await asyncio.wait_for(reached.wait(), 60)
    await expire(one)
    response = await ended(other, name)
    wakes.set()
    await slow.renew_claims()
    await until(lambda: not slow.running)
    return name, response


@pytest.mark.parametrize(
    ("reason", "settings"),
    [("events_differ", {"reasoning_summary": "always"}), ("request_differs", {"user_messages": "merge"})],
)
def test_a_gateway_that_would_say_something_else_ends_it(reason: str, settings: dict[str, Any], tmp_path: Path) -> None:
    async def test() -> None:
        async with two(tmp_path, **settings) as (one, other):
            name = await stuck(one)
            response = await ended(other, name)
            assert (response["status"], response["error"]["code"]) == ("failed", "server_error")
            assert response["output"][-1]["status"] == "incomplete"
            assert judge_stream(await streamed(other, name)) == []
            await until(lambda: other.metric("continuations_total", outcome="failed", reason=reason) == 1)
            await one.parts.pool.close()

    run(test())


def test_a_long_journal_is_repeated_in_slices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other streams get their turn after each slice, and no slice has most of the events."""
    monkeypatch.setattr("responses_gateway.server.generation.background.takeover.SLICE", 0.0)
    slices: list[int] = []
    turns: list[int] = []  # the slices after which others had their turn
    play = Tape.play

    def watched(tape: Tape, translator: Translator, calls: Iterable[Call], markup_of: MarkupOf) -> Iterator[bytes]:
        for number, events in enumerate(play(tape, translator, calls, markup_of)):
            slices.append(len(events))
            asyncio.get_running_loop().call_soon(turns.append, number)
            yield events
            assert turns == list(range(len(slices)))

    monkeypatch.setattr(Tape, "play", watched)

    async def test() -> None:
        async with two(tmp_path) as (one, other):
            name = await stuck(one)
            assert (await ended(other, name))["status"] == "completed"
            assert len(slices) > 3
            assert max(slices[1:]) < sum(slices) / 2  # the first has the request in it
            await one.parts.pool.close()

    run(test())


def test_encrypted_reasoning_stays_what_the_client_was_told(tmp_path: Path) -> None:
    async def test() -> None:
        async with two(tmp_path) as (one, other):
            name = await stuck(one, include=["reasoning.encrypted_content"])
            assert (await ended(other, name))["status"] == "completed"
            body = await streamed(other, name)
            told = [event["item"] for event in events_of(body) if event["type"] == "response.output_item.done"]
            assert told[0]["encrypted_content"]
            assert events_of(body)[-1]["response"]["output"] == told
            assert judge_stream(body) == []
            await one.parts.pool.close()

    run(test())


def test_a_gateway_does_not_take_over_its_own(tmp_path: Path) -> None:
    """Its heartbeat was late: what it runs goes on."""

    async def test() -> None:
        async with two(tmp_path) as (one, other):
            await silence(other)
            name = await stuck(one)
            background = one.parts.background
            assert background is not None
            run_of_it = background.running[name]
            await background.take_over()
            await background.fail_lost()
            assert background.taken_over == {}
            await background.renew_claims()
            assert background.running == {name: run_of_it}
            assert (await ask(one, "GET", f"/v1/responses/{name}")).json["status"] == "in_progress"
            await ask(one, "DELETE", f"/v1/responses/{name}")
            await until(lambda: not background.running)

    run(test())


@pytest.mark.parametrize(
    ("table", "method", "error"), [("running", "adopt", EventsUnavailable), ("histories", "items", StoreUnavailable)]
)
def test_the_store_fails_while_a_response_is_taken_over(
    table: str, method: str, error: type[Exception], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        async with two(tmp_path) as (one, other):
            first = (await post(one, input="scenario: plain")).final["id"]
            failing = getattr(other.parts.store, table)
            works = getattr(failing, method)
            failures = [error("gone"), error("gone")]

            async def fails_twice(*values: Any) -> Any:
                if failures:
                    raise failures.pop()
                return await works(*values)

            monkeypatch.setattr(failing, method, fails_twice)
            name = await stuck(one, previous_response_id=first)
            assert (await ended(other, name))["status"] == "completed"
            assert failures == []
            assert judge_stream(await streamed(other, name)) == []
            await one.parts.pool.close()

    monkeypatch.setattr("responses_gateway.server.generation.background.takeover.RETRY", 0.01)
    run(test())


@pytest.mark.parametrize("wish", ["cancel", "delete"])
@pytest.mark.parametrize("when", ["nobody runs it", "it is taken over"])
def test_a_client_wants_no_more_of_it(wish: str, when: str, tmp_path: Path) -> None:
    """The backend of the second gateway is down, so that it waits for one."""

    async def test() -> None:
        async with two(tmp_path, second=f"http://127.0.0.1:{free_port()}", connect_timeout=1) as (one, other):
            background = other.parts.background
            store = other.parts.store
            assert background is not None
            assert store is not None
            if when == "nobody runs it":
                await silence(other)
            name = await stuck(one)
            if when == "it is taken over":
                await until(lambda: name in background.taken_over)
            seen = events_of(await events_in_store(other, name))
            if wish == "cancel":
                assert (await ask(other, "POST", f"/v1/responses/{name}/cancel")).json["status"] == "cancelled"
                body = await streamed(other, name)
                assert judge_stream(body) == []
                assert events_of(body)[: len(seen)] == seen
                assert len(events_of(body)) > len(seen)
                assert [event["sequence_number"] for event in events_of(body)] == list(range(len(events_of(body))))
            else:
                assert (await ask(other, "DELETE", f"/v1/responses/{name}")).json["deleted"] is True
                assert (await ask(other, "GET", f"/v1/responses/{name}")).status == 404
            await until(lambda: not background.taken_over)
            count = "SELECT count(*) FROM journals"
            assert await store.database.run(lambda sql: sql.execute(count).fetchone()[0]) == 0
            slow = one.parts.background
            assert slow is not None
            await slow.renew_claims()
            await until(lambda: not slow.running)
            await one.parts.pool.close()

    run(test())
