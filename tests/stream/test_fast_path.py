"""The fast path of the usual chunk gives what the ordinary one gives."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from responses_gateway.stream.answer.fast_path import learn, unquoted
from responses_gateway.stream.options import StreamOptions
from responses_gateway.stream.translator import Translator

TEXTS = st.lists(
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8) | st.sampled_from(["\n", " ", '"', "\\"])
)


def event(delta: dict[str, Any], *, created: int = 0, ascii_only: bool = False, spaced: bool = False, **choice: Any) -> bytes:
    chunk = {"id": "c", "created": created, "choices": [{"index": 0, "delta": delta, "finish_reason": None, **choice}]}
    separators = (", ", ": ") if spaced else (",", ":")
    return b"data: " + json.dumps(chunk, ensure_ascii=ascii_only, separators=separators).encode() + b"\n\n"


def outcome(reads: list[bytes]) -> tuple[Any, int]:
    """Return the output of the response, and the number of chunks counted."""
    translator = Translator(StreamOptions("resp_1", "m"), lambda: 0.0)
    translator.start()
    for data in reads:
        translator.feed(data)
    translator.feed(event({}, finish_reason="stop") + b"data: [DONE]\n\n")
    return json.loads(translator.response.json())["output"], translator.chunks


def cut(stream: bytes, places: list[float]) -> list[bytes]:
    at = sorted({0, len(stream), *(int(place * len(stream)) for place in places)})
    return [stream[begin:end] for begin, end in pairwise(at)]


@given(
    st.lists(st.tuples(st.sampled_from(["content", "reasoning", "reasoning_content"]), TEXTS), max_size=4),
    st.booleans(),
    st.booleans(),
    st.lists(st.floats(0, 1), max_size=6),
)
def test_chunks_that_look_alike_give_what_chunks_that_do_not_give(
    runs: list[tuple[str, list[str]]], ascii_only: bool, spaced: bool, places: list[float]
) -> None:
    deltas = [{name: text} for name, texts in runs for text in texts]
    alike = [event(delta, ascii_only=ascii_only, spaced=spaced) for delta in deltas]
    different = [event(delta, created=number) for number, delta in enumerate(deltas)]
    expected = outcome(different)
    assert outcome(alike) == expected
    assert outcome(cut(b"".join(alike), places)) == expected


def test_a_stream_that_changes_is_learned_again() -> None:
    """llama.cpp writes the current second into each chunk."""
    words = [f" w{number}" for number in range(60)]
    reads = [event({"content": word}, created=number // 10) for number, word in enumerate(words)]
    output, chunks = outcome(reads)
    assert output[0]["content"][0]["text"] == "".join(words)
    assert chunks == len(words) + 1


def test_half_a_surrogate_pair_finds_its_other_half() -> None:
    halves = [b'{"choices":[{"delta":{"content":"%b"}}]}' % half for half in (b"a", b"b", b"\\ud83d", b"\\ude00", b"c")]
    reads = [b"data: %b\n\n" % half for half in halves]
    assert outcome(reads)[0][0]["content"][0]["text"] == "ab😀c"
    assert outcome([b"".join(reads)])[0][0]["content"][0]["text"] == "ab😀c"


def test_a_chunk_that_goes_on_behind_the_text_is_not_taken_for_a_usual_one() -> None:
    """Check that only the text may differ: a quotation mark inside of it ends it."""
    sly = b'data: {"choices":[{"delta":{"content":"x","refusal":"no"}}]}\n\n'
    usual = b'data: {"choices":[{"delta":{"content":"x"}}]}\n\n'
    kinds = [part["type"] for item in outcome([usual, usual, usual, sly, sly])[0] for part in item["content"]]
    assert kinds == ["output_text", "refusal", "output_text", "refusal"]


def test_a_place_that_is_not_certain_is_not_learned() -> None:
    twice = b'{"choices":[{"delta":{"content":"x"}}],"content":"x"}'
    assert learn("text", twice, "x") is None
    assert learn("text", b'{"choices":[{"delta":{"content":  "x"}}]}', "x") is None
    assert learn("text", b'{"choices":[{"delta":{"c\\u006fntent":"x"}}]}', "x") is None
    assert learn("call", twice, "x") is None
    learned = learn("text", b'{"choices":[{"delta":{"content": "x"}}]}', "x")
    assert learned is not None
    assert learned.inside(b'{"choices":[{"delta":{"content": "\\u00e9"}}]}') == b"\\u00e9"
    assert learned.inside(b'{"choices":[{"delta":{"reasoning": "x"}}]}') == b""


def test_what_is_no_json_string_is_no_text() -> None:
    assert [unquoted(data) for data in (b'"a"b"', b'"a\nb"', b'"\\ud83d"', b'"\xff"', b'"\\"')] == [""] * 5
