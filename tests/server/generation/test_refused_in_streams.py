"""Refusals with status 200: the error is the first event of the stream, where it would have had a status."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress

import pytest

from tests.server.generation.test_refused_requests import HISTORY, INTERRUPTED, MODELS, disorderly, refusing, say, served_by
from tests.server.reports.chat_server import Json, serving
from tests.server.running_gateway import assert_error, gateway, post, run
from tests.server.scripted_backend import HEAD, Connection, backend, chunk, text_stream

UNKNOWN = {"message": "Unrecognized request argument supplied: chat_template_kwargs", "code": 400}
BUSY = {"message": "Rate limit reached, try again later.", "type": "rate_limit_error", "code": 429}
OVERFLOW = {
    "object": "error", "message": "The input (61003 tokens) is longer than the model's context length (32768 tokens).",
    "type": "BadRequestError", "param": None, "code": 400,
}  # fmt: skip
ROLE = {"delta": {"role": "assistant", "content": ""}}
TEXT = {"delta": {"content": "Hi"}}


def in_stream(error: object, *before: Json | str | float) -> Json:
    return {"events": [*before, f"data: {json.dumps({'error': error})}\n\n", "DONE"]}


def text_of(events: list[Json]) -> str:
    return "".join(event["delta"] for event in events if event["type"] == "response.output_text.delta")


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize(
    "answer",
    [
        in_stream(UNKNOWN),
        in_stream(UNKNOWN["message"]),
        in_stream(UNKNOWN, ROLE),
        in_stream(UNKNOWN, ": still here\n\n", ROLE, 0.05),
        {"events": [f"event: error\ndata: {json.dumps(UNKNOWN)}\n\n"]},
    ],
)
def test_a_field_that_is_refused_in_the_stream_is_given_up(answer: Json, streamed: bool) -> None:
    async def test() -> None:
        async with served_by([refusing("chat_template_kwargs", answer)]) as (served, (server,)):
            for _ in range(2):
                outcome = await say(served, "messages", streamed=streamed)
                assert outcome.known["status"] == "completed"
            assert "parameter:thinking" in outcome.known["losses"]
            # The second one is the same: from then on, the beginning of streams is waited for.
            assert ["chat_template_kwargs" in request for request in server.requests] == [True, True, False, False]

    run(test())


@pytest.mark.parametrize("streamed", [True, False])
def test_messages_that_are_refused_in_the_stream_are_sent_in_another_form(streamed: bool) -> None:
    words = {"message": disorderly()["answer"]["json"]["error"]["message"], "code": 400}

    async def test() -> None:
        async with served_by([{**disorderly(), "answer": in_stream(words)}]) as (served, (server,)):
            for _ in range(2):
                outcome = await say(served, "responses", streamed=streamed, input=INTERRUPTED)
                assert outcome.known["status"] == "completed"
            assert len(server.requests) == 4

    run(test())


def test_a_backend_that_is_busy_in_the_stream_is_left_for_another_one() -> None:
    async def test() -> None:
        busy: list[Json] = [{"if": {"has": "messages"}, "answer": in_stream(BUSY)}]
        async with served_by(busy, []) as (served, servers):
            for _ in range(4):
                assert (await say(served, "responses", streamed=True)).known["status"] == "completed"
            assert all(server.requests for server in servers)

    run(test())


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (OVERFLOW, 400, "context_length_exceeded"),
        (BUSY, 429, "rate_limit_exceeded"),
        ({"message": "temperature must be at most 1", "code": 400}, 400, "invalid_prompt"),
        ({"message": "temperature \ud800 must be at most 1", "code": 400}, 400, "invalid_prompt"),
        ({"message": "No such key.", "code": "invalid_api_key"}, 401, "invalid_api_key"),
    ],
)
def test_a_client_gets_the_status_of_a_server_that_is_known_to_refuse_in_streams(error: Json, status: int, code: str) -> None:
    async def test() -> None:
        async with served_by([{"if": {"has": "messages"}, "answer": in_stream(error)}]) as (served, (server,)):
            first = await post(served, stream=True)
            assert first.final["status"] == "failed"
            assert first.final["error"]["code"] == code if code.startswith(("context", "rate")) else True
            asked = len(server.requests)
            assert asked <= 2
            assert_error(await post(served, stream=True), status, code)
            assert len(server.requests) == asked + 1

    run(test())


@pytest.mark.parametrize("streamed", [True, False])
def test_what_was_said_before_an_error_is_kept_and_not_asked_for_again(streamed: bool) -> None:
    async def test() -> None:
        async with served_by([{"if": {"has": "messages"}, "answer": in_stream(UNKNOWN, TEXT)}]) as (served, (server,)):
            outcome = await say(served, "responses", streamed=streamed, input=HISTORY)
            assert outcome.known["status"] == "failed"
            assert len(server.requests) == 1

    run(test())


def test_the_end_of_a_stream_that_began_with_an_error_is_not_that_of_the_next_answer() -> None:
    answers: list[Connection] = []

    async def play(connection: Connection) -> None:
        answers.append(connection)
        connection.write(HEAD)
        if len(answers) == 1:
            connection.send(b'data: {"error":{"message":"no","code":422}}\n\n')
            return
        await asyncio.sleep(0.1)
        with suppress(ConnectionError):  # the gateway need not wait for it
            answers[0].send(b"data: [DONE]\n\n")
            answers[0].end()
        await asyncio.sleep(0.1)
        connection.send(*text_stream("Hello."))
        connection.end()

    async def test() -> None:
        async with backend(play) as behind, gateway(behind.url, adapt=False) as served:
            assert (await post(served, model="m")).final["status"] == "completed"
            assert len(answers) == 2

    run(test())


@pytest.mark.parametrize("ends", ["in pieces", "at once", "broken"])
def test_answers_of_a_server_that_refused_in_a_stream_come_whole(ends: str) -> None:
    pieces = [chunk({"role": "assistant", "content": ""}), *text_stream("Hel", "lo ", "there")]

    async def play(connection: Connection) -> None:
        connection.write(HEAD)
        if len(connection.requests) == 1:
            connection.send(b'data: {"error":{"message":"no","code":422}}\n\n')
            connection.end()
        elif ends == "at once":
            connection.send(*pieces)
            connection.end()
        else:
            for piece in pieces[: 3 if ends == "broken" else None]:
                connection.send(piece[:9])
                await asyncio.sleep(0.005)
                connection.send(piece[9:])
            if ends == "broken":
                connection.reset()
            else:
                connection.end()

    async def test() -> None:
        async with backend(play) as behind, gateway(behind.url, adapt=False) as served:
            for _ in range(2):
                answer = await post(served, stream=True)
                assert answer.final["status"] == ("failed" if ends == "broken" else "completed")
                assert text_of(answer.events) == ("Hello " if ends == "broken" else "Hello there")

    run(test())


def test_a_server_that_is_slow_after_a_refusal_in_a_stream_has_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("responses_gateway.backend.transport.client.SOON", 0.05)

    async def test() -> None:
        rules: list[Json] = [
            refusing("temperature", in_stream(UNKNOWN)),
            {"if": {"has": "messages"}, "answer": {"events": [0.2, TEXT, "DONE"]}},
        ]
        async with serving({"rules": rules}, MODELS, 1) as answers, gateway(f"{answers.url}/v1") as served:
            await post(served, stream=True, temperature=0.5)
            answer = await post(served, stream=True)
            assert text_of(answer.events) == "Hi"

    run(test())


# ---- with status 200, and no stream ------------------------------------------------------------------------------------


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize(
    ("body", "status", "code", "wait"),
    [
        ({"error": OVERFLOW}, 400, "context_length_exceeded", None),
        ({"error": BUSY}, 429, "rate_limit_exceeded", "9"),
        ({"object": "error", "message": "No such key.", "code": 401}, 401, "invalid_api_key", None),
        ({"base_resp": {"status_code": 1002, "status_msg": "try again in 7 seconds"}}, 429, "rate_limit_exceeded", "9"),
        ({"error": "The model is being loaded", "status": 503}, 503, "server_error", "9"),
        ({"error": {"message": "Slow down."}, "code": 429}, 429, "rate_limit_exceeded", "9"),
    ],
)
def test_an_error_in_the_place_of_an_answer_has_its_status_at_once(
    body: Json, status: int, code: str, wait: str | None, streamed: bool
) -> None:
    refusal = {"status": 200, "json": body, "headers": {"Retry-After": "9"} if wait else {}}

    async def test() -> None:
        async with served_by([{"if": {"has": "messages"}, "answer": refusal}]) as (served, (server,)):
            answer = await post(served, stream=streamed)
            assert_error(answer, status, code)
            assert answer.headers.get("retry-after") == wait
            assert len(server.requests) == 1

    run(test())


@pytest.mark.parametrize("streamed", [True, False])
def test_a_field_that_is_refused_with_status_200_is_given_up(streamed: bool) -> None:
    async def test() -> None:
        refusal = {"status": 200, "json": {"error": UNKNOWN}}
        async with served_by([refusing("chat_template_kwargs", refusal)]) as (served, (server,)):
            for _ in range(2):
                outcome = await say(served, "messages", streamed=streamed)
                assert outcome.known["status"] == "completed"
            assert ["chat_template_kwargs" in request for request in server.requests] == [True, False, False]

    run(test())
