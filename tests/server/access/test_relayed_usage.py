"""The tokens of relayed answers count against the limits of the client."""

from __future__ import annotations

import json
import tracemalloc
from itertools import pairwise
from typing import Any

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from responses_gateway.server.access.relayed_usage import UsageMeter
from responses_gateway.wire.deltas import Usage
from tests.server.running_gateway import ask, gateway, run, simulated, until
from tests.server.scripted_backend import HEAD, Connection, backend, chunk

CHAT: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "tokens: 150 tps: 100000"}]}
USAGE = {"prompt_tokens": 30, "completion_tokens": 12, "total_tokens": 42, "prompt_tokens_details": {"cached_tokens": 4}}
CONTENT = 'He said: "usage": {"total_tokens": 9000} \\ "usage": {"total_tokens": 9000}'


def counted(body: bytes, cuts: list[int], *, is_stream: bool = False) -> int:
    return metered(body, cuts, is_stream=is_stream).tokens


def metered(body: bytes, cuts: list[int], *, is_stream: bool = False) -> UsageMeter:
    meter = UsageMeter(is_stream=is_stream)
    places = sorted({cut % (len(body) + 1) for cut in cuts} | {0, len(body)})
    for begin, end in pairwise(places):
        meter.feed(body[begin:end])
    return meter


COMPLETION = json.dumps({"choices": [{"message": {"content": CONTENT}}], "usage": USAGE, "kv_transfer_params": None})
SPACED = json.dumps({"usage": USAGE, "choices": [{"message": {"content": CONTENT}}]}, indent=2)
EMBEDDING = json.dumps({"data": [{"embedding": [0.5] * 3000}], "usage": {"prompt_tokens": 42, "total_tokens": 42}})
STREAM = "".join(
    f"data: {json.dumps(event)}\n\n"
    for event in [
        *({"choices": [{"delta": {"content": CONTENT}}], "usage": None} for _ in range(3)),
        {"choices": [], "usage": USAGE},
    ]
)
CONTINUOUS = "".join(
    f"data: {json.dumps({'choices': [], 'usage': {'prompt_tokens': 30, 'completion_tokens': number}})}\n\n"
    for number in range(13)
)
ANTHROPIC = "".join(
    f"event: {event['type']}\r\ndata: {json.dumps(event)}\r\n\r\n"
    for event in [
        {"type": "message_start", "message": {"usage": {"input_tokens": 30, "output_tokens": 1}}},
        {"type": "message_delta", "usage": {"output_tokens": 12}},
    ]
)


@pytest.mark.parametrize("body", [COMPLETION, SPACED, EMBEDDING, STREAM, CONTINUOUS, ANTHROPIC])
@given(st.lists(st.integers(0, 20_000), max_size=60))
def test_usage_is_found_wherever_the_body_is_cut(body: str, cuts: list[int]) -> None:
    assert counted(body.encode(), cuts, is_stream=True) == 42


NAMED = json.dumps({"model": 'a "model": "b"', "choices": [{"message": {"content": 'the "model": "c"'}}], "usage": USAGE})
NAMED_LAST = json.dumps({"data": [{"embedding": [0.5] * 3000}], "model": 'a "model": "b"', "usage": USAGE}, indent=1)


@pytest.mark.parametrize("body", [NAMED, NAMED_LAST])
@given(st.lists(st.integers(0, 20_000), max_size=60))
def test_the_model_is_found_wherever_the_body_is_cut(body: str, cuts: list[int]) -> None:
    meter = metered(body.encode(), cuts)
    assert meter.model == 'a "model": "b"'
    assert meter.usage == Usage(30, 12, 4, reasoning=0)


@pytest.mark.parametrize(
    "body", [b'{"model": null}', b'{"x": "\\"model\\": \\"m\\""}', b'{"model": "\\x"}', b'{"model": "' + b"m" * 999]
)
def test_what_names_no_model(body: bytes) -> None:
    assert metered(body, []).model == ""


def test_what_is_not_told_apart_is_input() -> None:
    assert metered(b'{"usage": {"total_tokens": 7}}', []).usage == Usage(7, 0, 0, reasoning=0)


@pytest.mark.parametrize("body", [COMPLETION, STREAM])
def test_usage_is_found_byte_by_byte(body: str) -> None:
    assert counted(body.encode(), list(range(len(body)))) == 42


@pytest.mark.parametrize(
    "body",
    [
        b"", b"not JSON", b'{"usage": null}', b'{"usage": [7]}', b'{"usage": {"total_tokens": "many"}}', b'{"usage": {"x": ',
        b'{"a": "\\"usage\\": {\\"total_tokens\\": 7}"}', b'["usage", {"total_tokens": 7}]', b'{"usage": {"total_tokens": -7}}',
    ],
)  # fmt: skip
@given(st.lists(st.integers(0, 100), max_size=20))
def test_what_is_no_usage_counts_nothing(body: bytes, cuts: list[int]) -> None:
    assert counted(body, cuts) == 0


def test_an_object_without_an_end_costs_little() -> None:
    meter = UsageMeter(is_stream=False)
    tracemalloc.start()
    for _ in range(100):
        meter.feed(b'"usage": {' + b"x" * 20_000)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 100_000
    meter.feed(json.dumps({"usage": USAGE}).encode())
    assert meter.tokens == 42


@pytest.mark.parametrize("fields", [{}, {"stream": True, "stream_options": {"include_usage": True}}, {"stream": True}])
def test_a_relayed_chat_uses_up_the_tokens_of_its_client(fields: dict[str, Any]) -> None:
    async def test() -> None:
        async with simulated(tokens_per_minute=100) as served:
            answer = await ask(served, "POST", "/v1/chat/completions", json={**CHAT, **fields})
            assert answer.status == 200
            refused = await ask(served, "POST", "/v1/chat/completions", json=CHAT)
            assert (refused.status, refused.json["error"]["type"]) == (429, "tokens")

    run(test())


def test_a_compressed_answer_is_not_asked_for() -> None:
    async def test() -> None:
        async def play(connection: Connection) -> None:
            body = json.dumps({"usage": USAGE}).encode()
            connection.write(
                b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body
            )

        async with backend(play) as server, gateway(server.url, adapt=False, tokens_per_minute=10) as served:
            answer = await ask(served, "POST", "/v1/embeddings", json={"model": "m"}, headers={"Accept-Encoding": "gzip"})
            assert answer.status == 200
            assert b"gzip" not in server.requests[0]
            assert (await ask(served, "POST", "/v1/embeddings", json={"model": "m"})).status == 429

    run(test())


def test_a_client_that_leaves_a_relayed_stream_has_had_its_tokens() -> None:
    async def test() -> None:
        async def endless(connection: Connection) -> None:
            connection.write(HEAD)
            for _ in range(60):
                connection.send(chunk({"content": "x"}))
            await connection.lost

        async with backend(endless) as server, gateway(server.url, adapt=False, tokens_per_minute=50) as served:
            async with aiohttp.ClientSession() as session:
                answer = await session.post(f"{served.url}/v1/chat/completions", json={**CHAT, "stream": True})
                received = b""
                while received.count(b"\n\n") < 60:
                    received += await answer.content.readany()
                answer.close()
            await until(lambda: all(connection.lost.done() for connection in server.connections))

            refused = await ask(served, "POST", "/v1/chat/completions", json=CHAT)
            assert (refused.status, refused.json["error"]["type"]) == (429, "tokens")

    run(test())
