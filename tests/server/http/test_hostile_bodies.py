"""Hostile bodies: deep, wide, cut, slow. Each gets an answer that says what is wrong, and the gateway goes on."""

from __future__ import annotations

import asyncio
import gzip
import io
import json
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from types import MappingProxyType
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from responses_gateway.request import Policy
from responses_gateway.server.app import create_app as create_gateway
from responses_gateway.server.http.connections import Runner
from responses_gateway.server.lifespan import open_parts
from responses_gateway.settings import Settings
from responses_gateway.simulator import create_app, serving
from responses_gateway.wire.requests import MAX_VALUES, ResponsesRequest
from tests.server.running_gateway import (
    LOOPS,
    Answer,
    RawClient,
    Served,
    ask,
    assert_error,
    body_of,
    gateway,
    post,
    run,
    simulated,
    until,
)
from tests.server.scripted_backend import answering, backend
from tests.thoroughness import THOROUGH

DEEP = 150_000
NONE: Mapping[str, str] = MappingProxyType({})
FUNCTION = {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}}


async def send(served: Served, body: bytes, path: str = "/v1/responses", headers: Mapping[str, str] = NONE) -> Answer:
    return await ask(served, "POST", path, data=body, headers={"Content-Type": "application/json", **headers})


def nested(depth: int, opening: str = "[", closing: str = "]") -> str:
    return opening * depth + closing * depth


BODIES = {
    "lists": f'{{"model": "m", "input": {nested(DEEP)}}}',
    "objects": '{"model": "m", "input": ' + nested(DEEP, '{"a":', "}") + "}",
    "lists that never close": '{"model": "m", "input": ' + "[" * DEEP,
    "a field nobody knows": f'{{"model": "m", "input": "x", "unknown": {nested(DEEP)}}}',
    "a schema": '{"model": "m", "input": "x", "tools": [{"type": "function", "name": "f", "parameters": '
    + '{"properties":{"a":' * 5000 + "{}" + "}}" * 5000 + "}]}",
    "metadata": f'{{"model": "m", "input": "x", "metadata": {{"a": {nested(1000)}}}}}',
    "a number of a million digits": '{"model": "m", "input": "x", "max_output_tokens": ' + "9" * 1_000_000 + "}",
    "a huge exponent": '{"model": "m", "input": "x", "temperature": 1e999999999}',
    "NaN": '{"model": "m", "input": "x", "temperature": NaN}',
    "half a surrogate, and no JSON": '{"model": "m", "input": "\\ud800", "metadata": }',
    "no text": "\x00\x01\x02",
    "nothing": "",
}  # fmt: skip


@pytest.mark.parametrize("name", BODIES)
def test_a_hostile_body_is_an_error_400(name: str) -> None:
    async def test() -> None:
        async with simulated(store="memory") as served:
            for path in ("/v1/responses", "/v1/responses/input_tokens", "/v1/responses/compact", "/v1/conversations"):
                answer = await send(served, BODIES[name].encode(), path)
                assert answer.status == 400 or (path == "/v1/conversations" and answer.status == 200)
                assert len(answer.body) < 2000
            assert (await post(served)).status == 200

    run(test())


def test_a_body_that_is_too_large_or_no_gzip_is_the_clients_own_doing() -> None:
    """Count it as a client error in the metrics too, so that no alert fires for it."""

    async def test() -> None:
        async with simulated(max_body_bytes=1000) as served:
            large = json.dumps({"model": "m", "input": "x" * 2000}).encode()
            assert_error(await send(served, large), 413, "request_too_large")
            assert_error(
                await send(served, gzip.compress(large), headers={"Content-Encoding": "gzip"}), 413, "request_too_large"
            )
            assert_error(await send(served, b"no gzip", headers={"Content-Encoding": "gzip"}), 400)
            await until(
                lambda: (
                    served.metric("requests_total", model="unknown", outcome="rejected", stream="false", api="responses") == 3
                )
            )

    run(test())


@pytest.mark.parametrize("unit", ["[],", "{},", '{"a":1},', '"ab",', "1.5,"])
def test_a_body_of_millions_of_small_values_is_not_even_decoded(unit: str) -> None:
    """Decoding it would take a hundred times its size in memory, and block all streams for seconds."""
    body = '{"model": "m", "x": [' + unit * (MAX_VALUES + 1) + "1]}"

    async def test() -> None:
        async with simulated(store="memory") as served:
            for path in ("/v1/responses", "/v1/responses/compact", "/v1/conversations"):
                headers = {"Content-Type": "application/json"}
                answer = await ask(served, "POST", path, data=io.BytesIO(body.encode()), headers=headers)
                assert "too many values" in assert_error(answer, 413, "request_too_large")

    run(test())


