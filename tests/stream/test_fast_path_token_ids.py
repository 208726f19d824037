"""Chunks with the ids of their tokens: what bytes tell of them is what decoding them tells, in events and in the ledger."""

from __future__ import annotations

import json
import tracemalloc
from array import array
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from responses_gateway import parsers
from responses_gateway.stream.answer.fast_path import learn, unquoted
from responses_gateway.stream.continuation.join import Join
from responses_gateway.stream.reading.markup import Markup
from responses_gateway.stream.sampling import CallRecorder
from responses_gateway.stream.translator import Translator
from responses_gateway.wire.errors import server_error
from tests.data_folder import STREAMS
from tests.stream.stream_player import DONE, event, events_of, new_translator
from tests.thoroughness import THOROUGH, examples

LOST = server_error("The connection to the backend broke in the middle of the answer.")
PROMPT = [5, 6, 7]
FIRST = event({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}], "prompt_token_ids": PROMPT})
LAST = event({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop", "token_ids": [9]}]})

# As a vLLM writes it.
USUAL = b'{"id":"c","choices":[{"index":0,"delta":{"FIELD":TEXT},"logprobs":null,"finish_reason":null,"token_ids":IDS}]}'
SPACED = b'{"choices": [{"index": 0, "delta": {"FIELD": TEXT}, "finish_reason": null, "token_ids": IDS, "stop_reason": null}]}'
# The same with log probabilities: those of the text, as vLLM sends them, and others of as many tokens.
PROBABLE = (
    b'{"id":"c","choices":[{"index":0,"delta":{"FIELD":TEXT},"logprobs":{"content":[{"token":TEXT,"logprob":-0.5,"bytes":[32],'
    b'"top_logprobs":[]}]},"finish_reason":null,"token_ids":IDS}]}'
)
UNLIKELY = b'{"choices":[{"index":0,"delta":{"FIELD":TEXT},"logprobs":{"content":[]},"token_ids":IDS,"finish_reason":null}]}'
ALIKE = [USUAL, SPACED]
WITH_LOGPROBS = [PROBABLE, UNLIKELY]
# As no server should: ids in other places, or in several; more than text and ids; none of them.
ODD = [
    b'{"choices":[{"token_ids":IDS,"index":0,"delta":{"FIELD":TEXT}}]}',
    b'{"choices":[{"delta":{"FIELD":TEXT},"token_ids":[3],"token_ids":IDS}]}',
    b'{"choices":[{"delta":{"FIELD":TEXT},"token_ids":IDS,"token_ids":[3]}]}',
    b'{"choices":[{"delta":{"FIELD":TEXT},"token\\u005fids":IDS}],"token_ids":IDS}',
    b'{"choices":[{"delta":{"FIELD":TEXT},"stats":{"token_ids":IDS},"token_ids":[3]}]}',
    b'{"choices":[{"delta":{"FIELD":TEXT,"token_ids":IDS},"token_ids":[3]}],"prompt_token_ids":IDS}',
    b'{"choices":[{"delta":{"FIELD":TEXT,"FIELD":"x"},"token_ids":IDS}]}',
    b'{"choices":[{"delta":{"FIELD":TEXT},"token_ids":IDS,"prompt_token_ids":[1]}],"prompt_token_ids":[5,6,7]}',
    b'{"choices":[{"delta":{"FIELD":TEXT,"reasoning_details":[]},"token_ids":IDS}],"usage":null}',
    b'{"choices":[{"delta":{"FIELD":TEXT}}]}',
    b'{"choices":[{"delta":{"FIELD":TEXT}}],"token_ids":IDS}',
    b'{"choices":[{"delta":{},"token_ids":IDS}]}',
    b'{"choices":[{"delta":{"reasoning":"so","content":TEXT},"token_ids":IDS}]}',
    b'{"choices":[{"delta":{"FIELD":TEXT,"refusal":"no"},"token_ids":IDS}]}',
    b'{"choices":[{"delta":{"FIELD":TEXT},"token_ids":IDS,"logprobs":{"content":[]}}]}',
    b'{"choices":[{"logprobs":{"content":[{"token":TEXT,"logprob":-1}]},"delta":{"FIELD":TEXT},"token_ids":IDS}]}',
    b'{"choices":[{"delta":{"FIELD":TEXT},"logprobs":{"content":[{"token":TEXT,"logprob":null}]},"token_ids":IDS}]}',
    b'{"choices":[{"delta":{"FIELD":TEXT},"logprobs":{"content":[{"token":"a","logprob":-2,"x":{"token_ids":IDS}}]},"token_ids":IDS}]}',
    b'{"choices":[{"delta":{"FIELD":TEXT},"logprobs":{"content":[{"token":TEXT,"logprob":-1}]}}]}',
    b'{"choices":[{"delta":{"FIELD":TEXT},"logprobs":{"token_logprobs":[-1.5],"tokens":[TEXT]},"token_ids":IDS}]}',
    b'{"choices":[{"delta":{"FIELD":TEXT},"logprobs":{"content":[]},"logprobs":{"content":[]},"token_ids":IDS}]}',
    b'{"choices":[{"delta":{"FIELD":TEXT},"token_ids":IDS,"finish_reason":"abort"}]}',
    b'{"choices":[{"delta":{"FIELD":TEXT},"token_ids":IDS}],"usage":{"prompt_tokens":3,"completion_tokens":1}}',
    b'{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"weather","arguments":"{"}}]},"token_ids":IDS}]}',
]
ODD_IDS = [
    "null", "[]", "[-1]", "[ 4 , 5]", "[9223372036854775808]", "[1180591620717411303424]", "[[5]]", '["5"]', "[5.0]", "[true]",
    "[5,null]", '[5],"x":[6]', '[5]}],"y":[{"z":[6]', "7", "{}",
]  # fmt: skip
MARKER_IDS = {"<think>": 1, "</think>": 2, "<tool_call>": 3, "</tool_call>": 4}
SLY = '"},"logprobs":null,"finish_reason":null,"token_ids":[1]}]}\n\ndata: {"id":"c'

texts = (
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=5)
    | st.sampled_from([" ", "\n", '"', "\\", "é", "模型", "<think>", "</think>", "<tool", '<tool_call>\n{"name', "", SLY])
)  # fmt: skip
usual_ids = st.lists(st.integers(0, 200_000), min_size=1, max_size=3).map(partial(json.dumps, separators=(",", ":")))
ids_of_chunks = (st.integers(1, 5) | st.integers(6, 150_000)).map("[{}]".format) | usual_ids
fields = st.sampled_from(["content", "content", "reasoning"])


def written(template: bytes, field: str, content: str, ids: str, *, ascii_only: bool = False) -> bytes:
    quoted = json.dumps(content, ensure_ascii=ascii_only).encode()
    payload = template.replace(b"IDS", ids.encode()).replace(b"FIELD", field.encode()).replace(b"TEXT", quoted)
    return b"data: %b\n\n" % payload


@st.composite
def events(draw: st.DrawFn) -> list[bytes]:
    """Draw events in runs: those of one run look alike, but for a few."""
    found = []
    for _ in range(draw(st.integers(1, 5))):
        template = draw(st.sampled_from([*ALIKE, *ALIKE, *ALIKE, *WITH_LOGPROBS, *WITH_LOGPROBS, *WITH_LOGPROBS, *ODD]))
        field = draw(fields)
        ascii_only = draw(st.booleans())
        for content, ids in draw(st.lists(st.tuples(texts, ids_of_chunks), min_size=1, max_size=7)):
            found.append(written(template, field, content, ids, ascii_only=ascii_only))
        if draw(st.integers(0, 3)) == 0:
            odd = draw(st.sampled_from(ODD_IDS))
            found.append(written(template, field, draw(texts), odd, ascii_only=ascii_only))
    return found


def new_markup() -> Markup:
    return Markup(partial(parsers.parser, "qwen3", "hermes", schemas={}, marker_ids=MARKER_IDS), thinking_open=False)


class Standing(NamedTuple):
    """What is known behind one read: the events that it brought, what a continuation would be asked, what was counted."""

    events: list[dict[str, Any]]
    beginning: Any
    ledger: Any
    counts: Any
    sampled: Any


def merged(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return events without their numbers, the deltas of one text as one: how many there are depends on what was looked at."""
    kept: list[dict[str, Any]] = []
    for one in found:
        del one["sequence_number"]
        if kept and "delta" in one and {**kept[-1], "delta": ""} == {**one, "delta": ""}:
            kept[-1]["delta"] += one["delta"]
        else:
            kept.append(one)
    return kept


def standing(translator: Translator, data: bytes) -> Standing:
    answer = translator.answer
    continuable = translator.continuable
    ledger = answer.ledger
    beginning = None
    known = None
    if ledger is not None:
        if continuable:
            beginning = translator.answer.partial()
            beginning = beginning._replace(ids=list(beginning.ids))
        known = (ledger.complete, list(ledger.ids), ledger.whole, "".join(ledger.tail), ledger.parsed, ledger.aborted)
    counts = None
    if translator.ended or ledger is not None:  # else ids wait for one another until the answer ends, or is left
        counts = (translator.tokens.by_kind(), translator.chunks, translator.malformed, translator.repairs, translator.held)
    recorder = translator.options.recorder
    sampled = [] if recorder is None else [(call.tokens(), call.texts) for call in recorder.calls]
    about = (known, translator.lifecycle.turn.first_item, answer.broken_off)
    return Standing(merged(events_of(data)), beginning, about, counts, sampled)


def played(
    reads: Sequence[bytes], *, raw: bool, goes_on: bool, records: bool = False, looks: bool = True, **fields: Any
) -> list[Standing]:
    """Return what is known behind each read, or, unless somebody `looks`, behind all of them together: then tokens wait for one
    another. Where the answer can be continued then, it `goes_on` elsewhere."""
    recorder = CallRecorder(hides_logprobs=True, shows=None) if records else None
    translator = new_translator(markup=new_markup() if raw else None, recorder=recorder, **fields)
    found = [standing(translator, translator.start())]
    if looks:
        for data in (FIRST, *reads):
            found.append(standing(translator, translator.feed(data)))
    else:
        found.append(standing(translator, b"".join([translator.feed(data) for data in (FIRST, *reads)])))
    if goes_on and translator.continuable and translator.answer.partial().raw:
        found += continued(translator)
    else:
        translator.feed(LAST)
    found.append(standing(translator, translator.feed(DONE) + translator.fail(LOST) + translator.terminal()))
    return found


def continued(translator: Translator) -> Iterator[Standing]:
    """Have the chat endpoint of another server go on: it says the tail again, and more."""
    beginning = translator.answer.partial()
    kept = beginning.ids[: beginning.whole]
    yield standing(translator, translator.resume(Join(beginning.prompt, kept, overlap=beginning.tail), None))
    for number, content in enumerate([beginning.tail or "So", " it", " goes", " on", ".", ""]):
        choice = {
            "index": 0,
            "delta": {"content": content},
            "token_ids": [number],
            "finish_reason": None if content else "stop",
        }
        asked = {} if number else {"prompt_token_ids": [*beginning.prompt, *kept]}
        yield standing(translator, translator.feed(event({"choices": [choice], **asked})))


def without_patterns() -> AbstractContextManager[Any]:
    """Have each chunk decoded, and those of one text that one read brought written as one."""
    return mock.patch("responses_gateway.stream.answer.fast_path.learn", return_value=None)


def without_fast_path() -> AbstractContextManager[Any]:
    """Have each chunk go through the reader and the table."""
    return mock.patch("responses_gateway.stream.answer.fast_path.FastPath.look_ahead")


def cut(stream: bytes, places: Sequence[float]) -> list[bytes]:
    at = sorted({0, len(stream), *(int(place * len(stream)) for place in places)})
    return [stream[begin:end] for begin, end in pairwise(at)]


streams = st.fixed_dictionaries(
    {
        "continuable": st.sampled_from([True, True, False]),
        "holds_text": st.booleans(),
        "raw": st.booleans(),
        "goes_on": st.booleans(),
        "records": st.booleans(),
        "looks": st.booleans(),
    }
)


@pytest.mark.untraced
@given(events(), streams, st.lists(st.floats(0, 1), max_size=8))
@settings(max_examples=examples(150), deadline=None)
def test_however_the_bytes_are_cut_the_events_and_the_ledger_are_the_same(
    sent: list[bytes], how: dict[str, bool], places: list[float]
) -> None:
    reads = cut(b"".join(sent), places)
    with without_patterns():
        expected = played(reads, **how)
    assert played(reads, **how) == expected


IDS_LATE = [
    b'data: {"choices":[{"delta":{"content":"0"}}]}\n\n',
    b'data: {"choices":[{"delta":{"reasoning":"0"}}]}\n\n',
    *(written(ALIKE[0], "reasoning", "0", ids) for ids in ("[1]", "null")),
]


@given(events(), streams)
@example(IDS_LATE, {"continuable": True, "holds_text": False, "raw": False, "goes_on": False})
@settings(max_examples=examples(150), deadline=None)
def test_reads_of_one_event_give_what_reader_and_table_give(sent: list[bytes], how: dict[str, bool]) -> None:
    with without_fast_path():
        expected = played(sent, **how)
    assert played(sent, **how) == expected


@pytest.mark.slow
@pytest.mark.untraced  # the tests around it run the same lines
@pytest.mark.parametrize("raw", [False, True])
@pytest.mark.parametrize("holds_text", [False, True])
def test_every_cut_of_a_usual_chunk(raw: bool, holds_text: bool) -> None:
    pieces = ["One", " two", ' "three"', " 四", "\n", "five"]
    sent = [written(USUAL, "content", piece, f"[{number}]") for number, piece in enumerate(pieces)]
    begin = sum(map(len, sent[:2]))  # from there on, chunks are not decoded
    stream = b"".join(sent)
    for at in range(begin, begin + len(sent[2] + sent[3])):
        reads = [stream[:at], stream[at:]]
        how = {"raw": raw, "holds_text": holds_text, "continuable": True, "goes_on": True}
        with without_patterns():
            expected = played(reads, **how)
        assert played(reads, **how) == expected


def recorded() -> list[Any]:
    files = sorted(STREAMS.glob("*/*.ids.sse"))
    return [pytest.param(file, id=f"{file.parent.name}/{file.stem}") for file in files]


@pytest.mark.untraced
@pytest.mark.parametrize("file", recorded())
def test_recorded_streams_of_a_real_vllm(file: Path) -> None:
    stream = file.read_bytes()
    single = [b"%b\n\n" % one for one in stream.split(b"\n\n")]
    how = {"raw": file.parent.name == "raw", "continuable": True, "goes_on": False}
    for unlike in (without_patterns, without_fast_path):
        with unlike():
            expected = played(single, **how)
        assert played(single, **how) == expected
    for size in (7 if THOROUGH else 70, 300, 5000):
        reads = [stream[at : at + size] for at in range(0, len(stream), size)]
        with without_patterns():
            expected = played(reads, **how)
        assert played(reads, **how) == expected


@pytest.mark.parametrize(("template", "records"), [(USUAL, False), (SPACED, False), (USUAL, True), (PROBABLE, True)])
@pytest.mark.parametrize(("field", "raw"), [("content", False), ("content", True), ("reasoning", False)])
@pytest.mark.parametrize("at_once", [1, 5])
def test_usual_chunks_are_not_decoded(template: bytes, records: bool, field: str, raw: bool, at_once: int) -> None:
    recorder = CallRecorder(hides_logprobs=True, shows=None) if records else None
    translator = new_translator(continuable=True, markup=new_markup() if raw else None, recorder=recorder)
    translator.start()
    sent = [written(template, field, f" {number}é", f"[{number}]") for number in range(100, 122)]
    for data in (FIRST, *sent[:2]):
        translator.feed(data)
    with mock.patch("responses_gateway.stream.answer.answer.decode_chunk", side_effect=AssertionError):
        for at in range(2, len(sent), at_once):
            assert b"\xc3\xa9" in translator.feed(b"".join(sent[at : at + at_once]))
        translator.feed(written(template, field, " fine.", "[122,123]"))
    assert translator.status == "in_progress"
    assert translator.continuable
    beginning = translator.answer.partial()
    assert list(beginning.ids) == list(range(100, 124))
    assert (beginning.whole, beginning.tail) == ((22, " fine.") if field == "content" else (0, ""))
    assert sum(translator.tokens.by_kind().values()) == 24
    if recorder is not None:
        translator.feed(LAST)
        [call] = recorder.calls
        tokens = call.tokens()
        assert tokens.ids == array("q", [*range(100, 124), 9])
        assert len(call.texts) == (23 if template == PROBABLE else 0)


@pytest.mark.parametrize("broken_off", [DONE, event({"error": {"message": "EngineCore encountered an issue.", "code": 500}})])
def test_nothing_is_read_behind_the_break(broken_off: bytes) -> None:
    translator = new_translator(continuable=True)
    translator.start()
    sent = [written(USUAL, "content", f" {number}", f"[{number}]") for number in range(6)]
    for data in (FIRST, *sent[:5], broken_off):
        translator.feed(data)
    assert translator.answer.broken_off is not None
    assert translator.feed(sent[5]) == b""
    assert list(translator.answer.partial().ids) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("template", [template for template in ODD[:6] if b"FIELD" in template])
def test_ids_whose_place_is_not_certain_are_not_learned(template: bytes) -> None:
    payload = written(template, "content", "x", "[3]")[6:-2]
    assert learn("text", payload, "x", [3]) is None


def test_ids_are_learned_with_the_text() -> None:
    pattern = learn("text", written(USUAL, "content", "x", "[3]")[6:-2], "x", [3])
    assert pattern is not None
    payload = written(USUAL, "content", SLY, "[4,5]")[6:-2]
    [(text, logprobs, ids)] = pattern.parts(pattern.inside(payload))
    assert (unquoted(b'"%b"' % text), logprobs, ids) == (SLY, b"", b"4,5")
    assert pattern.payload((text, logprobs, ids)) == payload
    for other in ("null", "[[4]]", '[4],"x":[5]', "[4", "4]", "04]", ""):
        assert pattern.parts(pattern.inside(written(USUAL, "content", "y", other)[6:-2])) == ()


@pytest.mark.parametrize("odd", [
    b'"logprob":null,"bytes":[32]', b'"logprob":"-0.5","bytes":[32]', b'"bytes":[32]', b'"logprob":-0.5,"token":"\\ud83d"',
    b'"logprob":-0.5}],"refusal":[{"token":"x","logprob":-0.5',
])  # fmt: skip
def test_log_probabilities_that_turn_out_to_be_unlike_the_others_lose_no_other_token(odd: bytes) -> None:
    sent = [written(PROBABLE, "content", f" {number}", f"[{number}]") for number in range(12)]
    sent[6] = sent[6].replace(b'"logprob":-0.5,"bytes":[32]', odd)
    how = {"continuable": True, "raw": False, "goes_on": False, "records": True, "looks": False}
    with without_patterns():
        expected = played(sent, **how)
    assert played(sent, **how) == expected
    [(tokens, _)] = expected[-1].sampled
    assert tokens.ids is None or len(tokens.ids) == 13


def test_a_server_that_tells_much_of_each_token_fills_no_memory() -> None:
    recorder = CallRecorder(hides_logprobs=True, shows=None)
    translator = new_translator(recorder=recorder)
    translator.start()
    for data in (FIRST, *(written(PROBABLE, "content", "x", "[1]") for _ in range(5))):
        translator.feed(data)
    padded = written(PROBABLE, "content", "x", "[1]").replace(b'"bytes":[32]', b'"bytes":[32%b]' % (b",32" * 100_000))
    tracemalloc.start()
    for _ in range(20):
        translator.feed(padded)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < len(padded)
