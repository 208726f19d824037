"""What a server says of an error, in all the places where servers say it; and what is never shown of it."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from responses_gateway.wire.error_reasons import error_in, reason_in, reason_in_body
from responses_gateway.wire.errors import read_error, read_error_chunk, unreadable_answer

WHY = "the parameter top_p is out of range"

# Each says why.
BODIES: list[Any] = [
    WHY,
    [WHY],
    {"message": WHY},
    {"Message": WHY},
    {"msg": WHY, "code": 30001, "success": False},
    {"errorMessage": WHY},
    {"error_msg": WHY, "error_code": 336007},
    {"errmsg": WHY, "errcode": 5},
    {"detail": WHY},
    {"detail": {"message": WHY}},
    {"detail": {"error": {"reason": WHY}}},
    {"detail": [{"loc": ["body"], "msg": WHY}]},
    {"detail": [WHY]},
    {"details": {"description": WHY}},
    {"error": WHY},
    {"error": [WHY]},
    {"error": {"msg": WHY}},
    {"error": {"detail": WHY}},
    {"error": {"error": {"message": WHY}}},
    {"error": {"message": {"detail": [{"msg": WHY}]}}},
    {"error": {"message": [WHY]}},
    {"error": {"message": json.dumps({"error": {"message": WHY}})}},
    {"error": json.dumps({"detail": WHY})},
    {"error": "bad_request", "error_description": WHY},
    {"error": True, "message": WHY},
    {"error": 400, "reason": WHY},
    {"error": {}, "message": WHY},
    {"error": None, "description": WHY},
    {"errors": [WHY]},
    {"errors": WHY},
    {"errors": [{"code": 8001, "message": WHY}], "success": False, "result": None, "messages": []},
    {"errors": [{"title": "Bad Request", "detail": WHY}]},
    {"errors": {"top_p": [WHY]}, "title": "One or more validation errors occurred."},
    {"base_resp": {"status_code": 1008, "status_msg": WHY}, "choices": None},
    {"data": {"error": {"message": WHY}}},
    {"result": {"message": WHY}},
    {"response": {"error": {"message": WHY}}},
    {"header": {"code": 10003, "message": WHY}},
    {"status": {"code": 3, "message": WHY}},
    {"fault": {"faultstring": "x", "message": WHY}},
    {"fault": {"faultstring": WHY, "detail": {"errorcode": "policies.Refused"}}},
    {"fault": {"text": WHY}},
    {"error": {"message": {"text": WHY}}},
    {"error": {"message": {"text": {"value": WHY}}}},
    {"error": {"message": [{"type": "text", "text": WHY}]}},
    {"error": {"code": "", "message": {"lang": "en-US", "value": WHY}}},
    {"error": {"text": WHY}},
    {"message": {"en": WHY, "zh": "x"}},
    {"error": "Bad Request", "message": {"text": WHY}},
    {"type": "about:blank", "title": "Bad Request", "status": 400, "detail": WHY},
    {"type": "error", "error": {"type": "bad_request_error", "message": WHY, "http_code": "400"}},
    {"statusCode": 400, "error": "Bad Request", "message": [WHY]},
    [{"error": {"code": 400, "status": "INVALID_ARGUMENT", "message": WHY, "details": [{"@type": "x"}]}}],
    json.dumps({"message": WHY}),
]


@pytest.mark.parametrize("body", BODIES)
def test_the_reason_is_found_wherever_it_stands(body: Any) -> None:
    for status in (400, 422, 500):
        assert WHY in read_error(status, json.dumps(body).encode()).message
    assert WHY in read_error_chunk(body).message


@pytest.mark.parametrize(
    "body",
    [
        WHY.encode(),
        f"\ufeff{WHY}\n".encode(),
        f"Error: {WHY}\r\n".encode(),
        f'data: {{"error": {{"message": "{WHY}"}}}}\n\n'.encode(),
        f'event: error\ndata: {{"message": "{WHY}"}}\n\n'.encode(),
        f'{{"error": {{"message": "{WHY}", "input": "cut he'.encode(),
        f'[{{"msg":"{WHY}", "input": {{"cut'.encode(),
        f"{{'error': {{'message': '{WHY}', 'code': 400}}}}".encode(),
        f"<?xml version='1.0'?><Error><Code>Bad</Code><Message>{WHY}</Message></Error>".encode(),
        f"<s:Envelope><s:Body><soap:faultstring>{WHY}</soap:faultstring></s:Body></s:Envelope>".encode(),
    ],
)
def test_the_reason_in_what_is_no_json(body: bytes) -> None:
    assert WHY in read_error(400, body).message


def test_several_reasons_are_told_together() -> None:
    assert reason_in({"errors": [{"message": "one"}, {"message": "two"}, {"message": "one"}]}).text == "one; two"
    assert reason_in({"error": "Bad Request", "message": "no tools"}).text == "Bad Request: no tools"
    assert reason_in({"message": "not valid", "errors": {"a": ["too long"]}}).text == "not valid: a: too long"
    assert reason_in({"detail": {"where": 5}}).text == '{"where": 5}'


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"error": {"message": "no", "type": "insufficient_quota"}}, (429, "insufficient_quota")),
        ({"error": {"message": "no", "code": "insufficient_quota"}}, (429, "insufficient_quota")),
        ({"error": "insufficient_quota", "message": "no"}, (429, "insufficient_quota")),
        ({"error": {"message": "no", "type": "exceeded_current_quota_error"}}, (429, "insufficient_quota")),
        ({"code": "rate_limit_exceeded", "message": "no"}, (429, "rate_limit_exceeded")),
    ],
)
def test_what_tells_the_kind_counts_wherever_it_stands(body: Any, expected: tuple[int, str]) -> None:
    for status in (400, 403, 413, 429, 500):
        error = read_error(status, json.dumps(body).encode())
        assert (error.status, error.code) == expected
    error = read_error_chunk(body)
    assert (error.status, error.code) == expected


def test_a_server_that_is_overloaded() -> None:
    assert read_error(529, b'{"error": {"message": "busy", "type": "overloaded_error"}}', 3.0).retry_after == 3.0
    for status in (500, 503, 529):
        assert read_error(status, b'{"type": "error", "error": {"message": "busy", "type": "overloaded_error"}}').status == 503
    assert read_error_chunk({"type": "overloaded_error", "message": "busy"}).status == 503


# ---- what is not shown -------------------------------------------------------------------------------------------------

TRACE = 'Traceback (most recent call last):\n  File "/srv/engine/core.py", line 3, in step\nmy.mod.ChatError: the key is s3cr3t'


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (TRACE, "ChatError"),
        (f"Internal failure\n{TRACE}", "Internal failure"),
        ('no tools\n\n  File "/srv/app.py", line 3, in f\n    x', "no tools"),
        ("TypeError: x is not a function\n    at run (/srv/app.js:3:4)\n    at main", "TypeError: x is not a function"),
        ("broken\n\tat com.example.Chat.run(Chat.java:3)", "broken"),
        ("panic: nil\n\ngoroutine 1 [running]:\nmain.main()\n\t/srv/main.go:3", "panic: nil"),
        ("it failed. Stack trace: /srv/x.py", "it failed."),
        ("See stack trace (above) for the root cause.", "See stack trace (above) for the root cause."),
        ("refused: Authorization: Bearer abcdefgh", "refused: […]"),
        ("Send it as 'Authorization: Bearer YOUR_KEY'.", "Send it as 'Authorization: Bearer YOUR_KEY'."),
        ("Authorization: Bearer YOUR_KEY-abcdefgh", "[…]"),
        ("Incorrect API key provided: sk-abcdefgh1234", "Incorrect API key provided: […]"),
        ("api_key=abcd1234 is wrong", "[…] is wrong"),
        ("cannot connect to https://me:hunter2@db.example/x", "cannot connect to https://[…]db.example/x"),
    ],
)
def test_no_stack_traces_and_no_keys(text: str, shown: str) -> None:
    for body in (text.encode(), json.dumps({"error": {"message": text}}).encode(), json.dumps({"detail": text}).encode()):
        assert reason_in_body(body).text == shown
    assert reason_in({"error": text, "traceback": TRACE, "stack": TRACE, "headers": {"authorization": "s3cr3t"}}).text == shown


def test_what_a_trace_ends_with_still_tells_the_kind() -> None:
    trace = TRACE.replace("the key is s3cr3t", "prompt is too long: 9000 tokens > 8192 maximum")
    error = read_error(500, trace.encode())
    assert (error.code, error.message) == ("context_length_exceeded", "The backend answered with HTTP 500: ChatError")


@pytest.mark.parametrize(
    ("page", "message"),
    [
        ("<html><head><title>413 Request Entity Too Large</title></head><body>nginx at /srv</body></html>", None),
        ("<!DOCTYPE html><TITLE> 520 Web Server Is Returning an Unknown Error </TITLE><p>ray 1", "HTTP 500: Web Server Is"),
        ("<html><h1>Whitelabel Error Page</h1><pre>java.lang.Exception at /srv</pre></html>", None),
        ("<html><title>db.example | 502: Bad gateway</title>", None),
        ("<", None),
        ("Internal Server Error", None),
        ("Bad Gateway.", None),
        ("---", None),
        ("\ufeff", None),
    ],
)
def test_of_a_page_only_a_status_is_shown(page: str, message: str | None) -> None:
    error = read_error(500, page.encode())
    expected = "The backend answered with HTTP 500." if message is None else message
    assert expected in error.message
    assert "/srv" not in error.message
    assert "db.example" not in error.message


def test_a_page_that_is_missing_is_a_wrong_url() -> None:
    for body in (b"404 page not found", b"<html><title>404 Not Found</title>", b"nothing here"):
        assert "--backend URL" in read_error(404, body).message
    assert read_error(404, b"no model of this name").code == "model_not_found"


def test_texts_are_short() -> None:
    assert len(read_error(500, b"why " * 10_000).message) < 500
    assert len(reason_in({"errors": [{"message": "x" * 1500}] * 20}).text or "") <= 2000


@pytest.mark.parametrize(
    "value",
    [
        "[" * 50_000,
        json.dumps({"error": {"message": "[" * 60_000}}),
        '{"error":' * 5000 + "1" + "}" * 5000,
        json.dumps({"message": [{"text": [{"value": [{"content": [{}] * 8}] * 8}] * 8}] * 8}),
        json.dumps([[[[[["x"] * 8] * 8] * 8] * 8] * 8]),
        '"msg":"' * 9000,
        "<title" * 9000,
        '{"message": "' + "\\n" * 30_000,
        "https://" + "a" * 60_000,
        "\n " * 30_000,
    ],
)
def test_a_hostile_body_takes_no_time(value: str) -> None:
    begin = time.process_time()
    reason_in_body(value.encode())
    error_in(value.encode())
    assert time.process_time() - begin < 5  # what is quadratic would take minutes


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["error", "message", "text", "detail", "errors", "code", "base_resp", "x"]), inner, max_size=4
        )
    ),
    max_leaves=20,
)


@given(_JSON)
def test_any_value_can_be_read(value: Any) -> None:
    for error in (read_error(400, json.dumps(value).encode()), read_error_chunk(value)):
        assert 400 <= error.status < 600
        assert error.message


# ---- errors in place of an answer --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [
        {"error": WHY},
        {"errors": [WHY]},
        {"msg": WHY, "code": 1302, "success": False},
        {"message": WHY, "success": False},
        {"message": WHY, "status": "failed"},
        {"error_msg": WHY},
        {"detail": [{"msg": WHY}]},
        {"type": "invalid_request_error", "message": WHY},
        {"object": "error", "message": WHY},
        {"choices": None, "base_resp": {"status_code": 1008, "status_msg": WHY}},
        {"choices": [], "usage": {"total_tokens": 0}, "base_resp": {"status_code": 1004, "status_msg": WHY}},
    ],
)
def test_an_object_that_is_an_error(value: Any) -> None:
    error = error_in(json.dumps(value).encode())
    assert error == value
    assert WHY in read_error_chunk(error).message


@pytest.mark.parametrize(
    "value",
    [
        {"choices": [], "prompt_filter_results": []},
        {"type": "ping"},
        {"status": "processing", "message": "in the queue"},
        {"code": 0, "msg": "ok"},
        {"code": "200", "message": "fine"},
        {"code": 5},
        {"code": [5], "message": "odd"},
        {"base_resp": {"status_code": 0, "status_msg": ""}, "choices": []},
        {"errors": [], "error": None},
        {"error": {"message": "", "code": None}},
        ["error"],
        "error",
        None,
    ],
)
def test_an_object_that_is_none(value: Any) -> None:
    assert error_in(json.dumps(value).encode()) is None


def test_a_whole_answer_that_is_no_completion() -> None:
    assert unreadable_answer(WHY.encode()).message == f"The backend sent something that is not a chat completion chunk: {WHY}"
    assert unreadable_answer(b"<html>").message == "The backend sent something that is not a chat completion chunk."


_SAID = "The tool schema is not supported."


@pytest.mark.parametrize(
    "body",
    [
        {"info": _SAID},
        {"status": 400, "statusText": _SAID},
        {"errorInfo": {"code": 1, "desc": _SAID}},
        {"error": {"desc": _SAID}},
        {"error": {"code": "x", "data": _SAID}},
        {"retmsg": _SAID, "retcode": 3},
        {"code": 400, "data": _SAID},
        {"userMessage": _SAID},
        {"ResponseMetadata": {"Error": {"Code": "x", "Message": _SAID}}},
        {"OriginalMessage": _SAID, "ErrorCode": "CLIENT"},
        {"error": {"issues": [{"message": _SAID}], "name": "ZodError"}},
        {"non_field_errors": [_SAID]},
        {"responseBody": json.dumps({"error": {"message": _SAID}})},
        {"request_id": "a b c", "date": "Sat, 28 Nov 2026", "model": "my own model", "reason_text": _SAID},
    ],
)
def test_a_reason_under_a_name_that_nobody_knows(body: dict[str, Any]) -> None:
    assert reason_in(body).text == _SAID


@pytest.mark.parametrize(
    "body",
    [
        {"id": "chatcmpl-1", "object": "list", "code": "E_1"},
        {"prompt": _SAID, "messages": [{"role": "user", "content": _SAID}], "requestHeaders": {"cookie": _SAID}},
        {"stack": [_SAID], "debug_info": _SAID, "log": _SAID, "config": {"message": _SAID}, "documentation": _SAID},
        {"names": ["a", "b"], "flags": {"a": True}},
    ],
)
def test_what_is_no_sentence_or_not_for_clients_is_no_reason(body: dict[str, Any]) -> None:
    assert reason_in(body).text is None


def test_chinese_has_no_blanks() -> None:
    assert reason_in({"tips": "参数错误"}).text == "参数错误"
