"""The SSE decoder compared with a literal implementation of the specification, for bytes split anywhere."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from responses_gateway.wire.sse import SSEDecoder, SSETooLong


def decode(*pieces: bytes) -> list[bytes]:
    decoder = SSEDecoder()
    return [payload for piece in pieces for payload in decoder.feed(piece)] + decoder.finish()


def reference(body: bytes) -> list[bytes]:
    """Line by line, as the specification words it; an event at the end needs no blank line. One without data that begins as
    JSON is a payload."""
    events: list[bytes] = []
    data: list[bytes] = []
    lines: list[bytes] = []
    for line in [*lines_of(body), b""]:
        field, _, value = line.partition(b":")
        if line:
            lines.append(line)
        else:
            bare = b"\n".join(lines).strip()
            events += [b"\n".join(data)] if data else [bare] if bare.startswith((b"{", b"[{")) else []
            data = []
            lines = []
        if field == b"data":
            data.append(value[1:] if value.startswith(b" ") else value)
    return events


def lines_of(body: bytes) -> list[bytes]:
    """Split text into lines, which end with CR LF, LF or CR."""
    lines = []
    line = b""
    at = 0
    while at < len(body):
        character = body[at : at + 1]
        at += 1
        if character not in {b"\r", b"\n"}:
            line += character
            continue
        if character == b"\r" and body[at : at + 1] == b"\n":
            at += 1
        lines.append(line)
        line = b""
    return [*lines, line]


ATOMS = [b"data: ", b"data:", b"data", b"event: x", b"id: 1", b": comment", b":", b" ", b"{}", b"[{}]", b"x", b"\xc3\xa9"]
ENDS = [b"\n", b"\r", b"\r\n", b"\n\n", b"\r\n\r\n", b"\r\r"]


@given(st.lists(st.sampled_from(ATOMS + ENDS * 2), max_size=30).map(b"".join), st.data())
def test_whatever_comes_is_read_as_the_specification_says(body: bytes, data: st.DataObject) -> None:
    expected = reference(body)
    assert decode(body) == expected
    assert decode(*(body[at : at + 1] for at in range(len(body)))) == expected
    cuts = sorted(data.draw(st.lists(st.integers(0, len(body)), max_size=4)))
    assert decode(*(body[a:b] for a, b in zip([0, *cuts], [*cuts, len(body)], strict=True))) == expected


@pytest.mark.parametrize(
    ("body", "payloads"),
    [
        (b"data: {}\n\n", [b"{}"]),
        (b"data:{}\n\ndata: [DONE]\n\n", [b"{}", b"[DONE]"]),
        (b"data: {}\r\n\r\n", [b"{}"]),
        (b"data: {}\r\n\n", [b"{}"]),
        (b"data: {}\n\r\n", [b"{}"]),
        (b"data: a\rdata: b\n\n", [b"a\nb"]),
        (b"data: {}\r\rdata: {}\r\r", [b"{}", b"{}"]),
        (b": ping\n\n: ping\n\ndata: {}\n\n", [b"{}"]),
        (b"event: message\nid: 7\nretry: 5\ndata: {}\n\n", [b"{}"]),
        (b'data: {"a":\ndata: 1}\n\n', [b'{"a":\n1}']),
        (b"data:  two spaces\n\n", [b" two spaces"]),
        (b"database: {}\n\n", []),
        (b"\n\n\n\n", []),
        (b"", []),
        (b"data: {}", [b"{}"]),
        (b'{"error": {\r\n}}', [b'{"error": {\n}}']),
        (b'data: {}\n\n[{"error": {}}]\n\n', [b"{}", b'[{"error": {}}]']),
        (b": {}\n\n[DONE]\n\n", []),
    ],
)
def test_the_shapes_that_servers_send(body: bytes, payloads: list[bytes]) -> None:
    assert decode(body) == payloads == reference(body)


def test_an_event_is_there_as_soon_as_its_blank_line_is() -> None:
    decoder = SSEDecoder()
    assert decoder.feed(b"data: {}\n") == []
    assert decoder.feed(b"\n") == [b"{}"]
    assert decoder.feed(b"data: {}\r\n\r") == []
    assert decoder.feed(b"\n") == [b"{}"]
    assert decoder.finish() == []


def test_a_byte_order_mark_before_the_first_event_is_no_part_of_it() -> None:
    body = b"\xef\xbb\xbfdata: {}\n\ndata: []\n\n"
    for ends in (b"\n", b"\r\n", b"\r"):
        assert decode(body.replace(b"\n", ends)) == [b"{}", b"[]"]
        assert decode(*(bytes([byte]) for byte in body.replace(b"\n", ends))) == [b"{}", b"[]"]


def test_an_event_may_not_grow_without_end() -> None:
    decoder = SSEDecoder(limit=10)
    assert decoder.feed(b"data: 0123456789 that is complete\n\ndata: 01") == [b"0123456789 that is complete"]
    with pytest.raises(SSETooLong, match="more than 10 bytes"):
        decoder.feed(b"234")


@pytest.mark.parametrize("nothing", [b"\n", b"\r\n", b"\r", b": comment\n\n", b"\n\n: comment\n\n"])
def test_what_has_no_data_costs_next_to_nothing(nothing: bytes) -> None:
    """A server may send a quarter of a megabyte of it at once, again and again, while other streams wait."""
    calls = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    decoder = SSEDecoder()
    sys.setprofile(count)
    try:
        payloads = decoder.feed(nothing * 10_000 + b"data: 1\n\n")
    finally:
        sys.setprofile(None)
    assert payloads == [b"1"]
    assert calls < 20
