"""API keys at the front door: who comes in, what the backend gets to see, and whose data is whose."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import openai
import pytest
from openai import AsyncOpenAI

from responses_gateway.server.app import create_app as create_gateway
from responses_gateway.server.lifespan import open_parts
from responses_gateway.settings import Settings
from responses_gateway.settings.keys import hash_of
from responses_gateway.simulator import RECEIVED, create_app, serving
from responses_gateway.telemetry import logs
from tests.server.running_gateway import (
    LOOPS,
    Answer,
    Served,
    ask,
    assert_error,
    final_of,
    gateway,
    post,
    run,
    simulated,
    until,
)
from tests.server.scripted_backend import Play, answering, backend, refusing, streaming

ALICE = "rp_alice-0123456789"
ALICE_NEXT = "rp_alice-next-0123456789"
BOB = "rp_bob-0123456789abc"
KEYS = {"alice": {"hash": [hash_of(ALICE), hash_of(ALICE_NEXT)]}, "bob": hash_of(BOB)}
JSON_ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def sdk(served: Served, key: str) -> AsyncOpenAI:
    return AsyncOpenAI(base_url=f"{served.url}/v1", api_key=key, max_retries=0)


def refused(answer: Answer) -> str:
    assert answer.headers["www-authenticate"] == "Bearer"
    return assert_error(answer, 401, "invalid_api_key")


# ---- who comes in -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("stream", [True, False])
def test_a_key_opens_the_door(loop: str, stream: bool) -> None:
    async def test() -> None:
        async with simulated(api_keys=KEYS) as served:
            for headers in (
                bearer(ALICE),
                bearer(BOB),
                {"X-Api-Key": ALICE},
                {"api-key": BOB},
                {"Authorization": f"bEARER  {ALICE} "},
            ):
                assert (await post(served, stream=stream, headers=headers)).status == 200
            missing = refused(await post(served, stream=stream))
            wrong = refused(await post(served, stream=stream, headers=bearer("rp_mallory-0123456789")))
            assert "didn't provide an API key" in missing
            assert "Incorrect API key" in wrong
            assert "mallory" not in wrong
            assert served.metric("access_refusals_total", reason="missing_key") == 1
            assert served.metric("access_refusals_total", reason="wrong_key") == 1

    run(test(), loop)


@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": ALICE},
        {"Authorization": f"Basic {ALICE}"},
        {"Authorization": "Bearer"},
        {"Authorization": "Bearer "},
        {"Authorization": f"Bearer {ALICE} {ALICE}"},
        {"Authorization": f"Bearer {ALICE.upper()}"},
        {"Authorization": f"Bearer {hash_of(ALICE)}"},
        {"Authorization": "Bearer alice"},
        {"Cookie": f"key={ALICE}"},
        {"X-Api-Key": ""},
        {"Authorization": "Bearer " + "x" * 4000},
        {"Authorization": "Bearer \u00fc\u00e4\u00f6"},
        {"X-Forwarded-User": "alice"},
    ],
)
def test_what_is_not_a_key_does_not(headers: dict[str, str]) -> None:
    async def test() -> None:
        async with simulated(api_keys=KEYS) as served:
            refused(await post(served, headers=headers))
            refused(await ask(served, "GET", f"/v1/models?api_key={ALICE}", headers=headers))

    run(test())


PATHS = [
    ("POST", "/v1/responses"),
    ("GET", "/v1/responses"),
    ("PATCH", "/v1/responses"),
    ("OPTIONS", "/v1/responses"),
    ("POST", "/v1/responses/compact"),
    ("POST", "/v1/responses/input_tokens"),
    ("POST", "/v1/decisions"),
    ("GET", "/v1/responses/resp_1"),
    ("DELETE", "/v1/responses/resp_1"),
    ("POST", "/v1/responses/resp_1/cancel"),
    ("GET", "/v1/responses/resp_1/input_items"),
    ("POST", "/v1/conversations"),
    ("GET", "/v1/conversations/conv_1"),
    ("GET", "/v1/models"),
    ("HEAD", "/v1/models"),
    ("GET", "/v1/models/m"),
    ("POST", "/v1/chat/completions"),
    ("GET", "/v1/anything"),
    ("POST", "/tokenize"),
    ("POST", "/detokenize"),
    ("GET", "/no/such/path"),
    ("GET", "/"),
    ("POST", "/health"),
    ("GET", "/health/"),
    ("GET", "//health"),
    ("GET", "/health/../v1/models"),
    ("GET", "/v1/../health"),
    ("GET", "/v1/%2e%2e/health"),
    ("GET", "/metrics/x"),
]


@pytest.mark.parametrize(("method", "path"), PATHS)
def test_nothing_else_is_open(method: str, path: str) -> None:
    async def test() -> None:
        backend_app = create_app()
        async with serving(backend_app) as url, gateway(url, api_keys=KEYS, store="memory") as served:
            target = aiohttp.client.URL(served.url + path, encoded=True)
            async with (
                aiohttp.ClientSession() as session,
                session.request(method, target, json={"model": "m", "input": "x"}) as answer,
            ):
                body = await answer.read()
                assert answer.status == 401
                assert method == "HEAD" or json.loads(body)["error"]["code"] == "invalid_api_key"
            assert not backend_app[RECEIVED]

    run(test())


def test_what_machines_ask_is_open_and_metrics_need_not_be() -> None:
    async def test() -> None:
        for needed, status in {False: 200, True: 401}.items():
            async with simulated(api_keys=KEYS, metrics="key" if needed else "open") as served:
                assert (await ask(served, "GET", "/health")).status == 200
                assert (await ask(served, "GET", "/ready")).status == 200
                assert (await ask(served, "GET", "/metrics")).status == status
                assert (await ask(served, "GET", "/metrics", headers=bearer(BOB))).status == 200

    run(test())


def test_a_websocket_needs_a_key() -> None:
    async def test() -> None:
        async with simulated(api_keys=KEYS) as served, aiohttp.ClientSession() as session:
            with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
                await session.ws_connect(served.url + "/v1/responses")
            assert caught.value.status == 401
            async with session.ws_connect(served.url + "/v1/responses", headers=bearer(ALICE)) as socket:
                await socket.send_json({"type": "response.create", "model": "simulator", "input": "hi"})
                assert (await socket.receive_json())["type"] == "response.created"

    run(test())


def test_the_official_sdk() -> None:
    async def test() -> None:
        async with simulated(api_keys=KEYS) as served:
            async with sdk(served, ALICE) as client:
                assert (await client.responses.create(model="m", input="hi")).status == "completed"
            async with sdk(served, "rp_wrong-0123456789") as client:
                with pytest.raises(openai.AuthenticationError) as caught:
                    await client.responses.create(model="m", input="hi", stream=True)
                assert caught.value.code == "invalid_api_key"

    run(test())


def test_requests_and_tokens_are_counted_for_each_key() -> None:
    async def test() -> None:
        lines: list[Any] = []

        class Collector(logging.Handler):
            def emit(self, record: logging.LogRecord) -> None:
                lines.append(getattr(record, "fields", {}))

        collector = Collector()
        logs.logger().addHandler(collector)
        level = logs.logger().level
        logs.logger().setLevel("INFO")
        try:
            async with simulated(api_keys=KEYS, access_log=True) as served:
                usage = [(await post(served, headers=bearer(ALICE))).final["usage"]["total_tokens"] for _ in range(2)]
                await post(served, input=7, headers=bearer(BOB))
                await until(lambda: not served.parts.in_flight.activities)
                assert served.metric("key_requests_total", key="alice") == 2
                assert served.metric("key_tokens_total", key="alice") == sum(usage) > 0
                assert served.metric("key_requests_total", key="bob") == 1
                assert served.metric("key_tokens_total", key="bob") == 0
            assert sorted(line["key"] for line in lines if "outcome" in line) == ["alice", "alice", "bob"]
        finally:
            logs.logger().removeHandler(collector)
            logs.logger().setLevel(level)

    run(test())


def test_without_keys_limits_and_origins_nothing_stands_in_the_way() -> None:
    """Check that a request runs through no more code than before."""

    async def test() -> None:
        async with open_parts(Settings(store="none")) as parts:
            plain = create_gateway(parts)
        assert len(plain.middlewares) == 1  # what each request goes through: the access log, and errors
        assert len(plain.on_response_prepare) == 1
        settings = Settings(api_keys=KEYS, requests_per_minute=1, cors_origins=["*"], store="none")
        async with open_parts(settings) as parts:
            full = create_gateway(parts)
        assert len(full.middlewares) == 4

    run(test())


# ---- the backend ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend_key", [None, "sk-of-the-backend"])
def test_no_key_of_a_client_reaches_the_backend(backend_key: str | None) -> None:
    async def test() -> None:
        async with (
            backend(answering(JSON_ANSWER)) as behind,
            gateway(behind.url, api_keys=KEYS, backend_api_key=backend_key, forward_authorization=True) as served,
        ):
            for path in ("responses", "responses/compact", "responses/input_tokens", "chat/completions", "embeddings"):
                for headers in (bearer(ALICE), {"X-Api-Key": ALICE}, {"Api-Key": ALICE}, {**bearer(ALICE), "x-api-key": BOB}):
                    await ask(served, "POST", f"/v1/{path}", json={"model": "m", "input": "x"}, headers=headers)
            await ask(served, "GET", "/v1/models", headers=bearer(ALICE))
            await ask(served, "GET", "/v1/files", headers=bearer(ALICE))
            await ask(served, "POST", "/tokenize", json={}, headers=bearer(ALICE))
            seen = b"".join(behind.requests)
            assert len(behind.requests) > 20
            assert ALICE.encode() not in seen
            assert BOB.encode() not in seen
            assert (seen.lower().count(b"authorization:") > 0) == (backend_key is not None)

    run(test())


@pytest.mark.parametrize("stream", [True, False])
def test_a_key_that_is_refused_in_the_place_of_an_answer_is_the_gateways(stream: bool) -> None:
    """Servers like MiniMax answer with status 200."""
    refused = {"choices": None, "base_resp": {"status_code": 1004, "status_msg": "login fail"}}

    async def message(play: Play, **settings: Any) -> str:
        async with backend(play) as behind, gateway(behind.url, **settings) as served:
            answer = await ask(served, "POST", "/v1/responses", json={"model": "m", "input": "x", "stream": stream})
            told = final_of(answer.body) if stream and answer.status == 200 else answer.json
            return str(told["error"]["message"])

    async def test() -> None:
        body = json.dumps(refused).encode()
        for play in (refusing(200, body), streaming(b"data: %b\n\n" % body)):
            assert "The backend does not accept the gateway's own key" in await message(play, backend_api_key="ours")
            assert await message(play) == "login fail"

    run(test())


def test_without_keys_the_backend_gets_the_clients_own_as_ever() -> None:
    async def test() -> None:
        async with backend(answering(JSON_ANSWER)) as behind, gateway(behind.url) as served:
            await ask(served, "POST", "/v1/chat/completions", json={}, headers={**bearer(ALICE), "x-api-key": BOB})
            assert ALICE.encode() in behind.requests[0]
            assert BOB.encode() in behind.requests[0]

    run(test())


@pytest.mark.slow
def test_the_relay_can_be_switched_off() -> None:
    async def test() -> None:
        async with backend(answering(JSON_ANSWER)) as behind, gateway(behind.url, relay=False) as served:
            for method, path in (("POST", "/v1/chat/completions"), ("POST", "/v1/load_lora_adapter"), ("POST", "/tokenize")):
                assert_error(await ask(served, method, path, json={}), 404, "not_found")
            assert not behind.requests

    run(test())


# ---- whose data is whose ----------------------------------------------------------------------------------------------


@asynccontextmanager
async def two() -> AsyncIterator[tuple[Served, AsyncOpenAI, AsyncOpenAI]]:
    async with simulated(api_keys=KEYS, store="memory") as served, sdk(served, ALICE) as alice, sdk(served, BOB) as bob:
        yield served, alice, bob


def test_what_one_key_stored_another_cannot_see() -> None:
    async def test() -> None:
        async with two() as (_, alice, bob):
            mine = await alice.responses.create(model="m", input="my secret")
            conversation = await alice.conversations.create(items=[{"type": "message", "role": "user", "content": "mine"}])
            running = await alice.responses.create(model="m", input="tokens: 5000 tps: 100", background=True)
            for attempt in (
                bob.responses.retrieve(mine.id),
                bob.responses.delete(mine.id),
                bob.responses.input_items.list(mine.id),
                bob.responses.cancel(running.id),
                bob.conversations.retrieve(conversation.id),
                bob.conversations.items.list(conversation.id),
                bob.conversations.delete(conversation.id),
                bob.responses.create(model="m", input="x", conversation=conversation.id),
            ):
                with pytest.raises(openai.NotFoundError):
                    await attempt
            with pytest.raises(openai.NotFoundError):
                await bob.responses.retrieve(running.id, stream=True)
            with pytest.raises(openai.BadRequestError):
                await bob.responses.create(model="m", input="x", previous_response_id=mine.id)
            reference: Any = [{"type": "item_reference", "id": mine.output[0].id}]
            with pytest.raises(openai.BadRequestError):
                await bob.responses.create(model="m", input=reference)
            assert (await alice.responses.retrieve(mine.id)).id == mine.id
            await alice.responses.cancel(running.id)

    run(test())


def test_a_key_that_replaces_another_finds_what_that_one_stored() -> None:
    async def test() -> None:
        async with two() as (served, alice, _), sdk(served, ALICE_NEXT) as renewed:
            mine = await alice.responses.create(model="m", input="one", include=["reasoning.encrypted_content"])
            assert (await renewed.responses.retrieve(mine.id)).id == mine.id
            follow_up = await renewed.responses.create(model="m", input="two", previous_response_id=mine.id)
            assert follow_up.status == "completed"

    run(test())


def test_sealed_content_is_bound_to_the_name_of_the_key() -> None:
    async def test() -> None:
        async with two() as (served, alice, bob), sdk(served, ALICE_NEXT) as renewed:
            compacted = await alice.responses.compact(model="m", input="a long history")
            items: Any = [item.model_dump(exclude_none=True) for item in compacted.output]
            assert (await renewed.responses.create(model="m", input=items)).status == "completed"
            with pytest.raises(openai.BadRequestError):
                await bob.responses.create(model="m", input=items)

    run(test())


def test_without_keys_data_still_goes_by_the_clients_own() -> None:
    async def test() -> None:
        async with simulated(store="memory") as served, sdk(served, "one") as one, sdk(served, "two") as other:
            mine = await one.responses.create(model="m", input="x")
            assert (await one.responses.retrieve(mine.id)).id == mine.id
            with pytest.raises(openai.NotFoundError):
                await other.responses.retrieve(mine.id)

    run(test())


def test_a_name_cannot_be_had_by_sending_it_as_a_key() -> None:
    """Check that a key that anybody may send in the open mode never gives access to the data of a named key."""

    async def test() -> None:
        async with simulated(store="memory") as served, sdk(served, "x") as client:
            mine = await client.responses.create(model="m", input="x", extra_headers={"Authorization": "key:alice"})
            assert served.parts.store is not None
            assert await served.parts.store.responses.get("key:alice", mine.id) is None

    run(test())
