"""What is kept of a response, and the journal of a running one: the calls of its translator, compressed piece by piece."""

from __future__ import annotations

from itertools import count

import msgspec
import pytest

from responses_gateway.server.generation.parser_choice.choice import AnswerStart
from responses_gateway.server.generation.preparation.context import History
from responses_gateway.server.generation.preparation.kept_response import (
    Beginning,
    Journal,
    KeptResponse,
    UnreadableResponse,
    read_journal,
    read_kept,
)
from responses_gateway.stream.tape import Call, Tape
from responses_gateway.stream.translator import Translator
from tests.stream.stream_player import finish, options, text

KEPT = KeptResponse(
    "resp_1", 5.0, b"{}", "a", "req_1", {}, None, History(7, "conv_1", 12), Beginning(AnswerStart(), b"digest", "checkpoint")
)


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


@pytest.mark.parametrize("kept", [KEPT, msgspec.structs.replace(KEPT, beginning=None)], ids=["runs", "waits"])
def test_what_is_kept_comes_back(kept: KeptResponse) -> None:
    assert read_kept(kept.encoded()) == kept


def test_the_calls_are_read_as_they_were_made() -> None:
    pieces, calls = journalled()
    assert read_journal(pieces) == calls


@pytest.mark.parametrize("data", [msgspec.structs.replace(KEPT, format=0).encoded(), b"spoilt", KEPT.encoded()[:-9]])
def test_one_of_another_version_or_a_damaged_one_is_refused(data: bytes) -> None:
    with pytest.raises(UnreadableResponse):
        read_kept(data)


def test_a_damaged_journal_is_refused() -> None:
    with pytest.raises(UnreadableResponse):
        read_journal([b"spoilt"])


def test_a_call_of_a_later_version_is_refused() -> None:
    journal = Journal()
    journal.note(Call("fly", None, 1.0), b"")
    with pytest.raises(UnreadableResponse):
        read_journal([journal.take()])
