"""A backend that refuses, or that cannot be reached: what the client is told, in an HTTP error or in the stream."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from email.utils import formatdate
from typing import Any

import pytest

from responses_gateway.simulator import SimulatorOptions
from tests.server.running_gateway import LOOPS, Answer, ask, assert_error, gateway, post, run, simulated, until
from tests.server.scripted_backend import (
    CLOSED_HEAD,
    HEAD,
    SECRET_HEADERS,
    SECRETS,
    TRACEBACK,
    Connection,
    Play,
    answering,
    backend,
    chunked,
    refusing,
    text_stream,
)

OVERFLOW = "context_length_exceeded"


def say_nothing_secret(answer: Answer) -> None:
    seen = answer.body + repr(answer.headers).encode()
    assert [secret for secret in SECRETS if secret in seen] == []
    assert not {"openai-model", "set-cookie", "x-secret", "x-models-etag"} & set(answer.headers)


async def refusal_of(play: Play, **settings: Any) -> list[Answer]:
    """Return the answers of a gateway in front of such a backend: to a streamed request, and to one that is not."""
    async with backend(play) as behind, gateway(behind.url, **settings) as served:
        answers = [await post(served), await post(served, stream=False)]
    for answer in answers:
        say_nothing_secret(answer)
    return answers


# ---- no answer at all -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loop", LOOPS)
def test_a_refused_connection_is_a_502(loop: str) -> None:
    async def test() -> None:
        with socket.socket() as taken:  # bound, but nobody listens
            taken.bind(("127.0.0.1", 0))
            async with gateway(f"http://127.0.0.1:{taken.getsockname()[1]}") as served:
                for stream in (True, False):
                    assert "cannot be reached" in assert_error(await post(served, stream=stream), 502, "server_error")

    run(test(), loop)


def test_a_name_that_does_not_resolve_is_a_502() -> None:
    async def test() -> None:
        async with gateway("http://backend.invalid") as served:
            assert "name cannot be resolved" in assert_error(await post(served), 502, "server_error")

    run(test())


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("way", ["close", "reset"])
def test_a_connection_that_ends_before_the_status_is_a_502(loop: str, way: str) -> None:
    async def play(connection: Connection) -> None:
        getattr(connection, way)()

    async def test() -> None:
        for answer in await refusal_of(play):
            assert "without an answer" in assert_error(answer, 502, "server_error")

    run(test(), loop)


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Enco",
        b"hello, this is no HTTP\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"x-filler: " + b"a" * 100_000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"".join(b"x-filler-%d: a\r\n" % number for number in range(10_000)) + b"\r\n",
    ],
    ids=["cut", "no HTTP", "a huge header", "too many headers"],
)
def test_a_head_that_is_none_is_a_502(head: bytes) -> None:
    async def test() -> None:
        for answer in await refusal_of(answering(head)):
            assert_error(answer, 502, "server_error")

    run(test())


@pytest.mark.parametrize("encoding", [b"br", b"zstd"])
def test_an_answer_that_cannot_be_unpacked_is_not_said_to_be_none(encoding: bytes) -> None:
    head = HEAD[:-2] + b"Content-Encoding: %b\r\n\r\n" % encoding

    async def test() -> None:
        for answer in await refusal_of(answering(head, chunked(b"packed"))):
            assert_error(answer, 502, "server_error")
            assert "cannot be read" in answer.json["error"]["message"]
            assert "gzip" in answer.json["error"]["message"]

    run(test())


def test_headers_without_end_do_not_fill_the_memory() -> None:
    async def play(connection: Connection) -> None:
        connection.write(b"HTTP/1.1 200 OK\r\n")
        while not connection.lost.done():
            connection.write(b"x-filler: " + b"a" * 4000 + b"\r\n")
            await asyncio.sleep(0)

    async def test() -> None:
        async with backend(play) as behind, gateway(behind.url) as served:
            assert_error(await post(served), 502, "server_error")
            await until(behind.connections[0].lost.done)

    run(test())


# ---- refused with a status --------------------------------------------------------------------------------------------

STATUSES = [
    (400, 400, "invalid_prompt"),
    (401, 401, "invalid_api_key"),
    (403, 403, "permission_denied"),
    (422, 400, "invalid_prompt"),
    (429, 429, "rate_limit_exceeded"),
    (500, 502, "server_error"),
    (502, 502, "server_error"),
    (503, 503, "server_error"),
    (504, 504, "server_error"),
]


@pytest.mark.parametrize("field", ["max_tokens", "max_completion_tokens"])
def test_a_refusal_names_the_parameter_of_the_client(field: str) -> None:
    async def test() -> None:
        body = {"error": {"message": f"{field}=99999 cannot be greater than max_model_len=32768.", "param": field, "code": 400}}
        for answer in await refusal_of(refusing(400, json.dumps(body).encode()), max_tokens_field=field):
            message = assert_error(answer, 400, "invalid_prompt")
            assert message == "max_output_tokens=99999 cannot be greater than max_model_len=32768."
            assert json.loads(answer.body)["error"]["param"] == "max_output_tokens"

    run(test())


def test_an_error_in_the_stream_names_the_parameter_of_the_client() -> None:
    async def test() -> None:
        chunk = b'data: {"error": {"message": "max_tokens is too large", "code": 400}}\n\n'
        async with backend(answering(CLOSED_HEAD, chunk)) as behind, gateway(behind.url) as served:
            answer = await post(served)
            assert answer.final["error"]["message"] == "max_output_tokens is too large"

    run(test())


@pytest.mark.parametrize("status", [401, 403])
@pytest.mark.parametrize("keys", [{"backend_api_key": "ours"}, {"forward_authorization": False}], ids=["wrong", "none"])
def test_a_refusal_of_the_gateway_s_own_key_is_not_the_client_s_fault(
    status: int, keys: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        refusal = refusing(status, b'{"error": {"message": "wrong key: ours"}}')
        async with backend(refusal) as behind, gateway(behind.url, **keys) as served:
            answers = [await post(served), await post(served, stream=False)]
            for method, path in (("POST", "embeddings"), ("GET", "models"), ("POST", "responses/input_tokens")):
                body = json.dumps({"model": "m", "input": "x"}).encode() if method == "POST" else None
                answers.append(await ask(served, method, f"/v1/{path}", data=body, headers={"Authorization": "Bearer mine"}))
        for answer in answers:
            say_nothing_secret(answer)
            assert b"ours" not in answer.body
            assert f"(HTTP {status})" in assert_error(answer, 502, "server_error")
        warned = [record for record in caplog.records if record.getMessage() == "backend refuses the gateway's key"]
        assert [record.levelname for record in warned] == ["WARNING"] * len(answers)

    run(test())


@pytest.mark.parametrize(
    ("message", "status", "code"),
    [
        ("m requires moderation on OpenRouter. Your input was flagged.", 400, "invalid_prompt"),
        ("Your team has reached its monthly spending limit.", 429, "insufficient_quota"),
        ("Project `p` does not have access to model `m`", 404, "model_not_found"),
        ("Country, region, or territory not supported", 403, "permission_denied"),
    ],
)
def test_a_403_that_is_not_about_the_gateway_s_key_tells_what_it_is_about(
    message: str, status: int, code: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        body = json.dumps({"error": {"message": message, "code": 403}}).encode()
        for answer in await refusal_of(refusing(403, body), backend_api_key="ours"):
            assert assert_error(answer, status, code) == message
        assert "backend refuses the gateway's key" not in [record.getMessage() for record in caplog.records]

    run(test())


@pytest.mark.parametrize("make", ["vllm", "sglang", "llamacpp", "ollama", "openai"])
def test_statuses_in_the_wording_of_each_server(make: str) -> None:
    async def test() -> None:
        async with simulated() as served:
            for sent, status, code in STATUSES:
                for stream in (True, False):
                    answer = await post(served, model=f"sim-{make}+status={sent}", stream=stream)
                    assert_error(answer, status, code)

    run(test())


def test_an_unknown_model_is_a_404_and_a_wrong_url_is_not() -> None:
    async def test() -> None:
        async with simulated(SimulatorOptions(strict_models=True)) as served:
            message = assert_error(await post(served, model="nope"), 404, "model_not_found")
            assert "nope" in message
        for answer in await refusal_of(refusing(404, b'{"detail":"Not Found"}')):
            assert "--backend" in assert_error(answer, 502, "server_error")
            assert answer.headers["x-should-retry"] == "false"

    run(test())


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (404, b"404 page not found"),  # Go
        (404, b'{"error":{"code":404,"message":"File Not Found","type":"not_found_error"}}'),  # llama.cpp
        (404, b'{"error":"Unexpected endpoint or method. (POST /api/v1/chat/completions)"}'),  # LM Studio
        (404, b'{"error":{"code":"404","message":"Resource not found"}}'),  # Azure
        (404, b'{"message":"no Route matched with those values"}'),  # Kong
        (404, b'{"error":{"message":"Unknown request URL: POST /x/chat/completions","code":"unknown_url"}}'),  # Groq
        (404, b"<html><body>The requested URL was not found on this server.</body></html>"),
        (405, b'{"detail":"Method Not Allowed"}'),  # a page for people, as Open WebUI has one
        (405, b""),
    ],
)
def test_a_wrong_url_is_a_failure_for_the_operator(status: int, body: bytes) -> None:
    """The alert for errors of backends leaves out what clients do wrong."""
    chat = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}

    async def test() -> None:
        async with backend(refusing(status, body)) as behind, gateway(behind.url) as served:
            answers = [
                await post(served, model="m", input="hi"),
                await ask(served, "POST", "/v1/messages", json={**chat, "max_tokens": 9}),
                await ask(served, "POST", "/v1/chat/completions", json=chat),
            ]
            for answer in answers:
                assert answer.status == 502
                assert answer.headers["x-should-retry"] == "false"
                assert "The operator has to check the --backend URL" in answer.json["error"]["message"]
            served.parts.metrics.flush()
            families = list(served.parts.metrics.registry.collect())
            ended = [sample for family in families for sample in family.samples if sample.name.endswith("_requests_total")]
            outcomes = {sample.labels["outcome"] for sample in ended if sample.value and "outcome" in sample.labels}
            assert outcomes == {"failed"}
            assert served.metric("backend_errors_total", kind="server_error") == len(answers)

    run(test())


@pytest.mark.parametrize(("status", "code"), [(402, None), (429, "insufficient_quota"), (400, "insufficient_balance")])
def test_used_up_credit_is_not_asked_for_again_unless_the_backend_tells_when(status: int, code: str | None) -> None:
    body = json.dumps({"error": {"message": "no credit", "code": code}}).encode()
    message = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}

    async def test() -> None:
        for waits in (b"", b"retry-after: 7\r\n"):
            async with backend(refusing(status, body, headers=waits)) as behind, gateway(behind.url, retries=0) as served:
                for answer in (await post(served, model="m"), await ask(served, "POST", "/v1/messages", json=message)):
                    assert (answer.status, answer.json["error"]["message"]) == (429, "no credit")
                    assert ("x-should-retry" in answer.headers, "retry-after" in answer.headers) == (not waits, bool(waits))

    run(test())


def test_what_a_relayed_request_does_wrong_is_answered_by_its_backend() -> None:
    chat = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
    long = b'{"error":{"message":"' + b"x" * 100_000 + b'"}}'

    async def test() -> None:
        for body in (b'{"error":{"message":"no such model","code":"model_not_found"}}', long):
            async with backend(refusing(404, body)) as behind, gateway(behind.url) as served:
                answer = await ask(served, "POST", "/v1/chat/completions", json=chat)
                assert (answer.status, answer.body) == (404, body)
        body = b'{"detail":"Not Found"}'
        async with backend(refusing(404, body)) as behind, gateway(behind.url) as served:
            answer = await ask(served, "POST", "/v1/embeddings", json={"model": "m", "input": "hi"})
            assert (answer.status, answer.body) == (404, body), "not every backend has these"

    run(test())


def test_a_refusal_of_a_relayed_request_that_breaks_off_is_not_begun() -> None:
    async def play(connection: Connection) -> None:
        connection.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 100\r\n\r\n{")
        connection.reset()

    async def test() -> None:
        async with backend(play) as behind, gateway(behind.url, retries=0) as served:
            answer = await ask(served, "POST", "/v1/chat/completions", json={"model": "m", "messages": []})
            assert "broke off" in assert_error(answer, 502, "server_error")

    run(test())


@pytest.mark.parametrize("make", ["vllm", "sglang", "llamacpp", "ollama", "openai"])
def test_every_wording_of_a_context_overflow(make: str) -> None:
    """Answer 400 with this code and OpenAI's words, which make clients compact their history instead of trying again."""

    async def test() -> None:
        async with simulated() as served:
            for stream in (True, False):
                answer = await post(served, input=f"hi fault: overflow={make}", stream=stream)
                assert assert_error(answer, 400, OVERFLOW).startswith("Your input exceeds the context window of this model. ")
                assert answer.json["error"]["param"] == "input"

    run(test())


