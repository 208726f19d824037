"""Background responses with a window of hours: they wait, in the store, until backends are idle."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from responses_gateway.server.features.completion_windows import runner, schedule
from responses_gateway.settings.keys import hash_of
from responses_gateway.simulator import COUNTERS, SimulatorOptions, create_app, serving
from tests.judges import judge_stream
from tests.server.gateway_process import program
from tests.server.generation.test_background import ENDLESS, cancel, ended, get, start
from tests.server.running_gateway import RawClient, Served, ask, assert_error, gateway, post, run, until

# One request at the backend, and it counts as busy.
BUSY: dict[str, Any] = {"idle_requests": 1, "max_concurrency": 2}
ADMIN = "admin-key-0123456789"
KEY = "rp_alice-0123456789"


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look often, and forget at once how busy backends were."""
    monkeypatch.setattr(runner, "INTERVAL", 0.01)
    monkeypatch.setattr(runner, "QUIET_INTERVAL", 0.01)
    monkeypatch.setattr(schedule, "MEMORY", 0.0)


async def queue(served: Any, text: str = "scenario: plain", window: str = "8h", **fields: Any) -> str:
    options = {"completion_window": window, **fields.pop("options", {})}
    response = await start(served, text, background_options=options, **fields)
    assert (response["status"], response["background_options"]) == ("queued", options)
    return str(response["id"])


@asynccontextmanager
async def busy(served: Served) -> AsyncIterator[None]:
    """Keep the only backend busy with a response that does not wait."""
    name = (await start(served, ENDLESS))["id"]
    await until(lambda: served.parts.pool.members.only is not None and served.parts.pool.members.only.in_flight, "it runs")
    yield
    assert (await cancel(served, name)).json["status"] == "cancelled"


def test_it_waits_while_the_backend_is_busy_and_looks_like_any_queued_response() -> None:
    async def test() -> None:
        async with serving(create_app()) as url, gateway(url, store="memory", admin_key=ADMIN, **BUSY) as served:
            async with busy(served):
                before = (await post(served)).final["id"]
                name = await queue(served, "scenario: reasoning", previous_response_id=before)
                other = await queue(served)
                await until(lambda: served.metric("waiting_responses", window="8h") == 2)
                following = asyncio.create_task(get(served, name, "?stream=true&starting_after=0"))
                assert (await post(served)).final["status"] == "completed"  # nobody else waits
                assert (await get(served, name)).json["status"] == "queued"
                shown = await ask(served, "GET", "/admin/waiting", headers={"Authorization": f"Bearer {ADMIN}"})
                (listed,) = shown.json["data"]
                assert (listed["completion_window"], listed["waiting"]) == ("8h", 2)
                assert listed["next_deadline"] > time.time() + 28_000
                assert_error(await ask(served, "GET", "/admin/waiting"), 401)
                assert (await cancel(served, other)).json["status"] == "cancelled"
                await ask(served, "DELETE", f"/v1/responses/{before}")  # what it continues is known by now
            response = await ended(served, name)
            assert response["status"] == "completed"
            whole = await get(served, name, "?stream=true")
            assert judge_stream(whole.body) == []
            assert whole.final == response
            assert (await following).events == whole.events[1:]
            assert (await get(served, other)).json["status"] == "cancelled"
            assert served.metric("waiting_begun_total", window="8h", reason="idle") == 1

    run(test())


