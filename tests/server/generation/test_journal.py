"""The journal of a running response: the calls of its translator, compressed piece by piece."""

from __future__ import annotations

from itertools import count

import msgspec
import pytest

from responses_gateway.server.generation.parser_choice.choice import AnswerStart
from responses_gateway.server.generation.preparation.journal import Journal, ResponseStart, ResumedResponse, UnreadableJournal
from responses_gateway.stream.tape import Call, Tape
from responses_gateway.stream.translator import Translator
from tests.stream.stream_player import finish, options, text

BEGINNING = ResponseStart(b"{}", "req_1", {}, 5.0, AnswerStart(), b"digest")


def journalled() -> tuple[list[bytes], list[Call]]:
    """Return the pieces of a journal, one for each call, and the calls."""
    journal = Journal()
    calls: list[Call] = []
    tape = Tape(count(5.0, 0.25).__next__)
    translator = Translator(options(seal=tape.sealing("sealed: {}".format)), tape.clock)
    for listener in (journal.note, lambda call, _: calls.append(call)):
        tape.attach(translator, listener)
    pieces = []
    for make in (translator.start, lambda: translator.feed(text("Hi") + finish()), translator.finish):
        make()
        pieces.append(journal.take())
    assert journal.take() == b""
    return pieces, calls


def test_the_calls_are_read_as_they_were_made() -> None:
    pieces, calls = journalled()
    resumption = ResumedResponse("resp_1", msgspec.msgpack.encode(BEGINNING), pieces)
    assert resumption.calls == calls
    assert resumption.beginning == BEGINNING


@pytest.mark.parametrize(
    ("beginning", "pieces"),
    [
        (msgspec.msgpack.encode(msgspec.structs.replace(BEGINNING, format=1)), []),
        (msgspec.msgpack.encode(BEGINNING), [b"spoilt"]),
        (b"spoilt", []),
    ],
)
def test_one_of_another_version_or_a_damaged_one_is_refused(beginning: bytes, pieces: list[bytes]) -> None:
    with pytest.raises(UnreadableJournal):
        ResumedResponse("resp_1", beginning, pieces)


def test_a_call_of_a_later_version_is_refused() -> None:
    journal = Journal()
    journal.note(Call("fly", None, 1.0), b"")
    with pytest.raises(UnreadableJournal):
        ResumedResponse("resp_1", msgspec.msgpack.encode(BEGINNING), [journal.take()])