def in_a_minute() -> bytes:
    """Return the date in a minute, as servers write it."""
    return formatdate(time.time() + 60, usegmt=True).encode()


def test_retry_after_is_passed_on() -> None:
    async def test() -> None:
        for status, body in [(429, b'{"error": "slow down"}'), (503, b"")]:
            for answer in await refusal_of(refusing(status, body, headers=b"Retry-After: 17\r\n")):
                assert_error(answer, status)
                assert answer.headers["retry-after"] == "17"
        for wait in (b"soon", b"\xc2\xb2", b"9" * 400, b"-3", b"nan"):
            for answer in await refusal_of(refusing(429, b"", headers=b"Retry-After: %b\r\n" % wait)):
                assert_error(answer, 429, "rate_limit_exceeded")
                assert "retry-after" not in answer.headers
        for date, least, most in ((in_a_minute(), 1, 60), (b"Wed, 21 Oct 2015 07:28:00 GMT", 0, 0), (b"1.5", 2, 2)):
            for answer in await refusal_of(refusing(429, b"", headers=b"Retry-After: %b\r\n" % date)):
                assert least <= int(answer.headers["retry-after"]) <= most

    run(test())


@pytest.mark.parametrize(("code", "wait"), [("slow_down", "5"), ("insufficient_quota", None)])
def test_codex_is_told_to_wait_for_the_end_of_a_limit(code: str, wait: str | None) -> None:
    """It ends its turn otherwise. Other clients wait by themselves, longer each time, which a time that we name would end."""

    async def test() -> None:
        refusing_all = refusing(429, json.dumps({"error": {"message": "no", "code": code}}).encode())
        async with backend(refusing_all) as refuser, gateway(refuser.url, retries=0) as served:
            for stream in (True, False):
                for headers, told in (({"originator": "codex_exec"}, wait), ({}, None)):
                    answer = await post(served, stream=stream, headers=headers)
                    assert (answer.status, answer.headers.get("retry-after")) == (429, told)

    run(test())


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (b"", b"application/json"),
        (b"<html><body><h1>502 Bad Gateway</h1></body></html>", b"text/html"),
        (TRACEBACK.encode(), b"text/plain"),
        (json.dumps({"error": {"message": "broken", "traceback": TRACEBACK}}).encode(), b"application/json"),
        (b'{"error": {"message": 17, "code": 17, "type": null}}', b"application/json"),
        (b'{"error": {"message": 17, "code": {}, "type": []}}', b"application/json"),
        (b'{"error": null}', b"application/json"),
        (b"[" * 100_000, b"application/json"),
        (b"\xff\xfe\x00", b"application/json"),
    ],
    ids=["empty", "html", "traceback", "traceback in json", "numbers", "wrong types", "null", "nested", "no text"],
)
def test_error_bodies_of_any_kind(body: bytes, content_type: bytes) -> None:
    async def test() -> None:
        for sent, status in [(500, 502), (503, 503), (400, 400), (429, 429)]:
            for answer in await refusal_of(refusing(sent, body, content_type)):
                assert_error(answer, status)
                assert b"<html>" not in answer.body

    run(test())