WIDE = {f"p{number}": 1 for number in range(490_000 if THOROUGH else 100_000)}


@pytest.mark.parametrize(
    "fields",
    [WIDE, {"reasoning": WIDE}, {"text": WIDE}, {"metadata": WIDE}, {"include": ["x"] * len(WIDE)}],
    ids=lambda f: next(iter(f)),
)
def test_hundreds_of_thousands_of_parameters_are_not_looked_at(fields: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Validating each, and telling that it is not known, would keep the event loop for a second."""
    validated: list[int] = []
    validate = ResponsesRequest.model_validate

    def counted(given: dict[str, Any]) -> ResponsesRequest:
        validated.append(len(given))
        return validate(given)

    monkeypatch.setattr(ResponsesRequest, "model_validate", counted)
    body = json.dumps({"model": "simulator", "input": "hi", **fields}).encode()

    async def test() -> None:
        async with simulated() as served:
            answer = await ask(served, "POST", "/v1/responses", data=io.BytesIO(body))
            assert_error(answer, 400)
            assert len(answer.body) < 2000
            assert validated == [] or "include" in fields
            few = {f"p{number}": 1 for number in range(200)}
            assert (await post(served, {**few, "reasoning": few, "text": few})).status == 200

    run(test())


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/messages", "/v1/responses/input_tokens"])
def test_a_name_of_a_model_that_is_longer_than_any_is_refused_because_names_are_kept(path: str) -> None:
    async def test() -> None:
        asked = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1} if "messages" in path else {"input": "hi"}
        async with simulated() as served:
            answer = await send(served, json.dumps({"model": "m" * 5_000, **asked}).encode(), path)
            assert answer.status == 400, answer.body
            assert "model" in answer.json["error"]["message"]

    run(test())


@pytest.mark.slow
def test_a_long_text_is_not_taken_for_many_values() -> None:
    async def test() -> None:
        source = "values = {name: [1, 2, (3, 4)] for name, value in things.items()}\n"
        body = json.dumps({"model": "simulator", "input": source * 60_000}).encode()
        async with simulated() as served:
            answer = await ask(served, "POST", "/v1/responses", data=io.BytesIO(body))
            assert len(body) > 4_000_000
            assert_error(answer, 400, "context_length_exceeded")  # says the backend

    run(test())


@pytest.mark.parametrize("name", ["lists", "a number of a million digits"])
def test_over_a_websocket_too(name: str) -> None:
    async def test() -> None:
        async with (
            simulated() as served,
            aiohttp.ClientSession() as session,
            session.ws_connect(served.url + "/v1/responses") as socket,
        ):
            await socket.send_str(BODIES[name])
            assert (await socket.receive_json())["status"] == 400
            await socket.send_json({"type": "response.create", "model": "simulator", "input": "hi"})
            assert (await socket.receive_json())["type"] == "response.created"

    run(test())


def test_json_inside_of_strings_may_be_as_deep_as_it_likes() -> None:
    """Treat the arguments of an earlier call and the outputs of tools as text."""
    items = [
        {"type": "message", "role": "user", "content": "x"},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": nested(DEEP)},
        {"type": "function_call_output", "call_id": "c", "output": nested(DEEP)},
    ]

    async def test() -> None:
        async with simulated() as served:
            assert (await post(served, input=items, tools=[FUNCTION], stream=False)).status in (200, 400)
            assert (await post(served)).status == 200

    run(test())


def test_too_many_items_and_tools_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    few = partial(Policy, max_input_items=5, max_tools=5)
    monkeypatch.setattr("responses_gateway.server.generation.preparation.live_settings.Policy", few)

    async def test() -> None:
        async with simulated(store="memory") as served:
            item = {"type": "message", "role": "user", "content": "x"}
            answer = await post(served, input=[item] * 6)
            assert "at most 5 items, but got 6" in assert_error(answer, 400, "array_above_max_length")
            assert answer.json["error"]["param"] == "input"
            tools = [{**FUNCTION, "name": f"f{number}"} for number in range(6)]
            answer = await post(served, tools=tools)
            assert "at most 5 tools, but got 6" in assert_error(answer, 400, "array_above_max_length")
            assert answer.json["error"]["param"] == "tools"
            answer = await post(served, input=[item] * 5, tools=tools[:5], stream=False)
            assert answer.status == 200
            answer = await post(served, previous_response_id=answer.json["id"])
            assert "the history included" in assert_error(answer, 400, "array_above_max_length")

    run(test())


def test_urls_are_refused_where_the_settings_say_so_and_never_fetched_here() -> None:
    async def test() -> None:
        visited: list[str] = []

        async def visit(request: web.Request) -> web.Response:
            visited.append(request.path)
            return web.Response()

        pictures = web.Application()
        pictures.router.add_route("*", "/{path:.*}", visit)
        async with serving(pictures) as site:
            url = site.removesuffix("/v1") + "/picture.png"
            for part in (
                {"type": "input_image", "image_url": url},
                {"type": "input_file", "file_url": url},
                {"type": "input_video", "video_url": url},
            ):
                question = [{"role": "user", "content": [{"type": "input_text", "text": "what is it?"}, part]}]
                field = next(name for name in part if name != "type")
                async with simulated(store="memory") as served:
                    assert (await post(served, input=question, stream=False)).status < 500
                for url_inputs in ("public", "refuse"):
                    async with simulated(url_inputs=url_inputs) as served:
                        answer = await post(served, input=question)
                        message = assert_error(answer, 400, "unsupported_value")
                        assert answer.json["error"]["param"] == f"input[0].content[1].{field}"
                        assert url not in message
        assert visited == []

    run(test())


# ---- slow clients -----------------------------------------------------------------------------------------------------

HEAD = b"POST %b HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n"


async def trickle(served: Served, path: bytes) -> None:
    """Send a body byte by byte until there is an answer, which is that it takes too long."""
    client = await RawClient.connect(served)
    await client.send(HEAD % path + b"{")
    answering = asyncio.create_task(client.read_all())
    with suppress(ConnectionError):  # which is closed while a byte is on its way
        while not answering.done():
            await asyncio.sleep(0.02)
            if not answering.done() and not client.received:
                await client.send(b" ")
        await answering
    answer = client.received
    client.close()
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"connection: close" in answer.lower()
    error = json.loads(body_of(answer))["error"]
    assert error["code"] == "request_timeout"
    assert "within 0.3 seconds" in error["message"]


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("path", [b"responses", b"responses/compact", b"responses/input_tokens", b"conversations"])
def test_a_body_that_trickles_is_given_up(loop: str, path: bytes) -> None:
    async def test() -> None:
        async with simulated(body_timeout=0.3, store="memory") as served:
            await trickle(served, b"/v1/" + path)
            assert (await post(served)).status == 200

    run(test(), loop)


def test_so_is_one_that_is_on_its_way_to_the_backend() -> None:
    async def test() -> None:
        async with backend(answering(b"")) as behind, gateway(behind.url, body_timeout=0.3) as served:
            await trickle(served, b"/v1/embeddings")

    run(test())


def test_whoever_has_sent_the_body_may_wait_for_the_answer() -> None:
    async def test() -> None:
        async with simulated(body_timeout=0.2) as served:
            answer = await post(served, input="tokens: 60 tps: 100")
            assert answer.final["status"] == "completed"
            async with aiohttp.ClientSession() as session, session.ws_connect(served.url + "/v1/responses") as socket:
                await socket.send_json({"type": "response.create", "model": "simulator", "input": "tokens: 60 tps: 100"})
                while (await socket.receive_json())["type"] != "response.completed":
                    pass

    run(test())


@pytest.mark.parametrize("beginning", [b"", b"POST /v1/responses HT", b"POST /v1/responses HTTP/1.1\r\nHost: x\r\nX-A: "])
def test_a_head_that_does_not_end_is_given_up_with_the_keep_alive_time(beginning: bytes) -> None:
    """aiohttp's own clock; what the documentation says about it."""

    async def test() -> None:
        async with serving(create_app()) as url, open_parts(Settings(backend=[url], store="none")) as parts:
            runner = Runner(create_gateway(parts), keepalive_timeout=0.3)
            await runner.setup()
            try:
                site = web.TCPSite(runner, "127.0.0.1", 0)
                await site.start()

                class Listening:
                    port: int = runner.addresses[0][1]

                client = await RawClient.connect(Listening())
                await client.send(beginning)
                closing = asyncio.create_task(client.read_all())
                with suppress(ConnectionError):  # what is sent while the gateway closes the connection resets it
                    while not closing.done():
                        await asyncio.sleep(0.02)
                        if b"X-A" in beginning and not closing.done():
                            await client.send(b"x")
                    assert await closing == b""
                await asyncio.wait({closing})
                closing.exception()
                assert client.received == b""
                client.close()
                assert not parts.in_flight.activities
            finally:
                await runner.cleanup()

    run(test())


def test_a_limit_of_zero_is_none() -> None:
    async def test() -> None:
        async with serving(create_app()) as url, gateway(url, body_timeout=0) as served:
            assert (await post(served)).status == 200

    run(test())


def test_what_codex_tells_of_a_large_workspace_fits_into_a_header() -> None:
    async def test() -> None:
        async with simulated() as served:
            assert (await post(served, headers={"x-codex-turn-metadata": "w" * 30_000})).status == 200

    run(test())
