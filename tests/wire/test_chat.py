"""Decoding of the chat chunks of all servers."""

from __future__ import annotations

import json

import pytest

from responses_gateway.wire.chat import MalformedChunk, decode_chunk


def test_a_chunk_of_vllm() -> None:
    chunk = decode_chunk(
        b'{"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":null,'
        b'"tool_calls":[{"id":"t","type":"function","index":0,"function":{"name":"f"}}]},"logprobs":null,'
        b'"finish_reason":null,"token_ids":null}],"prompt_token_ids":null}'
    )
    assert chunk.choices is not None
    delta = chunk.choices[0].delta
    assert delta is not None
    assert delta.tool_calls is not None
    (call,) = delta.tool_calls
    assert (call.index, call.id, call.function and call.function.name) == (0, "t", "f")
    assert not chunk.lenient


def test_halves_of_surrogate_pairs_are_kept_for_the_reader() -> None:
    chunk = decode_chunk(b'{"choices":[{"delta":{"content":"a\\ud83d"}}]}')
    assert chunk.lenient
    assert chunk.choices is not None
    assert chunk.choices[0].delta is not None
    assert chunk.choices[0].delta.content == "a\ud83d"


@pytest.mark.parametrize(
    "payload",
    [b"", b"null", b"[]", b'"x"', b"{", b'{"choices":{}}', b'{"choices":[1]}', b'{"usage":5}', b'\xff{"choices":5}'],
)
def test_what_is_no_chunk_is_refused(payload: bytes) -> None:
    with pytest.raises(MalformedChunk):
        decode_chunk(payload)


@pytest.mark.parametrize("opening", [b"", b'{"error":', b'{"error":"\\ud83d","message":'])
def test_nesting_without_end_is_refused(opening: bytes) -> None:
    with pytest.raises(MalformedChunk):
        decode_chunk(opening + b"[" * 100_000)


def test_the_end_of_a_prompt_is_read_whatever_its_length() -> None:
    for length in (0, 1, 8, 9, 200_000):
        ids = list(range(150_000, 150_000 + length))
        chunk = decode_chunk(json.dumps({"choices": [], "prompt_token_ids": ids}).encode())
        assert chunk.prompt_end == ids[-8:]
    for other in (None, {}, "many", [None]):
        assert decode_chunk(json.dumps({"choices": [], "prompt_token_ids": other}).encode()).prompt_end == []
    assert decode_chunk(b'{"choices": [], "message": "\\ud800", "prompt_token_ids": [1]}').prompt_end == []  # read leniently