@pytest.mark.parametrize(
    ("body", "content_type", "reason"),
    [
        (b"unknown variant `input_audio`", b"text/plain", "unknown variant `input_audio`"),
        (b'"no tools here"', b"application/json", "no tools here"),
        (b'{"code": 30001, "msg": "no tools here"}', b"application/json", "no tools here"),
        (b'data: {"error": {"message": "no tools here"}}\n\n', b"text/event-stream", "no tools here"),
        (b"<html><title>400 No Tools Here</title></html>", b"text/html", "No Tools Here"),
        (TRACEBACK.encode(), b"text/plain", "KeyError"),
        (json.dumps({"detail": f"no tools here\n{TRACEBACK}"}).encode(), b"application/json", "no tools here"),
    ],
    ids=["text", "json text", "msg", "stream", "page", "traceback", "detail"],
)
def test_the_reason_reaches_the_client_wherever_it_stands(body: bytes, content_type: bytes, reason: str) -> None:
    async def test() -> None:
        for answer in await refusal_of(refusing(400, body, content_type)):
            assert reason in assert_error(answer, 400, "invalid_prompt")

    run(test())


def test_a_server_that_is_overloaded_is_a_503() -> None:
    async def test() -> None:
        for answer in await refusal_of(refusing(529, b'{"error": {"message": "busy"}}', headers=b"Retry-After: 4\r\n")):
            assert assert_error(answer, 503, "server_error") == "busy"
            assert answer.headers["retry-after"] == "4"

    run(test())


