"""A backend whose answer goes wrong once it has begun, at each place of a stream: one terminal event, and a true one."""

from __future__ import annotations

import gzip
import json
import zlib
from typing import Any

import pytest

from tests.log_lines import log_lines
from tests.server.running_gateway import LOOPS, Answer, assert_error, gateway, post, run, simulated
from tests.server.scripted_backend import (
    CLOSED_HEAD,
    HEAD,
    PHASES,
    SECRETS,
    TRACEBACK,
    UNFINISHED,
    Connection,
    Play,
    answering,
    backend,
    chat_stream,
    chunk,
    chunked,
    streaming,
    text_stream,
)

WEATHER = {"type": "function", "name": "get_weather", "parameters": {"type": "object"}}
# The output items that have begun, by phase.
BEGUN = {
    "before the first token": [],
    "role": [],
    "reasoning": ["reasoning"],
    "text": ["reasoning", "message"],
    "arguments": ["reasoning", "message", "function_call"],
}
ALL = BEGUN["arguments"]


def kinds(answer: Answer) -> list[str]:
    return [item["type"] for item in answer.final["output"]]


async def answers_of(play: Play, **settings: Any) -> tuple[Answer, Answer]:
    """Streamed, and whole."""
    async with backend(play) as behind, gateway(behind.url, **settings) as served:
        return await post(served, tools=[WEATHER]), await post(served, tools=[WEATHER], stream=False)


def failed(answers: tuple[Answer, Answer], phase: str, status: int = 502) -> str:
    """Expect both answers to have failed, the streamed one after as many items as given. Returns the message."""
    streamed, whole = answers
    assert streamed.final["status"] == "failed"
    assert streamed.final["error"]["code"] == "server_error"
    assert kinds(streamed) == BEGUN[phase]
    assert {item["status"] for item in streamed.final["output"][-1:]} <= {"incomplete", "completed"}
    assert_error(whole, status, "server_error")
    for answer in answers:
        assert [secret for secret in SECRETS if secret in answer.body] == []
    assert whole.json["error"]["message"] == streamed.final["error"]["message"]
    return str(streamed.final["error"]["message"])


def completed(answers: tuple[Answer, Answer]) -> None:
    """Expect both answers to be complete, and the same."""
    streamed, whole = answers
    assert streamed.final["status"] == "completed"
    assert kinds(streamed) == ALL
    assert whole.status == 200
    assert texts(whole.json) == texts(streamed.final)


def texts(response: dict[str, Any]) -> list[Any]:
    """Return the texts of the items of a response."""
    items = response["output"]
    return [item["arguments"] if "arguments" in item else [part["text"] for part in item["content"]] for item in items]


def ending(phase: str, end: str) -> Play:
    """Return a backend that streams up to a phase, and then ends by a method of `Connection`."""

    async def play(connection: Connection) -> None:
        connection.write(HEAD)
        connection.send(*chat_stream()[: PHASES[phase]])
        getattr(connection, end)()

    return play


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("end", ["close", "end"])
@pytest.mark.parametrize("phase", UNFINISHED)
def test_a_stream_that_ends_early_failed(phase: str, end: str, loop: str) -> None:
    async def test() -> None:
        failed(await answers_of(ending(phase, end)), phase)

    run(test(), loop)


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("phase", UNFINISHED)
def test_a_connection_reset_in_the_middle(phase: str, loop: str) -> None:
    """Allow for a reset that overtakes what was sent before it, so that less has begun than was sent."""

    async def test() -> None:
        streamed, whole = await answers_of(ending(phase, "reset"))
        if streamed.status == 200:
            assert streamed.final["status"] == "failed"
            assert kinds(streamed) == BEGUN[phase][: len(kinds(streamed))]
        else:
            assert_error(streamed, 502, "server_error")
        assert_error(whole, 502, "server_error")

    run(test(), loop)


@pytest.mark.parametrize("end", ["close", "reset", "end"])
@pytest.mark.parametrize("phase", ["done"])
def test_what_happens_after_the_done_marker_does_not_matter(phase: str, end: str) -> None:
    async def test() -> None:
        completed(await answers_of(ending(phase, end)))

    run(test())


@pytest.mark.parametrize("phase", ["finished", "usage"])
def test_a_body_that_ends_without_the_done_marker_is_complete(phase: str) -> None:
    async def test() -> None:
        completed(await answers_of(ending(phase, "end")))

    run(test())


@pytest.mark.parametrize("end", ["close", "reset"])
@pytest.mark.parametrize("phase", ["finished", "usage"])
def test_a_connection_lost_after_the_finish_reason_has_one_end(phase: str, end: str) -> None:
    async def test() -> None:
        streamed, whole = await answers_of(ending(phase, end))
        assert streamed.final["status"] in {"completed", "failed"}
        assert whole.status in {200, 502}

    run(test())


