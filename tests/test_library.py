"""The package as a library: bytes of a chat stream in, bytes of a Responses stream out."""

from __future__ import annotations

import pytest

import responses_gateway


def test_a_stream_is_translated_without_any_server() -> None:
    translator = responses_gateway.Translator(
        responses_gateway.StreamOptions(response_id="resp_1", model="m"), clock=lambda: 1_800_000_000
    )
    stream = translator.start()
    stream += translator.feed(b'data: {"choices":[{"delta":{"content":"Hello"}}]}\n\n')
    stream += translator.feed(b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n')
    stream += translator.finish() + translator.terminal()
    assert b'"delta":"Hello"' in stream
    assert translator.status == "completed"
    # What repeats the request (`echo`) is the caller's to give; the order of events is right all the same.
    assert {violation.rule for violation in responses_gateway.check_stream(stream)} <= {"malformed", "usage"}


def test_what_is_not_there_is_said() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Translater'"):
        _ = responses_gateway.Translater  # type: ignore[attr-defined]