def test_an_answer_with_status_201_is_an_answer() -> None:
    whole = {"choices": [{"index": 0, "message": {"content": "fine"}, "finish_reason": "stop"}]}
    head = CLOSED_HEAD.replace(b"200 OK", b"201 Created")

    async def test() -> None:
        for play in (refusing(201, json.dumps(whole).encode()), answering(head, b"".join(text_stream("fine")))):
            for answer in await refusal_of(play):
                assert answer.status == 200
                assert b"fine" in answer.body
        for answer in await refusal_of(refusing(201, b'{"error": {"message": "not today"}}')):
            assert b"not today" in answer.body

    run(test())


def test_an_error_body_without_end_is_not_read_to_it() -> None:
    async def play(connection: Connection) -> None:
        connection.write(b"HTTP/1.1 500 No\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n")
        while not connection.lost.done():
            connection.send(b"x" * 10_000)
            await asyncio.sleep(0)

    async def test() -> None:
        for answer in await refusal_of(play):
            assert_error(answer, 502, "server_error")
            assert len(answer.body) < 1000

    run(test())


def test_an_error_whose_body_breaks_off_keeps_its_status() -> None:
    head = b"HTTP/1.1 429 No\r\nContent-Type: application/json\r\nContent-Length: 1000\r\nRetry-After: 3\r\n\r\n{"

    async def test() -> None:
        for answer in await refusal_of(answering(head)):
            assert_error(answer, 429, "rate_limit_exceeded")
            assert answer.headers["retry-after"] == "3"

    run(test())


