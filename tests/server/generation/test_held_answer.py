"""An answer that is held back until it was judged, fed byte by byte."""

from __future__ import annotations

import pytest

from responses_gateway.server.features.moderation.guard import Judgement, read_judgement
from responses_gateway.server.features.moderation.held_answer import LONGEST_SENTENCE, MOST_JUDGED, HeldAnswer, HeldEnd
from responses_gateway.stream.reading.reader import Reader
from responses_gateway.wire.chat import decode_chunk
from responses_gateway.wire.sse import SSEDecoder
from tests.server.scripted_backend import call, chat_stream, chunk, text_stream

WHOLE = b"".join(chat_stream())
SAID = 'Let me think. Grüße from here.\nget_weather {"city": "Paris"}'


def said(passed: bytes) -> str:
    """Return what a client could learn of bytes that were passed on."""
    decoder = SSEDecoder()
    reader = Reader()
    payloads = [payload for payload in decoder.feed(passed) + decoder.finish() if payload != b"[DONE]"]
    deltas = [delta for payload in payloads for delta in reader.read(decode_chunk(payload))] + reader.finish()
    return "".join(getattr(delta, "text", "") for delta in deltas)


@pytest.mark.slow
@pytest.mark.parametrize("line_end", [b"\n", b"\r\n"])
def test_cut_at_any_byte_nothing_passes_that_was_not_judged_and_all_that_was(line_end: bytes) -> None:
    whole = WHOLE.replace(b"\n", line_end)
    for cut in range(1, len(whole)):
        held = HeldAnswer({})
        passed = b""
        judged = ""
        for piece in (whole[:cut], whole[cut:]):
            held.feed(piece)
            passed += held.take()
            assert judged.replace("\nget_weather ", "").startswith(said(passed))
            while (length := held.due()) is not None:
                judged = held.text[:length]
                held.judged(length)
                passed += held.take()
                assert judged.replace("\nget_weather ", "").startswith(said(passed))
        held.end()
        assert held.due() is None
        assert (passed + held.take(), held.text, held.size) == (whole, SAID, 0)


def test_a_call_is_judged_as_a_whole_before_any_of_it_passes() -> None:
    held = HeldAnswer({})
    held.feed(chunk({"content": "I look. "}) + chunk(call('{"a": 1. ', id="c", type="function")))
    assert held.due() is None  # it came with the call
    held.feed(chunk(call('"}')))
    assert (held.due(), held.take()) == (None, b"")
    held.feed(chunk({}, "tool_calls"))
    assert held.due() == len(held.text)
    held.judged(len(held.text))
    assert held.take()


def test_a_long_text_without_a_sentence_is_judged_and_so_is_a_sentence_in_any_language() -> None:
    for text in ("a" * LONGEST_SENTENCE, "Ja. Nein", "はい。いいえ", "line\n"):
        held = HeldAnswer({})
        held.feed(chunk({"content": text}))
        assert held.due() == len(text)
        assert held.take() == b""
    held = HeldAnswer({})
    held.feed(chunk({"content": "not yet"}))
    assert (held.due(), held.due(now=True), held.waits) == (None, 7, True)


def test_a_stream_without_its_last_blank_line_and_text_behind_the_end_are_judged() -> None:
    held = HeldAnswer({})
    held.feed(b"".join(text_stream("One."))[:-2])
    held.end()
    assert held.due() == 4
    held.judged(4)
    assert held.take()
    late = HeldAnswer({})
    late.feed(chunk({"content": "One."}, "stop"))
    late.judged(4)
    assert late.take()
    late.feed(chunk({"content": "Two."}))
    assert (late.due(), late.take()) == (8, b"")


def test_where_nothing_is_kept_from_the_client_only_the_end_waits() -> None:
    held = HeldEnd({})
    pieces = text_stream("One. ", "Two. ")
    held.feed(pieces[0] + pieces[1])
    assert (held.due(), held.take()) == (None, pieces[0] + pieces[1])
    held.feed(pieces[2])
    assert (held.due(), held.take()) == (10, b"")
    held.judged(10)
    assert held.take() == pieces[2]


@pytest.mark.parametrize(
    ("answer", "judgement"),
    [
        ("safe", Judgement(False)),
        ("\n\nsafe\n", Judgement(False)),
        ("unsafe\nS1,S10", Judgement(True, ("S1", "S10"))),
        ("<think>safe</think>\nUnsafe\nS2, Own words \nmore", Judgement(True, ("S2", "Own words"))),
        ("unsafe", Judgement(True)),
        ("", None),
        ("I cannot say whether this is safe", None),
        ("safe\nunsafe", None),
    ],
)
def test_the_words_of_a_guard(answer: str, judgement: Judgement | None) -> None:
    assert read_judgement(answer) == judgement


def test_a_long_text_passes_in_parts_though_it_came_at_once() -> None:
    held = HeldAnswer({})
    whole = b"".join(text_stream(*["go on " * 100] * 100))
    held.feed(whole)
    passed = b""
    shares: list[int] = []
    while (length := held.due()) is not None:
        held.judged(length)
        taken = held.take()
        shares.append(len(taken))
        passed += taken
    assert passed == whole
    assert len(shares) == -(-60_000 // MOST_JUDGED)
    assert all(shares)