def test_a_connection_that_stays_open_after_the_done_marker_is_given_up() -> None:
    async def play(connection: Connection) -> None:
        connection.write(HEAD)
        connection.send(*chat_stream())
        await connection.lost

    async def test() -> None:
        async with backend(play) as behind, gateway(behind.url, keepalive_comment=0.05) as served:
            answer = await post(served, tools=[WEATHER])
            assert answer.final["status"] == "completed"
            assert behind.connections[0].transport.is_closing() or await behind.connections[0].lost

    run(test())


# ---- errors and rubbish in the stream ---------------------------------------------------------------------------------


@pytest.mark.parametrize("phase", UNFINISHED)
@pytest.mark.parametrize(
    "error",
    [
        {"error": {"message": "EngineCore encountered an issue.", "type": "InternalServerError", "param": None, "code": 500}},
        {"error": "EngineCore encountered an issue."},
        {"object": "error", "message": "EngineCore encountered an issue.", "code": 500},
        {"error": {"message": "EngineCore encountered an issue.", "traceback": TRACEBACK}},
    ],
    ids=["vllm", "text", "sglang", "traceback"],
)
def test_an_error_chunk(phase: str, error: dict[str, Any]) -> None:
    pieces = [*chat_stream()[: PHASES[phase]], b"data: " + json.dumps(error).encode() + b"\n\n", b"data: [DONE]\n\n"]

    async def test() -> None:
        assert failed(await answers_of(streaming(*pieces)), phase) == "EngineCore encountered an issue."

    run(test())


@pytest.mark.parametrize("phase", ["finished", "usage"])
def test_an_error_chunk_behind_the_finish_reason_is_on_record(phase: str) -> None:
    error = {"error": {"message": "EngineCore encountered an issue.", "code": 500}}
    pieces = [*chat_stream()[: PHASES[phase]], b"data: " + json.dumps(error).encode() + b"\n\n", b"data: [DONE]\n\n"]

    async def test() -> None:
        async with (
            backend(streaming(*pieces)) as behind,
            gateway(behind.url, access_log=True, log_backend_errors=True) as served,
        ):
            answers = await post(served, tools=[WEATHER]), await post(served, tools=[WEATHER], stream=False)
            completed(answers)
            assert served.metric("backend_errors_total", kind="server_error") == 2

    with log_lines() as written:
        run(test())
        found = [(line["outcome"], line["level"], line["error"]) for line in written("response")]
    assert found == [("completed", "warning", "EngineCore encountered an issue.")] * 2


@pytest.mark.parametrize("phase", UNFINISHED)
@pytest.mark.parametrize(
    "rubbish",
    [b'data: {"id":"chatcmpl-1","choices":[{"ind\n\n', b"data: \xff\xfe\n\n", b"data: [7]\n\n", b'data: {"choices": 7}\n\n'],
    ids=["cut", "no text", "a list", "wrong types"],
)
def test_a_malformed_chunk(phase: str, rubbish: bytes) -> None:
    sent = chat_stream()
    pieces = [*sent[: PHASES[phase]], rubbish, *sent[PHASES[phase] :]]

    async def test() -> None:
        message = failed(await answers_of(streaming(*pieces)), phase)
        assert "not a chat completion chunk" in message

    run(test())


def test_malformed_chunks_are_counted_and_the_backend_is_let_go() -> None:
    async def play(connection: Connection) -> None:
        connection.write(HEAD)
        connection.send(chunk({"content": "x"}), b"data: {\n\n")
        await connection.lost

    async def test() -> None:
        async with backend(play) as behind, gateway(behind.url) as served:
            assert (await post(served)).final["status"] == "failed"
            assert served.metric("malformed_chunks_total") == 1
            await behind.connections[0].lost

    run(test())


@pytest.mark.slow
def test_an_event_without_end_does_not_fill_the_memory() -> None:
    async def play(connection: Connection) -> None:
        connection.write(HEAD)
        connection.send(b"data: ")
        for _ in range(20):
            connection.send(b"x" * 1024 * 1024)
        await connection.lost

    async def test() -> None:
        async with backend(play) as behind, gateway(behind.url) as served:
            assert (await post(served)).final["status"] == "failed"

    run(test())


@pytest.mark.parametrize("fault", ["drop", "eof", "error", "malformed", "no-done", "length=3", "filter"])
@pytest.mark.parametrize("place", ["reasoning", "text", "call"])
def test_the_faults_of_the_simulator(fault: str, place: str) -> None:
    takes_place = fault in {"drop", "eof", "error", "malformed", "filter"}
    spec = f"scenario: demo fault: {fault}={place}" if takes_place else f"scenario: demo fault: {fault}"
    expected = {"no-done": "completed", "length=3": "incomplete", "filter": "incomplete"}.get(fault, "failed")

    async def test() -> None:
        async with simulated() as served:
            streamed = await post(served, input=spec, tools=[WEATHER])
            assert streamed.final["status"] == expected
            whole = await post(served, input=spec, tools=[WEATHER], stream=False)
            if expected == "failed":
                assert_error(whole, 502, "server_error")
            else:
                assert whole.json["status"] == expected
                assert texts(whole.json) == texts(streamed.final)

    run(test())


# ---- bodies of other kinds --------------------------------------------------------------------------------------------

