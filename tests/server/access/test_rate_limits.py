"""How much one client may have, and what it is told."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import aiohttp
import openai
import pytest
from openai import AsyncOpenAI

from responses_gateway.server.access.rate_limits import MAX_ADDRESSES, RateLimits
from responses_gateway.settings import Settings
from responses_gateway.settings.keys import hash_of
from responses_gateway.telemetry.metrics import Metrics
from tests.server.running_gateway import Answer, RawClient, ask, assert_error, gateway, post, run, simulated, until

KEY = "rp_alice-0123456789"
OTHER = "rp_bob-0123456789abc"
ENDLESS = "scenario: long tokens: 5000 tps: 100"
HEADERS = {f"x-ratelimit-{what}-{kind}" for what in ("limit", "remaining", "reset") for kind in ("requests", "tokens")}


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def keys(**limits: int) -> dict[str, Any]:
    return {"alice": {"hash": hash_of(KEY), **limits}, "bob": {"hash": hash_of(OTHER)}}


def limited(answer: Answer, kind: str) -> str:
    message = assert_error(answer, 429, "rate_limit_exceeded")
    assert answer.json["error"]["type"] == kind
    assert int(answer.headers["retry-after"]) >= 1
    assert re.search(r"try again in \d+\.\d+s", message)  # where Codex reads the time
    return message


@pytest.mark.parametrize("stream", [True, False])
def test_requests_per_minute(stream: bool) -> None:
    async def test() -> None:
        async with simulated(api_keys=keys(), requests_per_minute=2) as served:
            for left in (1, 0):
                answer = await post(served, stream=stream, headers=bearer(KEY))
                assert answer.status == 200
                assert answer.headers["x-ratelimit-limit-requests"] == "2"
                assert answer.headers["x-ratelimit-remaining-requests"] == str(left)
                assert re.fullmatch(r"(\d+m)?\d+s|\d+ms", answer.headers["x-ratelimit-reset-requests"])
            refused = await post(served, stream=stream, headers=bearer(KEY))
            assert "key 'alice' on requests per min (RPM): Limit 2" in limited(refused, "requests")
            assert 25 <= int(refused.headers["retry-after"]) <= 30
            assert refused.headers["x-ratelimit-remaining-requests"] == "0"
            assert (await post(served, headers=bearer(OTHER))).status == 200
            assert served.metric("access_refusals_total", reason="requests") == 1

    run(test())


def test_tokens_are_counted_when_the_response_has_ended() -> None:
    async def test() -> None:
        async with simulated(api_keys=keys(tokens_per_minute=100)) as served:
            answer = await post(served, input="tokens: 150 tps: 100000", headers=bearer(KEY))
            assert answer.headers["x-ratelimit-remaining-tokens"] == "100"
            assert answer.final["usage"]["total_tokens"] >= 150
            refused = await post(served, headers=bearer(KEY))
            assert "on tokens per min (TPM): Limit 100" in limited(refused, "tokens")
            assert (await post(served, headers=bearer(OTHER))).headers.keys().isdisjoint(HEADERS)

    run(test())


def test_a_client_that_leaves_has_had_tokens_too() -> None:
    async def test() -> None:
        async with simulated(tokens_per_minute=10) as served:
            client = await RawClient.connect(served)
            await client.post(input=ENDLESS)
            while client.received.count(b"delta") < 60:
                assert await client.read()
            client.close()
            await until(lambda: not served.parts.in_flight.activities)
            limited(await post(served), "tokens")

    run(test())


def test_what_runs_at_the_same_time() -> None:
    async def test() -> None:
        async with simulated(api_keys=keys(concurrent_requests=1)) as served, aiohttp.ClientSession() as session:
            body = {"model": "m", "input": ENDLESS, "stream": True}
            url = served.url + "/v1/responses"
            async with session.post(url, json=body, headers=bearer(KEY)) as running:
                await running.content.readany()
                refused = await post(served, headers=bearer(KEY))
                assert "at the same time: Limit 1" in limited(refused, "requests")
                assert (await post(served, headers=bearer(OTHER))).status == 200
                running.close()
            await until(lambda: not served.parts.in_flight.activities)
            for _ in range(2):
                assert (await post(served, headers=bearer(KEY))).status == 200
            for _ in range(2):  # what is refused later on is given back
                assert (await post(served, input=7, headers=bearer(KEY))).status == 400
            assert (await post(served, headers=bearer(KEY))).status == 200

    run(test())


def test_what_runs_in_the_background_runs() -> None:
    async def test() -> None:
        async with simulated(concurrent_requests=1, store="memory") as served:
            queued = (await post(served, input="tokens: 5000 tps: 100", background=True, stream=False)).json
            limited(await post(served), "requests")
            assert (await ask(served, "GET", f"/v1/responses/{queued['id']}")).status == 200
            assert (await ask(served, "POST", f"/v1/responses/{queued['id']}/cancel")).status == 200
            assert (await post(served)).status == 200

    run(test())


def test_a_websocket_counts_its_messages() -> None:
    async def test() -> None:
        async with (
            simulated(requests_per_minute=2) as served,
            aiohttp.ClientSession() as session,
            session.ws_connect(served.url + "/v1/responses") as socket,
        ):
            for status in (None, None, 429):
                await socket.send_json({"type": "response.create", "model": "simulator", "input": "hi"})
                event = await socket.receive_json()
                while event["type"] not in ("response.completed", "error"):
                    event = await socket.receive_json()
                assert event.get("status") == status
            assert event["error"]["code"] == "rate_limit_exceeded"

    run(test())


def test_the_relay_counts_and_what_costs_no_gpu_does_not() -> None:
    async def test() -> None:
        async with simulated(requests_per_minute=1, store="memory") as served:
            for path in ("/v1/models", "/health", "/metrics", "/v1/responses/resp_1"):
                for _ in range(2):
                    assert (await ask(served, "GET", path)).status in (200, 404)
            chat = {"model": "m", "messages": [{"role": "user", "content": "x"}]}
            answer = await ask(served, "POST", "/v1/chat/completions", json=chat)
            assert (answer.status, answer.headers["x-ratelimit-remaining-requests"]) == (200, "0")
            for path in ("/v1/chat/completions", "/v1/responses", "/v1/responses/compact", "/v1/responses/input_tokens"):
                limited(await ask(served, "POST", path, json=chat), "requests")
            limited(await ask(served, "POST", "/tokenize", json=chat), "requests")

    run(test())


def test_a_keys_own_limits_go_before_those_for_all() -> None:
    async def test() -> None:
        async with simulated(api_keys=keys(requests_per_minute=0, concurrent_requests=5), requests_per_minute=1) as served:
            for _ in range(3):
                assert (await post(served, headers=bearer(KEY))).status == 200
            assert (await post(served, headers=bearer(OTHER))).status == 200
            limited(await post(served, headers=bearer(OTHER)), "requests")

    run(test())


def test_who_has_no_key_uses_up_nobodys_requests() -> None:
    async def test() -> None:
        async with simulated(api_keys=keys(), requests_per_minute=1) as served:
            for _ in range(3):
                assert_error(await post(served), 401, "invalid_api_key")
            assert (await post(served, headers=bearer(KEY))).status == 200

    run(test())


def test_without_limits_nothing_is_said_about_them() -> None:
    async def test() -> None:
        async with simulated() as served:
            assert (await post(served)).headers.keys().isdisjoint(HEADERS)

    run(test())


def test_the_official_sdk() -> None:
    async def test() -> None:
        async with (
            simulated(api_keys=keys(), requests_per_minute=60, tokens_per_minute=1000) as served,
            AsyncOpenAI(base_url=f"{served.url}/v1", api_key=KEY, max_retries=0) as sdk,
        ):
            answer = await sdk.responses.with_raw_response.create(model="m", input="tokens: 2000 tps: 100000")
            assert answer.headers["x-ratelimit-limit-requests"] == "60"
            assert answer.headers["x-ratelimit-remaining-requests"] == "59"
            assert answer.headers["x-ratelimit-limit-tokens"] == "1000"
            assert re.fullmatch(r"1s|\d+ms", answer.headers["x-ratelimit-reset-requests"])
            with pytest.raises(openai.RateLimitError) as caught:
                await sdk.responses.create(model="m", input="hi")
            assert caught.value.code == "rate_limit_exceeded"
            assert caught.value.response.headers["x-ratelimit-remaining-tokens"] == "0"
            assert float(caught.value.response.headers["retry-after"]) > 30

    run(test())


def test_the_sdk_waits_and_tries_again() -> None:
    async def test() -> None:
        async with (
            simulated(concurrent_requests=1) as served,
            AsyncOpenAI(base_url=f"{served.url}/v1", api_key=KEY, max_retries=3) as sdk,
        ):
            slow = asyncio.create_task(sdk.responses.create(model="m", input="tokens: 20 tps: 100"))
            await until(lambda: served.parts.in_flight.activities)
            assert (await sdk.responses.create(model="m", input="hi")).status == "completed"
            assert (await slow).status == "completed"

    run(test())


def test_everything_gives_back_what_it_held() -> None:
    """Send one request at a time, one after the other, each ending in another way."""
    wrong = [{"role": "user", "content": [{"type": "no_such_part"}]}]

    async def test() -> None:
        async with simulated(concurrent_requests=1, store="memory") as served:
            for path, body in (
                ("responses", {"input": "hi"}),
                ("responses", {"input": wrong}),
                ("responses", {"input": "hi", "previous_response_id": "resp_0"}),
                ("responses", {"input": "hi", "background": True, "store": False}),
                ("responses", {}),
                ("responses/compact", {"input": "hi"}),
                ("responses/compact", {"input": wrong}),
                ("responses/compact", {}),
                ("responses/input_tokens", {"input": "hi"}),
                ("responses/input_tokens", {"input": wrong}),
                ("chat/completions", {"messages": [{"role": "user", "content": "x"}]}),
                ("chat/completions", {"messages": 7}),
                ("no/such/path", {}),
                ("responses", {"input": "hi"}),
            ):
                answer = await ask(served, "POST", f"/v1/{path}", json={"model": "simulator", **body})
                assert answer.status in (200, 400, 404), path
            async with (
                aiohttp.ClientSession() as session,
                session.ws_connect(served.url + "/v1/responses") as socket,
            ):
                for fields, status in (
                    ({"input": "hi"}, None),
                    ({"input": wrong}, 400),
                    ({}, 400),
                    ({"input": "hi", "generate": False}, None),
                    ({"input": "hi", "previous_response_id": "resp_0"}, 400),
                    ({"input": "hi"}, None),
                ):
                    await socket.send_json({"type": "response.create", "model": "simulator", **fields})
                    event = await socket.receive_json()
                    while event["type"] not in ("response.completed", "error"):
                        event = await socket.receive_json()
                    assert event.get("status") == status
                await socket.send_json({"type": "response.create", "model": "simulator", "input": ENDLESS})
                await socket.receive_json()
            await until(lambda: not served.parts.in_flight.activities)
            assert (await post(served)).status == 200

    run(test())


def test_a_backend_that_cannot_be_reached_holds_nothing() -> None:
    async def test() -> None:
        async with gateway("http://backend.invalid", concurrent_requests=1) as served:
            for _ in range(2):
                for path in ("responses", "responses/compact", "chat/completions"):
                    answer = await ask(served, "POST", f"/v1/{path}", json={"model": "m", "input": "x"})
                    assert answer.status == 502

    run(test())


# ---- accounts of addresses --------------------------------------------------------------------------------------------


class Asking:
    """What the accounts look at of a request."""

    client: str | None = None
    address: str | None = None

    def __init__(self, remote: str | None) -> None:
        self.remote = remote

    def __getitem__(self, _key: object) -> Asking:
        return self


def accounts() -> RateLimits:
    settings = Settings(requests_per_minute=1)
    return RateLimits(lambda: settings, lambda: 0.0, Metrics())


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("10.0.0.1", "10.0.0.2", False),
        ("10.0.0.1", "::ffff:10.0.0.1", True),
        ("2001:db8::1", "2001:db8::ffff:2", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        (None, None, True),
        ("/run/gateway.sock", "/run/gateway.sock", True),
    ],
)
def test_an_address_is_an_account_and_so_is_a_network_of_ipv6(one: str | None, other: str | None, same: bool) -> None:
    found = accounts()
    assert (found.of(Asking(one)) is found.of(Asking(other))) == same  # type: ignore[arg-type]


def test_addresses_do_not_fill_the_memory() -> None:
    found = accounts()
    first = found.of(Asking("10.0.0.1"))  # type: ignore[arg-type]
    for number in range(MAX_ADDRESSES + 10):
        found.of(Asking(f"10.{1 + (number >> 16)}.{number >> 8 & 255}.{number & 255}"))  # type: ignore[arg-type]
    assert len(found.by_address) == MAX_ADDRESSES
    assert found.of(Asking("10.0.0.1")) is not first  # type: ignore[arg-type]