def test_a_client_whose_name_is_no_unicode_may_let_responses_wait() -> None:
    async def test() -> None:
        async with serving(create_app()) as url, gateway(url, store="memory", **BUSY) as served, busy(served):
            client = await RawClient.connect(served)
            options = {"completion_window": "8h"}
            body = json.dumps({"model": "m", "input": "hi", "background": True, "background_options": options}).encode()
            head = b"POST /v1/responses HTTP/1.1\r\nHost: x\r\nUser-Agent: caf\xe9\r\nX-Session-Id: caf\xe9\r\n"
            await client.send(head + b"Connection: close\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
            answer = await client.read_all()
            assert b'"status":"queued"' in answer.replace(b": ", b":"), answer

    run(test())


def test_what_has_waited_is_among_the_tokens_of_its_key() -> None:
    """`/admin/usage` has it, too. The limit of a minute is for those who wait for an answer."""

    async def test() -> None:
        keys = {"alice": {"hash": hash_of(KEY), "tokens_per_minute": 10**6}}
        headers = {"Authorization": f"Bearer {KEY}"}
        async with serving(create_app()) as url, gateway(url, store="memory", admin_key=ADMIN, api_keys=keys) as served:
            fields = {"background": True, "background_options": {"completion_window": "8h"}, "store": True}
            name = (await post(served, headers=headers, stream=False, **fields)).json["id"]
            used = (await ended(served, name, headers))["usage"]["total_tokens"]
            await until(lambda: served.metric("key_tokens_total", key="alice") == used, "its tokens are counted")
            usage = await ask(served, "GET", "/admin/usage?by=key", headers={"Authorization": f"Bearer {ADMIN}"})
            assert [row["input_tokens"] + row["output_tokens"] for row in usage.json["data"]] == [used]

    run(test())


def test_a_deadline_that_nears_ends_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(runner.LONG_WINDOWS, "2h", schedule.SAFETY)

    async def test() -> None:
        async with serving(create_app()) as url, gateway(url, store="memory", **BUSY) as served, busy(served):
            waiting = await queue(served)
            assert (await ended(served, await queue(served, window="2h")))["status"] == "completed"
            assert served.metric("waiting_begun_total", window="2h", reason="deadline") == 1
            assert (await get(served, waiting)).json["status"] == "queued"
            await ask(served, "DELETE", f"/v1/responses/{waiting}")

    run(test())


def test_what_may_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("responses_gateway.server.features.completion_windows.runner.MOST_WAITING", 1)

    async def test() -> None:
        async with (
            serving(create_app()) as url,
            gateway(url, store="memory", **BUSY) as served,
            busy(served),
        ):
            name = await queue(served)
            options = {"background_options": {"completion_window": "8h"}}
            refused = await post(served, background=True, stream=False, **options)
            assert_error(refused, 429, "rate_limit_exceeded")
            assert "cancel one that waits" in refused.json["error"]["message"]
            assert refused.headers["retry-after"] == "60"
            await cancel(served, name)
            for fields, param in (
                ({"store": False}, "background"),
                ({"service_tier": "flex"}, "service_tier"),
                ({"stream": True}, "background_options.completion_window"),
                ({"background_options": {"continuation_id": "x" * 513}}, "background_options.continuation_id"),
            ):
                answer = await post(served, **{"background": True, "stream": False, **options, **fields})
                assert_error(answer, 400)
                assert answer.json["error"]["param"] == param
            key = {"Authorization": "Bearer of-the-backend"}  # it is sent on, and not kept
            begun = await post(served, background=True, stream=False, headers=key, **options)
            assert begun.headers["x-responses-gateway-losses"] == 'adapted="parameter:background_options"'
            streamed = await get(served, begun.json["id"], "?stream=true", headers=key)
            assert streamed.final["status"] == "completed"

    run(test())


# The key of the client, for backends without a key of their own.
CLIENTS = "sk-of-the-client-0123456789"


def contents(folder: Path) -> bytes:
    """Return what is in the files of a folder."""
    return b"\n".join(file.read_bytes() for file in folder.iterdir())


@pytest.mark.parametrize(
    "settings",
    [{}, {"store": "memory", "seal_key": "a secret"}, {"store": "memory", "backend_api_key": CLIENTS}],
    ids=["default", "seal_key", "backend_api_key"],
)
def test_the_backend_gets_its_key_when_the_response_begins(settings: dict[str, Any], tmp_path: Path) -> None:
    settings = {"store": str(tmp_path / "x.sqlite3"), **settings}

    async def test() -> None:
        headers = {"Authorization": "Bearer none" if "backend_api_key" in settings else f"Bearer {CLIENTS}"}
        simulator = create_app(SimulatorOptions(api_key=CLIENTS))
        async with serving(simulator) as url, gateway(url, **settings, **BUSY) as served:
            running = await post(served, input=ENDLESS, background=True, stream=False, headers=headers)
            await until(lambda: simulator[COUNTERS].running, "it runs")
            waits = {"background_options": {"completion_window": "8h"}}
            queued = await post(served, background=True, stream=False, headers=headers, **waits)
            assert "x-responses-gateway-losses" not in queued.headers
            await until(lambda: served.metric("waiting_responses", window="8h") == 1)
            assert CLIENTS.encode() not in contents(tmp_path)
            await cancel(served, running.json["id"], headers)
            response = await ended(served, queued.json["id"], headers)
            assert response["status"] == "completed"

    run(test())


def test_without_a_place_for_its_key_it_begins_at_once(tmp_path: Path) -> None:
    (tmp_path / "x.sqlite3.key").write_bytes(b"not 32 bytes")

    async def test() -> None:
        simulator = create_app(SimulatorOptions(api_key=CLIENTS))
        async with serving(simulator) as url, gateway(url, store=str(tmp_path / "x.sqlite3"), **BUSY) as served:
            headers = {"Authorization": f"Bearer {CLIENTS}"}
            waits = {"background_options": {"completion_window": "8h"}}
            begun = await post(served, background=True, stream=False, headers=headers, **waits)
            assert begun.headers["x-responses-gateway-losses"] == 'adapted="parameter:background_options"'
            assert (await ended(served, begun.json["id"], headers))["status"] == "completed"

    run(test())


def test_a_key_that_cannot_be_opened_any_more_ends_the_wait(tmp_path: Path) -> None:
    async def test() -> None:
        headers = {"Authorization": f"Bearer {CLIENTS}"}
        store = str(tmp_path / "x.sqlite3")
        waits = {"background_options": {"completion_window": "8h"}}
        # A backend that is away is not idle: the first gateway never begins it.
        async with gateway("http://127.0.0.1:9", store=store, seal_key="a secret", **BUSY) as served:
            queued = await post(served, background=True, stream=False, headers=headers, **waits)
            await until(lambda: served.metric("waiting_responses", window="8h") == 1)
        async with (
            serving(create_app(SimulatorOptions(api_key=CLIENTS))) as url,
            gateway(url, store=store, seal_key="another", **BUSY) as served,
        ):
            response = await ended(served, queued.json["id"], headers)
            assert "seal_key" in response["error"]["message"]

    run(test())


def test_a_gateway_that_stops_while_it_leases_a_response_leaves_it_to_others(tmp_path: Path) -> None:
    store = str(tmp_path / "x.sqlite3")

    async def test() -> None:
        async with serving(create_app()) as url:
            async with gateway(url, store=store, **BUSY) as stopped:
                table = stopped.parts.store.waiting
                leased, told = asyncio.Event(), asyncio.Event()
                lease = table.lease

                async def slowly(name: str, seconds: float) -> bytes | None:
                    data = await lease(name, seconds)
                    leased.set()
                    await told.wait()
                    return data

                table.lease = slowly  # type: ignore[method-assign]
                name = await queue(stopped)
                await leased.wait()
                asyncio.get_running_loop().call_later(0.1, told.set)
            async with gateway(url, store=store, **BUSY) as other:
                assert (await asyncio.wait_for(ended(other, name), 30))["status"] == "completed"

    run(test())


@pytest.mark.slow
def test_several_gateways_and_one_that_is_killed_begin_each_response_once(tmp_path: Path) -> None:
    """The first is killed while it prepares what it has leased, and another one stopped while all wait."""
    first = (
        "import asyncio, sys; from responses_gateway.server.features.completion_windows import runner; "
        "runner._LEASE = 0.5; "
        'runner.CompletionWindows._started = lambda *it: (print("leased", file=sys.stderr, flush=True), asyncio.sleep(60))[1]'
    )
    store = str(tmp_path / "x.sqlite3")

    async def test() -> None:
        simulator = create_app()
        async with serving(simulator) as url:
            async with program("--backend", url, "--store", store, first=first) as killed:
                names = [await queue(killed) for _ in range(4)]
                await killed.says("leased")
                killed.process.kill()
                await killed.process.wait()
            async with gateway(url, store=store, **BUSY) as stopped, busy(stopped):
                names += [await queue(stopped) for _ in range(4)]
            async with gateway(url, store=store, **BUSY) as one, gateway(url, store=store, **BUSY) as two:
                names += [await queue(served) for served in (one, two) for _ in range(4)]
                responses = [await ended(one, name) for name in names]
                assert {response["status"] for response in responses} == {"completed"}
            assert simulator[COUNTERS].finished["stop"] == len(names)

    run(test())
