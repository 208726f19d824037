"""Errors in the place of an answer, with status 200: events and bodies of every form."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.stream.stream_player import DONE, Play, event, finish, judged, new_translator, play, text

WHY = "the computation failed"


def completion(body: bytes) -> Play:
    playing = new_translator()
    return judged(playing.start() + playing.feed_completion(body) + playing.finish(), playing)


@pytest.mark.parametrize(
    "payload",
    [
        {"msg": WHY, "code": 1302, "success": False},
        {"errors": [{"message": WHY}]},
        {"choices": None, "usage": {"total_tokens": 0}, "base_resp": {"status_code": 1008, "status_msg": WHY}},
        {"choices": [], "base_resp": {"status_code": 1008, "status_msg": WHY}},
        {"detail": [{"loc": ["body"], "msg": WHY}]},
        {"error": {"detail": {"reason": WHY}}},
        {"error": json.dumps({"message": WHY})},
        {"type": "error", "error": {"type": "api_error", "message": WHY}},
        {"type": "api_error", "message": WHY},
        {"error_message": WHY},
    ],
)
def test_an_event_that_is_an_error(payload: dict[str, Any]) -> None:
    for before in ([], [text("Hi")]):
        played = play(*before, event(payload))
        assert played.response["status"] == "failed"
        assert WHY in played.response["error"]["message"]
    assert WHY in completion(json.dumps(payload).encode()).response["error"]["message"]


@pytest.mark.parametrize(
    "frame",
    [
        f'error: {{"code":500,"message":"{WHY}"}}',
        f"error: {WHY}",
        f'event: error\ndata: {{"message":"{WHY}"}}',
        f'event:error\ndata: {{"error":{{"message":"{WHY}"}}}}',
        f'id: 1\nevent: error\ndata: "{WHY}"',
        f"event: error\ndata: {WHY}",
        f"event: error\n: {WHY}",  # Dynamo
        f'event: error\r\ndata: {{"type":"error",\r\ndata: "message":"{WHY}"}}',
    ],
)
def test_an_event_that_only_its_name_tells_to_be_an_error(frame: str) -> None:
    end = "\r\n\r\n" if "\r" in frame else "\n\n"
    for before in ([], [text("Hi")]):
        played = play(*before, (frame + end).encode())
        assert played.response["status"] == "failed"
        assert WHY in played.response["error"]["message"]


@pytest.mark.parametrize(
    "said",
    [
        f"Error: {WHY}", f"[ERROR] {WHY}", f"An error occurred: {WHY}", f"ValueError: {WHY}", f"openai.BadRequestError: {WHY}",
        f'"Error: {WHY}"', f"Upstream request failed: {WHY}", f"Traceback error: {WHY}", f"error {WHY} <b>",
    ],
)  # fmt: skip
def test_a_text_that_says_that_it_is_an_error(said: str) -> None:
    for before in ([], [text("Hi")]):
        played = play(*before, f"data: {said}\n\n".encode())
        assert played.response["status"] == "failed"
        assert WHY in played.response["error"]["message"]


@pytest.mark.parametrize("said", ["ping", "keep-alive", "still working on it", "errorless", "2026-11-27T06:00:00Z"])
def test_a_sign_of_life_is_no_error(said: str) -> None:
    assert play(f"data: {said}\n\n".encode(), text("Hi"), finish()).said == [("text", "Hi")]


def test_an_error_without_a_word() -> None:
    assert play(text("Hi"), b"event: error\ndata:\n\n").response["status"] == "failed"


def test_a_name_of_an_event_that_only_has_it_in_it() -> None:
    frame = b'event: error_free\ndata: {"choices":[{"delta":{"content":"Hi"},"finish_reason":"stop"}]}\n\n'
    assert play(frame).said == [("text", "Hi")]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (WHY.encode(), WHY),
        (json.dumps(WHY).encode(), WHY),
        (b"<html><title>502 Bad Gateway</title></html>", "is not a chat completion chunk."),
        (b'Traceback (most recent call last):\n  File "/srv/x.py"\nKeyError: "s3cr3t"', "chunk: KeyError"),
        (b"", "is not a chat completion chunk."),
        (b"\xff\xfe", "is not a chat completion chunk."),
    ],
)
def test_a_whole_answer_that_is_no_object(body: bytes, said: str) -> None:
    played = completion(body)
    assert played.response["status"] == "failed"
    assert said in played.response["error"]["message"]
    assert "s3cr3t" not in played.data.decode()
    assert played.translator.malformed == 1


@pytest.mark.parametrize(
    "payload",
    [
        {"choices": [], "prompt_filter_results": []},
        {"type": "ping"},
        {"status": "queued", "message": "wait"},
        {"code": 0, "msg": ""},
    ],
)
def test_an_event_that_is_none(payload: dict[str, Any]) -> None:
    assert play(event(payload), text("Hi"), event(payload), finish(), DONE).said == [("text", "Hi")]
