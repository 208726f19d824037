"""Clients that follow a response in the process that runs it get its events from memory, once they are stored."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from typing import Any

import pytest

from responses_gateway.state import NewEvents, StoreUnavailable
from tests.judges import judge_stream
from tests.server.running_gateway import RawClient, Served, ask, body_of, events_of, post, run, simulated, until

LONG = "tokens: 300 tps: 400"


async def started(served: Served, text: str = LONG) -> str:
    return str((await post(served, input=text, background=True, stream=False)).json["id"])


async def followed(served: Served, name: str, after: int = -1) -> bytes:
    return (await ask(served, "GET", f"/v1/responses/{name}?stream=true&starting_after={after}")).body


def watch_reads(served: Served, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the names of the methods of the store that read a response, as they are called."""
    store = served.parts.store
    assert store is not None
    calls: list[str] = []

    def watch(table: object, name: str) -> None:
        method = getattr(table, name)

        async def watched(*values: Any) -> Any:
            calls.append(name)
            return await method(*values)

        monkeypatch.setattr(table, name, watched)

    watch(store.events, "read")
    watch(store.responses, "is_active")
    watch(store.responses, "get")
    return calls


def test_a_stream_that_can_be_resumed_is_not_read_from_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with simulated(store="memory", on_disconnect="continue") as served:
            calls = watch_reads(served, monkeypatch)
            whole = await post(served, input=LONG)
            assert whole.final["status"] == "completed"
            assert calls == []
            assert await followed(served, whole.final["id"]) == whole.body

    run(test())


def test_one_that_joins_late_reads_only_the_beginning_from_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("responses_gateway.server.generation.background.response.KEPT_BYTES", 2000)

    async def test() -> None:
        async with simulated(store="memory") as served:
            name = await started(served)
            early = asyncio.create_task(followed(served, name))
            background = served.parts.background
            assert background is not None
            response = background.running[name]
            await until(lambda: response.events_after(-1) is None, "the beginning is only in the store")
            calls = watch_reads(served, monkeypatch)
            late = [asyncio.create_task(followed(served, name, after)) for after in (-1, 10)]
            body = await early
            assert judge_stream(body) == []
            assert await late[0] == body
            assert events_of(await late[1]) == events_of(body)[11:]
            assert len(calls) < 20

    run(test())


def test_a_client_that_leaves_does_not_disturb_the_others() -> None:
    async def test() -> None:
        async with simulated(store="memory") as served:
            name = await started(served)
            others = [asyncio.create_task(followed(served, name)) for _ in range(2)]
            client = await RawClient.connect(served)
            await client.send(f"GET /v1/responses/{name}?stream=true HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            await client.read_until(b'"sequence_number":9,')
            background = served.parts.background
            assert background is not None
            response = background.running[name]
            await until(lambda: len(response.followers) == 3)
            client.reset()
            await until(lambda: len(response.followers) == 2, "it has left")
            one, other = [await each for each in others]
            assert one == other
            assert judge_stream(one) == []

    run(test())


def test_a_slow_client_takes_no_memory_and_gets_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """It reads nothing until the response has ended: by then most of it is only in the store."""
    monkeypatch.setattr("responses_gateway.server.generation.background.response.KEPT_BYTES", 2000)

    async def test() -> None:
        async with simulated(store="memory", on_disconnect="continue", send_buffer=4096) as served:
            client = await RawClient.connect(served, receive_buffer=4096)
            await client.post(input="tokens: 10000 tps: 20000")
            await client.read_until(b'"sequence_number":1,')
            background = served.parts.background
            assert background is not None
            await until(lambda: not background.running, "the response has ended")
            found = re.search(rb'"id":"(resp_\w+)"', client.received)
            assert found is not None
            calls = watch_reads(served, monkeypatch)
            await client.read_until(b"data: [DONE]\n\n")
            assert "read" in calls
            whole = await followed(served, found[1].decode())
            assert len(whole) > 300_000
            assert body_of(client.received) == whole
            assert judge_stream(whole) == []

    run(test())


def test_nothing_is_sent_that_is_not_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    """The store fails for a while: the stream stands still, and goes on with all that came meanwhile."""
    monkeypatch.setattr("responses_gateway.server.generation.background.event_log.RETRY", 0.02)

    async def test() -> None:
        async with simulated(store="memory", on_disconnect="continue") as served:
            store = served.parts.store
            assert store is not None
            append = store.events.append
            sent_at_failure: list[int] = []
            failures = 5

            async def fails(pieces: Sequence[NewEvents]) -> dict[str, bool]:
                nonlocal failures
                if pieces[0].row.first > 50 and failures:
                    failures -= 1
                    sent_at_failure.append(len(events_of(body_of(client.received).rpartition(b"\n\n")[0] + b"\n\n")))
                    raise StoreUnavailable("gone")
                return await append(pieces)

            monkeypatch.setattr(store.events, "append", fails)
            client = await RawClient.connect(served)
            await client.post(input=LONG)
            await client.read_until(b"data: [DONE]\n\n")
            assert failures == 0
            assert judge_stream(body_of(client.received)) == []
            assert max(sent_at_failure) <= max(50, sent_at_failure[0]) + 50

    run(test())