STREAM = b"".join(chat_stream())
COMPLETION = {
    "id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "m",
    "choices": [{
        "index": 0, "finish_reason": "tool_calls",
        "message": {
            "role": "assistant", "reasoning": "Let me think. ", "content": "Grüße from here.",
            "tool_calls": [
                {"id": "call-1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Paris"}'}},
            ],
        },
    }],
    "usage": {"prompt_tokens": 9, "completion_tokens": 7, "total_tokens": 16},
}  # fmt: skip


def typed(kind: str, body: bytes, *headers: str) -> Play:
    lines = ["HTTP/1.1 200 OK", f"Content-Type: {kind}", f"Content-Length: {len(body)}", *headers]
    return answering("\r\n".join(lines).encode() + b"\r\n\r\n", body)


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize(
    "play",
    [
        typed("application/json", json.dumps(COMPLETION, indent=2).encode()),
        typed("text/event-stream", STREAM),
        typed("Text/Event-Stream; charset=utf-8", STREAM),
        typed("text/event-stream", gzip.compress(STREAM), "Content-Encoding: gzip"),
        typed("text/event-stream", zlib.compress(STREAM), "Content-Encoding: deflate"),
        answering(HEAD[:-2] + b"Content-Encoding: gzip\r\n\r\n", chunked(gzip.compress(STREAM)) + b"0\r\n\r\n"),
        answering(CLOSED_HEAD, STREAM),
        answering(CLOSED_HEAD.replace(b"HTTP/1.0", b"HTTP/1.1"), STREAM),
        answering(CLOSED_HEAD, STREAM.replace(b"\n", b"\r\n")),
        answering(CLOSED_HEAD, b": hello\n\nevent: x\nid: 7\nretry: 5\n" + STREAM.removesuffix(b"\n\n")),
        typed("application/json", gzip.compress(json.dumps(COMPLETION).encode()), "Content-Encoding: gzip"),
    ],
    ids=[
        "json", "content-length", "capitals", "gzip", "deflate", "gzip in chunks", "http/1.0", "until close", "crlf",
        "comments", "gzipped json",
    ],
)  # fmt: skip
def test_whole_answers_in_other_clothes(play: Play, loop: str) -> None:
    async def test() -> None:
        completed(await answers_of(play))

    run(test(), loop)


@pytest.mark.parametrize(
    "play",
    [
        typed("application/json", b'{"choices": [{'),
        typed("application/json", b""),
        typed("text/html", b"<html>welcome to nginx</html>"),
        typed("text/event-stream", b""),
        typed("text/event-stream", b"\x1f\x8b garbage", "Content-Encoding: gzip"),
        answering(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n", b"{"),
        answering(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 100000\r\n\r\n", STREAM[:10]),
        answering(HEAD[:-2] + b"Content-Encoding: gzip\r\n\r\n", chunked(gzip.compress(STREAM)[:40])),
    ],
    ids=["cut json", "nothing", "html", "empty stream", "no gzip", "short json", "short stream", "cut gzip"],
)
def test_answers_that_are_none(play: Play) -> None:
    async def test() -> None:
        message = failed(await answers_of(play), "role")
        assert "html" not in message

    run(test())


def test_nothing_of_a_text_is_lost_whatever_its_size() -> None:
    text = "".join(chr(0x20 + number % 0x2000) for number in range(200_000)).replace("\ud800", "")

    async def test() -> None:
        pieces = text_stream(*(text[at : at + 7777] for at in range(0, len(text), 7777)))
        async with backend(streaming(*pieces)) as behind, gateway(behind.url) as served:
            assert texts((await post(served)).final) == [[text]]

    run(test())


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("end", ["close", "reset"])
def test_a_kept_connection_that_the_backend_has_closed_costs_nothing(end: str, loop: str) -> None:
    """Servers close idle connections; a request that meets such an end was not seen by anybody."""
    served_by: set[Connection] = set()

    async def play(connection: Connection) -> None:
        if connection in served_by:
            getattr(connection, end)()
            return
        served_by.add(connection)
        connection.write(HEAD)
        connection.send(*text_stream("Hello."))
        connection.end()

    async def test() -> None:
        async with backend(play) as behind, gateway(behind.url) as served:
            for size in (1, 1, 512 * 1024):
                assert (await post(served, input="x" * size)).final["status"] == "completed"
            assert len(behind.connections) == 3

    run(test(), loop)


def test_a_request_that_ends_every_connection_is_sent_once_more_at_most() -> None:
    async def play(connection: Connection) -> None:
        if b"poison" in behind_requests[-1]:
            connection.close()
            return
        connection.write(HEAD)
        connection.send(*text_stream("Hello."))
        connection.end()

    behind_requests: list[bytes] = []

    async def test() -> None:
        nonlocal behind_requests
        async with backend(play) as behind, gateway(behind.url) as served:
            behind_requests = behind.requests
            assert (await post(served, input="hi")).status == 200
            assert (await post(served, input="poison")).status == 502
            assert sum(b"poison" in request for request in behind.requests) == 2

    run(test())
