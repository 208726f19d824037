"""Quotas at the front door: tokens of a day and a month, of keys and teams, by all gateways together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import openai
import pytest
from openai import AsyncOpenAI
from pydantic import SecretStr

from responses_gateway.settings.keys import hash_of
from responses_gateway.simulator import create_app, serving
from responses_gateway.state.quotas import QuotaTable
from tests.log_lines import log_lines
from tests.server.gateway_process import program
from tests.server.hosted.model import DOCS, MCP, calls, model, says
from tests.server.running_gateway import (
    QUESTION,
    Answer,
    RawClient,
    Served,
    ask,
    assert_error,
    gateway,
    post,
    run,
    simulated,
    until,
)
from tests.server.scripted_backend import HEAD, Connection, backend, chunk, streaming
from tests.state.database_servers import RedisServer, redis_running

ALICE = "rp_alice-0123456789"
BOB = "rp_bob-0123456789abc"
ENDLESS = "scenario: long tokens: 5000 tps: 100"


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def keys(alice: dict[str, Any], **bob: Any) -> dict[str, Any]:
    return {"alice": {"hash": hash_of(ALICE), **alice}, "bob": {"hash": hash_of(BOB), **bob}}


async def asked(served: Served, key: str = ALICE, **fields: Any) -> Answer:
    return await post(served, **fields, headers=bearer(key))


def used(answer: Answer) -> int:
    total: int = answer.final["usage"]["total_tokens"]
    return total


def refused(answer: Answer) -> str:
    message = assert_error(answer, 429, "insufficient_quota")
    assert answer.json["error"]["type"] == "insufficient_quota"
    assert answer.headers["x-should-retry"] == "false"
    assert "retry-after" not in answer.headers
    return message


@pytest.fixture
def redis_server() -> Iterator[RedisServer]:
    pytest.importorskip("responses_gateway.state.redis_quotas", reason="the Redis driver is not installed")
    with redis_running() as server:
        yield server


@asynccontextmanager
async def replicas(number: int = 2, **settings: Any) -> AsyncIterator[list[Served]]:
    """Serve several gateways in front of one backend."""
    async with AsyncExitStack() as stack:
        backend = await stack.enter_async_context(serving(create_app()))
        served = [await stack.enter_async_context(gateway(backend, adapt=False, **settings)) for _ in range(number)]
        yield served
        for one in served:
            await one.parts.pool.close()  # its idle connections would count as tasks that another one left


# ---- a quota of a key -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("period", ["day", "month"])
def test_the_response_that_exceeds_a_quota_completes_and_the_next_request_is_refused(period: str, stream: bool) -> None:
    async def test() -> None:
        async with simulated(store="memory", api_keys=keys({f"tokens_per_{period}": 1})) as served:
            assert (await asked(served, stream=stream)).status == 200
            message = refused(await asked(served))
            assert "key alice has used" in message
            assert f"of 1 tokens of this {period} (UTC). It is renewed at" in message
            assert (await asked(served, BOB)).status == 200
            assert served.metric("access_refusals_total", reason="quota") == 1
            assert served.metric("quota_used_ratio", owner="key alice", period=period) > 1

    run(test())


def test_a_quota_of_all_keys_is_for_each_and_one_of_its_own_replaces_it() -> None:
    async def test() -> None:
        async with simulated(store="memory", tokens_per_day=1, api_keys=keys({}, tokens_per_day=0)) as served:
            for _ in range(2):
                assert (await asked(served, BOB)).status == 200
            assert (await asked(served)).status == 200
            refused(await asked(served))

    run(test())


def test_the_sdk_asks_once() -> None:
    async def test() -> None:
        async with simulated(store="memory", api_keys=keys({"tokens_per_day": 1})) as served:
            client = AsyncOpenAI(base_url=f"{served.url}/v1", api_key=ALICE, max_retries=3)
            await client.responses.create(model="simulator", input="hi")
            with pytest.raises(openai.RateLimitError, match="You exceeded your current quota") as caught:
                await client.responses.create(model="simulator", input="hi")
            await client.close()
            assert caught.value.code == "insufficient_quota"
            assert served.metric("access_refusals_total", reason="quota") == 1

    run(test())


def test_a_quota_holds_over_a_websocket_and_for_what_is_relayed() -> None:
    async def test() -> None:
        chat = {"model": "simulator", "messages": [{"role": "user", "content": "hi"}]}
        async with simulated(store="memory", api_keys=keys({"tokens_per_day": 1}, tokens_per_day=1)) as served:
            assert (await ask(served, "POST", "/v1/chat/completions", json=chat, headers=bearer(BOB))).status == 200
            refused(await ask(served, "POST", "/v1/chat/completions", json=chat, headers=bearer(BOB)))
            create = {"type": "response.create", "model": "simulator", "input": "hi"}
            session = aiohttp.ClientSession(headers=bearer(ALICE))
            async with session, session.ws_connect(f"{served.url}/v1/responses") as socket:
                await socket.send_json(create)
                while (await socket.receive_json())["type"] != "response.completed":
                    pass
                await socket.send_json(create)
                frame = await socket.receive_json()
                assert (frame["type"], frame["status"]) == ("error", 429)
                assert frame["error"]["code"] == "insufficient_quota"

    run(test())


def test_a_response_whose_last_turn_was_cut_off_is_charged_as_its_usage_says() -> None:
    admin = {"Authorization": "Bearer the-admin-key-of-this-gateway"}

    async def test() -> None:
        settings: dict[str, Any] = {"admin_key": SecretStr("the-admin-key-of-this-gateway"), "mcp_servers": DOCS}
        turns = calls(("docs__add", {"a": 1, "b": 2})), says("and so on " * 20)[:-3]
        limits = keys({"tokens_per_day": 100_000})
        async with model(*turns, store="memory", api_keys=limits, **settings) as (served, _):
            answer = await asked(served, tools=[MCP], prompt_cache_key="s")
            assert answer.final["output"][-1]["status"] == "incomplete"
            usage = await ask(served, "GET", "/admin/usage?by=key,session", headers=admin)
            (counted,) = usage.json["data"]
            tokens = counted["input_tokens"] + counted["output_tokens"]
            assert tokens > used(answer)  # of the last turn what was seen
            (row,) = (await ask(served, "GET", "/admin/sessions", headers=admin)).json["data"]
            assert row["output_tokens"] == counted["output_tokens"]
            charged = (await ask(served, "GET", "/ui/api/usage?days=7", headers=admin)).json["quotas"]
            assert charged[0]["used"] == tokens

    run(test())


@pytest.fixture
def charged(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """What was charged; that takes a while."""
    done = []
    charge = QuotaTable.charge

    async def slow_charge(*arguments: Any) -> Any:
        await asyncio.sleep(0.2)
        totals = await charge(*arguments)
        done.append(True)
        return totals

    monkeypatch.setattr(QuotaTable, "charge", slow_charge)
    return done


@pytest.mark.parametrize("stream", [True, False])
def test_what_is_relayed_is_charged_before_the_client_has_it_and_may_go(stream: bool, charged: list[bool]) -> None:
    chat = {"model": "simulator", "messages": [{"role": "user", "content": "hi"}], "stream": stream}

    async def test() -> None:
        async with simulated(store="memory", access_log=True, api_keys=keys({"tokens_per_day": 100_000})) as served:
            session = aiohttp.ClientSession(headers=bearer(ALICE))
            async with session, session.post(f"{served.url}/v1/chat/completions", json=chat) as answer:
                await answer.read()
                assert charged
            await until(lambda: written("request"), "the line of the request")
            assert written("request")[0]["status"] == 200

    with log_lines() as written:
        run(test())


def test_a_stream_that_is_relayed_is_charged_before_its_last_event_behind_which_clients_go(charged: list[bool]) -> None:
    async def play(connection: Connection) -> None:
        connection.write(HEAD)
        connection.send(chunk({"content": "Hello"}), chunk({}, "stop", usage={"prompt_tokens": 9, "completion_tokens": 7}))
        connection.send(b"data: [DONE]\n\n")
        await asyncio.sleep(0.05)
        connection.end()

    async def test() -> None:
        settings = {"store": "memory", "access_log": True, "api_keys": keys({"tokens_per_day": 100_000})}
        async with backend(play) as behind, gateway(behind.url, **settings) as served:
            chat = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": True}
            session = aiohttp.ClientSession(headers=bearer(ALICE))
            async with session, session.post(f"{served.url}/v1/chat/completions", json=chat) as answer:
                await answer.content.readuntil(b"data: [DONE]\n\n")
                assert charged
                answer.close()
            await until(lambda: written("request"), "the line of the request")
            assert written("request")[0]["status"] == 200

    with log_lines() as written:
        run(test())


def test_a_client_that_leaves_is_charged_for_what_it_got() -> None:
    async def test() -> None:
        async with simulated(store="memory", api_keys=keys({"tokens_per_day": 5})) as served:
            session = aiohttp.ClientSession(headers=bearer(ALICE))
            question = {**QUESTION, "input": ENDLESS}
            async with session, session.post(f"{served.url}/v1/responses", json=question) as answer:
                received = b""
                while received.count(b"output_text.delta") < 20:
                    received += await answer.content.readany()
            await until(lambda: not served.parts.in_flight.activities, "the exchange has ended")
            refused(await asked(served))

    run(test())


@pytest.mark.parametrize(
    "usage",
    [
        {"prompt_tokens": 10**18, "completion_tokens": 10**18},  # counters and the store would overflow
        {"prompt_tokens": 10**30, "completion_tokens": 7},
        {"prompt_tokens": -5, "completion_tokens": -(10**18)},
    ],
)
def test_absurd_usage_of_a_backend_neither_blocks_nor_fills_the_counters(usage: dict[str, int]) -> None:
    async def test() -> None:
        told = chunk(usage={**usage, "total_tokens": 0}, choices=[])
        sent = streaming(chunk({"content": "Hello"}), chunk({}, "stop"), told, b"data: [DONE]\n\n")
        settings = {"store": "memory", "api_keys": keys({"tokens_per_day": 1}, tokens_per_day=1)}
        async with backend(sent) as behind, gateway(behind.url, **settings) as served:
            assert (await asked(served)).status == 200
            message = refused(await asked(served))
            assert 0 < int(message.split("has used ")[1].split()[0]) < 100
            relayed = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": True}
            for refusal in (200, 429):
                answer = await ask(served, "POST", "/v1/chat/completions", json=relayed, headers=bearer(BOB))
                assert answer.status == refusal

    run(test())


def test_a_request_over_the_end_of_a_month_is_charged_once_to_the_one_in_which_it_ends() -> None:
    async def test() -> None:
        async with simulated(store="memory", api_keys=keys({"tokens_per_month": 1})) as served:
            assert served.parts.accounts.ledger is not None
            now = [datetime(2026, 11, 30, 23, 59, 59, tzinfo=UTC).timestamp()]
            served.parts.accounts.ledger.clock = lambda: now[0]
            session = aiohttp.ClientSession(headers=bearer(ALICE))
            question = {**QUESTION, "input": "scenario: long tokens: 40 tps: 200"}
            async with session, session.post(f"{served.url}/v1/responses", json=question) as answer:
                received = await answer.content.readany()
                now[0] += 2
                received += await answer.read()
            assert b"response.completed" in received
            refused(await asked(served))
            now[0] -= 2
            assert (await asked(served)).status == 200  # November has no charge

    run(test())


def test_nothing_is_written_for_a_key_without_a_quota() -> None:
    async def test() -> None:
        async with simulated(store="memory", api_keys=keys({"tokens_per_day": 1000})) as served:
            assert (await asked(served, BOB)).status == 200
            assert served.parts.store is not None
            written = "SELECT (SELECT count(*) FROM quota_counters) + (SELECT count(*) FROM quota_charges)"
            assert await served.parts.store.database.run(lambda sql: sql.execute(written).fetchone()[0]) == 0
            assert (await asked(served)).status == 200
            assert await served.parts.store.database.run(lambda sql: sql.execute(written).fetchone()[0]) == 3

    run(test())


def test_a_soft_limit_only_warns(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        caplog.set_level("WARNING", "responses_gateway")
        header = "x-responses-gateway-quota-warning"
        async with simulated(store="memory", api_keys=keys({"soft_tokens_per_day": 1})) as served:
            first = await asked(served)
            assert header not in first.headers
            for _ in range(2):
                answer = await asked(served)
                assert answer.status == 200
                assert "soft limit 1" in answer.headers[header]
            assert served.metric("quota_warnings_total", owner="key alice", period="day") == 2
        assert [record.getMessage() for record in caplog.records].count("soft quota exceeded") == 1

    run(test())


# ---- teams ------------------------------------------------------------------------------------------------------------


def test_the_members_of_a_team_share_its_quota_and_its_limits() -> None:
    async def test() -> None:
        teams = {"red": {"tokens_per_month": 1, "requests_per_minute": 2}}
        members = keys({"team": "red", "tokens_per_day": 10**6}, team="red")
        async with simulated(store="memory", teams=teams, api_keys=members) as served:
            first = await asked(served)
            assert first.status == 200
            assert first.headers["x-ratelimit-remaining-requests"] == "1"
            assert "team red has used" in refused(await asked(served, BOB))
            assert "team red has used" in refused(await asked(served))

    run(test())


def test_the_concurrency_of_a_team_counts_all_members() -> None:
    async def test() -> None:
        teams = {"red": {"concurrent_requests": 1}}
        async with simulated(teams=teams, api_keys=keys({"team": "red"}, team="red", requests_per_minute=1)) as served:
            client = await RawClient.connect(served)
            body = b'{"model": "simulator", "stream": true, "input": "%s"}' % ENDLESS.encode()
            head = f"POST /v1/responses HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {ALICE}\r\nContent-Length: {len(body)}"
            await client.send(head.encode() + b"\r\n\r\n" + body)
            await client.read_until(b"output_text.delta")
            for _ in range(2):  # what the team refuses does not count against the key, which may ask once a minute
                answer = await asked(served, BOB)
                assert "team 'red' on requests at the same time" in assert_error(answer, 429, "rate_limit_exceeded")
                assert answer.headers["x-ratelimit-remaining-requests"] == "1"
            client.close()
            await until(lambda: not served.parts.in_flight.activities, "the exchange has ended")
            assert (await asked(served, BOB)).status == 200
            assert served.metric("key_requests_total", key="bob") == 1

    run(test())


@pytest.mark.slow
def test_what_a_team_refuses_does_not_count_against_the_key_in_redis(redis_server: RedisServer) -> None:
    async def test() -> None:
        teams = {"red": {"requests_per_minute": 1}}
        members = keys({"team": "red"}, team="red", requests_per_minute=5)
        async with replicas(teams=teams, api_keys=members, events=redis_server.url) as served:
            for one in served:
                await until(lambda one=one: one.metric("limits_gateways") == 2, "both count together")  # type: ignore[misc]
            assert (await asked(served[0])).status == 200
            for number in range(20):
                assert "team 'red'" in assert_error(await asked(served[number % 2], BOB), 429, "rate_limit_exceeded")

    run(test())


# ---- several gateways -------------------------------------------------------------------------------------------------


def test_two_replicas_share_a_quota_in_a_store(tmp_path: Path) -> None:
    async def test() -> None:
        async with replicas(store=str(tmp_path / "store"), api_keys=keys({"tokens_per_day": 1})) as (one, other):
            assert (await asked(one)).status == 200
            refused(await asked(other))

    run(test())


def test_two_replicas_share_a_quota_in_redis_which_may_lose_its_data(redis_server: RedisServer) -> None:
    async def test() -> None:
        settings = {"events": redis_server.url, "store": "memory", "api_keys": keys({"tokens_per_day": 1})}
        async with replicas(**settings) as (one, other):
            assert (await asked(one)).status == 200
            refused(await asked(other))
            redis_server.kill()
            refused(await asked(one))
            redis_server.start()
            ledger = one.parts.accounts.ledger
            assert ledger is not None
            await until(lambda: ledger.reachable, "the counters are back")
            refused(await asked(one))
            refused(await asked(other))

    run(test())


def test_exactly_what_was_used_is_counted_by_concurrent_requests_of_two_replicas(tmp_path: Path) -> None:
    async def test() -> None:
        async with replicas(store=str(tmp_path / "store"), api_keys=keys({"tokens_per_day": 10**9})) as both:
            answers = await asyncio.gather(*(asked(both[number % 2], input="x " * number) for number in range(16)))
            store = both[0].parts.store
            assert store is not None
            rows = await store.database.run(lambda sql: sql.execute("SELECT name, tokens FROM quota_counters").fetchall())
            assert len(rows) == 2
            assert {tokens for _, tokens in rows} == {sum(map(used, answers))}

    run(test())


@pytest.mark.slow
def test_what_a_client_got_to_the_end_is_charged_though_the_gateway_is_killed(tmp_path: Path) -> None:
    async def test() -> None:
        config = tmp_path / "gateway.yaml"
        config.write_text(
            f"store: {tmp_path / 'store'}\napi_keys: {{alice: {{hash: '{hash_of(ALICE)}', tokens_per_day: 1}}}}\n"
        )
        async with serving(create_app()) as backend:
            flags = ("--config", str(config), "--backend", backend)
            async with program(*flags) as first:
                assert (await post(first, headers=bearer(ALICE))).status == 200
                first.process.kill()
            async with program(*flags) as second:
                refused(await post(second, headers=bearer(ALICE)))

    run(test())