def test_an_error_whose_body_never_comes_ends_at_the_idle_limit() -> None:
    async def play(connection: Connection) -> None:
        connection.write(b"HTTP/1.1 500 No\r\nContent-Type: text/plain\r\nContent-Length: 10\r\n\r\n")
        await connection.lost

    async def test() -> None:
        for answer in await refusal_of(play, idle_timeout=0.1):
            assert_error(answer, 504)

    run(test())


@pytest.mark.parametrize("status", [301, 307, 204, 101])
def test_other_statuses_are_a_502(status: int) -> None:
    async def test() -> None:
        for answer in await refusal_of(refusing(status, b"", headers=b"Location: http://127.0.0.1:1/v1\r\n")):
            assert_error(answer, 502)

    run(test())


# ---- too late for a status --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loop", LOOPS)
def test_slow_headers_show_life_and_then_the_answer(loop: str) -> None:
    async def test() -> None:
        async with simulated(header_grace=0.02, keepalive_comment=0.02, keepalive_event=0.04) as served:
            answer = await post(served, input="scenario: plain fault: slow-headers=0.2")
            assert answer.final["status"] == "completed"
            kinds = [event["type"] for event in answer.events]
            assert kinds[:4] == ["response.created", *["response.in_progress"] * 3]
            assert answer.events[3]["response"]["output"] == []
            assert b"\n:" in answer.body or answer.body.startswith(b":")

    run(test(), loop)


@pytest.mark.parametrize(
    ("play", "code"),
    [
        (refusing(429, b'{"error": "slow down"}'), "rate_limit_exceeded"),
        (refusing(400, b'{"error": {"message": "This model\'s maximum context length is 5"}}'), OVERFLOW),
        (refusing(400, b'{"error": {"message": "no"}}'), "invalid_prompt"),
        (refusing(400, b""), "invalid_prompt"),
        (refusing(401, b""), "server_error"),
        (refusing(404, b'{"error": {"message": "The model `x` does not exist."}}'), "invalid_prompt"),
        (refusing(404, b""), "server_error"),
        (refusing(413, b""), "invalid_prompt"),
        (refusing(500, TRACEBACK.encode(), b"text/plain"), "server_error"),
        (answering(b""), "server_error"),
    ],
    ids=["429", "overflow", "400", "no reason", "401", "no model", "404", "413", "500", "nothing"],
)
def test_a_refusal_after_the_grace_time_fails_the_stream(play: Play, code: str) -> None:
    async def late(connection: Connection) -> None:
        await asyncio.sleep(0.05)
        await play(connection)

    async def test() -> None:
        async with backend(late) as behind, gateway(behind.url, header_grace=0) as served:
            answer = await post(served)
            say_nothing_secret(answer)
            assert answer.status == 200
            assert (answer.final["status"], answer.final["error"]["code"]) == ("failed", code)
            assert [event["type"] for event in answer.events] == [
                "response.created", "response.in_progress", "response.failed",
            ]  # fmt: skip

    run(test())


def test_a_good_answer_carries_no_header_of_the_backend() -> None:
    async def play(connection: Connection) -> None:
        connection.write(HEAD[:-2] + SECRET_HEADERS + b"\r\n")
        connection.send(*text_stream("fine"))
        connection.end()

    async def test() -> None:
        for answer in await refusal_of(play):
            assert answer.status == 200

    run(test())
