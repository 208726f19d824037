"""Whatever a server sends to a client of the Messages API, in whatever pieces: the rules hold, nothing is lost, no cut of the
bytes changes anything, and nothing that broke looks whole."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from responses_gateway.conformance.messages import check_message_stream
from responses_gateway.stream.writer.messages import MessageOptions
from responses_gateway.wire.errors import server_error
from tests.foreign_streams import chat_streams, needs_them
from tests.stream.message_player import Message, message_bytes, message_substance, play_message, read_message, translator_of
from tests.stream.stream_player import DONE, Said, event, events_of, finish, short, translate
from tests.stream.test_recorded_streams import recordings, short_ones
from tests.stream.test_stream_properties import Delta, bare, chunks, odd_scripts, scripts, shown
from tests.thoroughness import examples

quick = settings(deadline=None, max_examples=examples(40))
thinking = st.sampled_from([MessageOptions(), MessageOptions(thinking="hidden"), MessageOptions(thinking="empty")])


def answered(body: list[bytes], options: MessageOptions | None = None, **fields: Any) -> Message:
    return play_message(*body, done=False, options=options, **fields)


def other_protocol(body: list[bytes], **fields: Any) -> list[Said]:
    """Return what the same body says to a client of the Responses API, in the words of blocks."""
    output = events_of(translate(body, **fields))[-1]["response"]["output"]
    said = [short(item) for item in output]
    return [
        ("text", *entry[1:2]) if entry[0] == "refusal" else entry[:3] if entry[0] == "call" else entry[:2] for entry in said
    ]


# ---- random streams ----------------------------------------------------------------------------------------------------


@quick
@given(scripts())
def test_nothing_is_lost(deltas: list[Delta]) -> None:
    message = answered([*chunks(deltas), finish(), DONE])
    expected = [("text", *said[1:]) if said[0] == "refusal" else said for said in shown(deltas)]
    assert [bare(said) for said in message.said] == expected


@quick
@given(scripts(), thinking, st.data())
def test_cutting_the_bytes_changes_nothing(deltas: list[Delta], options: MessageOptions, data: st.DataObject) -> None:
    body = b"".join([*chunks(deltas), finish(), DONE])
    whole = message_substance(message_bytes([body], options))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(body)), max_size=6)))
    parts = [body[a:b] for a, b in zip([0, *cuts], [*cuts, len(body)], strict=True)]
    assert message_substance(message_bytes(parts, options)) == whole
    assert message_substance(message_bytes([body[at : at + 1] for at in range(len(body))], options)) == whole


@quick
@given(odd_scripts(), st.sampled_from(["stop", "length", "content_filter", "error", ""]), thinking)
def test_every_ending_keeps_the_rules(deltas: list[Delta], reason: str, options: MessageOptions) -> None:
    message = answered([*chunks(deltas), *([finish(reason), DONE] if reason else [])], options)
    assert (message.reason is None) == (reason in ("error", ""))


@quick
@given(odd_scripts(), st.integers(0, 30), st.booleans())
def test_a_stream_that_breaks_anywhere_shows_what_came_and_never_stops_what_was_open(
    deltas: list[Delta], at: int, connection: bool
) -> None:
    body = chunks([(*delta[:2], "weather") if delta[0] == "call" else delta for delta in deltas])[:at]
    playing = translator_of()
    sent = playing.start() + b"".join([playing.feed(piece) for piece in body])
    sent += playing.fail(server_error("gone")) if connection else playing.finish()
    message = read_message(sent + playing.terminal(), playing)
    assert check_message_stream(message.data) == []
    assert message.ending["type"] == "error"
    before = other_protocol(body)[: len(message.blocks)]
    assert [bare(said[:3] if said[0] == "call" else said[:2]) for said in message.said] == list(map(bare, before))
    assert message.open == bool(message.blocks)  # the model may not have been done with the last one


# ---- streams of real servers -------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.untraced
def test_every_recorded_stream_says_what_it_says_to_a_client_of_the_other_protocol() -> None:
    wrong = []
    for recording in recordings():
        message = answered([recording.data], tools={})
        reason = "max_tokens" if recording.cut else message.reason
        if message.said != other_protocol([recording.data], tools={}) or message.reason != reason or reason is None:
            wrong.append(f"{recording.setting}/{recording.name}")
    assert wrong == []


def test_every_cut_of_recorded_bytes_gives_the_same_message() -> None:
    for recording in short_ones()[:3]:
        data = recording.data
        whole = message_substance(message_bytes([data]))
        assert message_substance(message_bytes([data[at : at + 1] for at in range(len(data))])) == whole
        cuts = range(1, len(data), 3)
        assert [at for at in cuts if message_substance(message_bytes([data[:at], data[at:]])) != whole] == []


def test_a_recorded_stream_that_breaks_behind_any_chunk_is_never_whole() -> None:
    for recording in short_ones():
        events = [part + b"\n\n" for part in recording.data.split(b"\n\n")[:-1]]
        ending = next(number for number, part in enumerate(events) if b'"finish_reason":"' in part)
        for at in range(ending):
            message = read_message(message_bytes(events[:at]), translator_of())
            assert check_message_stream(message.data) == []
            assert (message.ending["type"], message.open) == ("error", bool(message.blocks))


@needs_them
def test_every_foreign_stream_says_what_it_says_to_a_client_of_the_other_protocol() -> None:
    wrong = []
    for stream in chat_streams():
        body = [*map(event, stream.chunks), DONE]
        playing = translator_of(tools={})
        data = playing.start() + b"".join([playing.feed(piece) for piece in body]) + playing.finish() + playing.terminal()
        message = read_message(data, playing)
        said = [entry[: 3 if entry[0] == "call" else 2] for entry in message.said]
        if check_message_stream(data) or said != other_protocol(body, tools={}):
            wrong.append(stream.name)
    assert wrong == []


def test_the_fast_path_writes_what_the_long_way_writes() -> None:
    """Bring many usual chunks in one read, and one in each: the text is the same, and so is the thought's."""
    parts = [json.dumps({"choices": [{"index": 0, "delta": {"content": f" w{n}"}}]}).encode() for n in range(50)]
    body = [b"data: " + part + b"\n\n" for part in parts]
    one_each = message_substance(message_bytes([*body, finish(), DONE]))
    assert message_substance(message_bytes([b"".join(body), finish() + DONE])) == one_each
    assert message_substance(message_bytes([*body[:5], b"".join(body[5:]), finish(), DONE])) == one_each
