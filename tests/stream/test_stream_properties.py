"""Whatever a server sends, in whatever pieces: the laws hold, nothing is lost, and no cut changes the result."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from responses_gateway.conformance.checker import check_stream
from responses_gateway.stream.options import CODEX, STANDARD
from responses_gateway.wire.errors import server_error
from tests.stream.stream_player import (
    DONE,
    Said,
    chunk,
    complaints,
    event,
    events_of,
    finish,
    new_translator,
    short,
    substance,
    tool,
    translate,
)  # fmt: skip
from tests.thoroughness import examples

# A delta in short: `("text", piece)`, `("call", number)` for a beginning, `("arguments", number, piece)`.
Delta = tuple[Any, ...]

FIELDS = {"reasoning": "reasoning", "text": "content", "refusal": "refusal"}
# Order of the fields within a chunk.
RANK = {"reasoning": 0, "text": 1, "refusal": 2, "call": 3, "arguments": 3}
TERMINALS = {"response.completed", "response.incomplete", "response.failed"}

quick = settings(deadline=None, max_examples=examples(150))

pieces = st.text(st.sampled_from(' \n\t\u3000ab{}"\\\u00e9\U0001f600'), min_size=1, max_size=6)
contents = st.tuples(st.sampled_from(["reasoning", "text", "text", "refusal"]), pieces)
objects = st.dictionaries(pieces, st.none() | st.integers(0, 9) | pieces | st.lists(pieces, max_size=2), max_size=2)
argument_texts = st.just("") | st.builds(json.dumps, objects, ensure_ascii=st.booleans())


@st.composite
def scripts(draw: st.DrawFn) -> list[Delta]:
    """Deltas in an order that a server could send: content, and up to four calls that overlap as they like."""
    sources: list[list[Delta]] = [draw(st.lists(contents, max_size=12))]
    for number, arguments in enumerate(draw(st.lists(argument_texts, max_size=4))):
        sources.append([("call", number), *(("arguments", number, piece) for piece in parts(draw, arguments))])
    turns = draw(st.permutations([source for source, deltas in enumerate(sources) for _ in deltas]))
    queues = [iter(deltas) for deltas in sources]
    return numbered([next(queues[source]) for source in turns])


def parts(draw: st.DrawFn, whole: str, most: int = 4) -> list[str]:
    cuts = sorted(draw(st.lists(st.integers(0, len(whole)), max_size=most)))
    return [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True) if a < b]


def numbered(deltas: list[Delta]) -> list[Delta]:
    """Return the calls counted in the order of their beginnings, as servers do."""
    order: dict[int, int] = {}
    for delta in deltas:
        if delta[0] == "call":
            order[delta[1]] = len(order)
    return [(delta[0], order[delta[1]], *delta[2:]) if RANK[delta[0]] == 3 else delta for delta in deltas]


# ---- on the wire -------------------------------------------------------------------------------------------------------


def chunks(deltas: list[Delta], breaks: list[bool] | None = None) -> list[bytes]:
    """Return each delta in a chunk of its own; with `breaks`, as many together as they and the order in a chunk permit."""
    groups: list[list[Delta]] = []
    for number, delta in enumerate(deltas):
        joins = breaks is not None and not breaks[number % len(breaks)]
        if groups and joins and RANK[groups[-1][-1][0]] <= RANK[delta[0]]:
            groups[-1].append(delta)
        else:
            groups.append([delta])
    return [chunk_of(group) for group in groups]


def chunk_of(group: list[Delta]) -> bytes:
    fields: dict[str, Any] = {}
    for kind, *values in group:
        if kind in FIELDS:
            fields[FIELDS[kind]] = fields.get(FIELDS[kind], "") + values[0]
        elif kind == "call":
            name = values[1] if len(values) > 1 else "weather"
            fields.setdefault("tool_calls", []).append(tool(values[0], f"id{values[0]}", name))
        else:
            fields.setdefault("tool_calls", []).append({"index": values[0], "function": {"arguments": values[1]}})
    return chunk(fields)


# ---- what should come of it --------------------------------------------------------------------------------------------


def meant(deltas: list[Delta]) -> list[Said]:
    """Return the items in the order in which they begin: texts without white space around them, calls with all arguments."""
    items: list[list[Any]] = []
    calls: dict[int, list[Any]] = {}
    for kind, *values in deltas:
        if kind == "call":
            calls[values[0]] = ["call", "weather", ""]
            items.append(calls[values[0]])
        elif kind == "arguments":
            calls[values[0]][2] += values[1]
        elif items and items[-1][0] == kind:
            items[-1][1] += values[0]
        elif values[0].strip():
            items.append([kind, values[0]])
    return [bare((*item[:2], item[2] or "{}") if item[0] == "call" else tuple(item)) for item in items]


def shown(deltas: list[Delta]) -> list[Said]:
    """Return the items of an answer that ended by itself: reasoning alone is a message too, for otherwise nobody sees it."""
    items = meant(deltas)
    return [*items, ("text", items[0][1])] if [kind for kind, *_ in items] == ["reasoning"] else items


def bare(said: Said) -> Said:
    return said if said[0] == "call" else (said[0], said[1].strip(), *said[2:])


def output(data: bytes) -> list[Said]:
    return [bare(short(item)) for item in events_of(data)[-1]["response"]["output"]]


# ---- the properties ----------------------------------------------------------------------------------------------------


@pytest.mark.untraced
@quick
@given(scripts())
def test_nothing_is_lost_and_all_judges_are_content(deltas: list[Delta]) -> None:
    data = translate([*chunks(deltas), finish(), DONE])
    assert complaints(data) == []
    assert output(data) == shown(deltas)


@pytest.mark.untraced
@quick
@given(scripts(), st.lists(st.booleans(), min_size=1, max_size=7))
def test_grouping_the_deltas_does_not_change_the_items(deltas: list[Delta], breaks: list[bool]) -> None:
    data = translate([*chunks(deltas, breaks), finish(), DONE])
    assert check_stream(data) == []
    assert output(data) == shown(deltas)


@pytest.mark.untraced
@quick
@given(scripts(), st.data())
def test_cutting_the_bytes_does_not_change_a_byte(deltas: list[Delta], data: st.DataObject) -> None:
    body = b"".join([*chunks(deltas), finish(), DONE])
    whole = substance(translate([body]))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(body)), max_size=6)))
    assert substance(translate([body[a:b] for a, b in zip([0, *cuts], [*cuts, len(body)], strict=True)])) == whole
    assert substance(translate([body[at : at + 1] for at in range(len(body))])) == whole


@quick
@given(scripts(), st.sampled_from(["stop", "length", "content_filter", "error"]), st.booleans())
def test_every_ending_is_truthful(deltas: list[Delta], reason: str, codex: bool) -> None:
    client = CODEX if codex else STANDARD
    data = translate([*chunks(deltas), finish(reason), DONE], client=client)
    assert check_stream(data, unfinished_allowed=codex) == []
    told = as_text(deltas) if codex else deltas
    whole = reason == "stop"
    assert is_beginning(output(data), shown(told) if whole else meant(told), whole=whole, omits=codex)


# Arguments that are not as they should be: cut, no JSON, with something behind their end.
odd_arguments = st.sampled_from(
    ["{", '{"a":"', '{"a":1} {"b":2}', "{} ", "{}]", "hm {x} y", "null", '{"input":"a', '{"input":"a"', " {}\n{"]
)


@st.composite
def odd_scripts(draw: st.DrawFn) -> list[Delta]:
    """Return the same, with calls of two tools whose arguments may be odd."""
    sources: list[list[Delta]] = [draw(st.lists(contents, max_size=8))]
    for number, arguments in enumerate(draw(st.lists(argument_texts | odd_arguments, max_size=3))):
        beginning = ("call", number, draw(st.sampled_from(["weather", "patch"])))
        sources.append([beginning, *(("arguments", number, piece) for piece in parts(draw, arguments))])
    turns = draw(st.permutations([source for source, deltas in enumerate(sources) for _ in deltas]))
    queues = [iter(deltas) for deltas in sources]
    return numbered([next(queues[source]) for source in turns])


@pytest.mark.untraced
@quick
@given(odd_scripts(), st.sampled_from(["stop", "length", "content_filter", "error", ""]), st.booleans())
def test_nothing_depends_on_how_a_text_is_cut(deltas: list[Delta], reason: str, codex: bool) -> None:
    """Compare the whole output, white space included: with pieces as they come, and character by character."""
    client = CODEX if codex else STANDARD
    end = [finish(reason), DONE] if reason else []
    as_they_come = translate([*chunks(deltas), *end], client=client)
    by_character = translate([*chunks(list(split(deltas))), *end], client=client)
    assert complaints(as_they_come, client) == []
    assert events_of(as_they_come)[-1] | {"sequence_number": 0} == events_of(by_character)[-1] | {"sequence_number": 0}


def split(deltas: list[Delta]) -> Iterator[Delta]:
    for delta in deltas:
        if delta[0] == "call":
            yield delta
        else:
            yield from ((*delta[:-1], character) for character in delta[-1])


TOKENS = {"text": ["a", " b", ".\n", "\n\n", "  ", "\u4f60"], "reasoning": ["x", "\n"], "marker": ["</think>", ""]}
tokens = st.sampled_from([(kind, token) for kind, some in TOKENS.items() for token in some])


@quick
@given(st.lists(tokens, max_size=12), st.integers(2, 7))
def test_log_probabilities_do_not_depend_on_how_many_tokens_come_at_once(said: list[tuple[str, str]], interval: int) -> None:
    def logprobs_of(groups: list[list[tuple[str, str]]]) -> list[tuple[str, list[str]]]:
        data = translate([*map(scored, groups), finish(), DONE], logprobs=True)
        parts = [item["content"][0] for item in events_of(data)[-1]["response"]["output"] if item["type"] == "message"]
        return [(part["text"], [entry["token"] for entry in part["logprobs"]]) for part in parts]

    said = [*said, ("text", "end")]  # reasoning alone is repeated as a message, which has no log probabilities
    ordered = sorted(said, key=lambda token: ["reasoning", "marker", "text"].index(token[0]))
    one_by_one = logprobs_of([[token] for token in ordered])
    assert logprobs_of([ordered[at : at + interval] for at in range(0, len(ordered), interval)]) == one_by_one
    assert ["".join(tokens).lstrip("\n") for _, tokens in one_by_one] == [text.lstrip("\n") for text, _ in one_by_one]


def scored(group: list[tuple[str, str]]) -> bytes:
    """Return a chunk of several tokens, as vLLM sends it."""
    fields = {"reasoning": "reasoning", "text": "content"}
    delta: dict[str, str] = {}
    for kind, token in group:
        if kind in fields:
            delta[fields[kind]] = delta.get(fields[kind], "") + token
    entries = [{"token": token, "logprob": -0.5, "bytes": list(token.encode())} for _, token in group]
    return chunk(delta, logprobs={"content": entries})


def as_text(deltas: list[Delta]) -> list[Delta]:
    """Codex is told a refusal as text."""
    return [("text", *delta[1:]) if delta[0] == "refusal" else delta for delta in deltas]


FAULTS: dict[str, Callable[[bytes, int], list[bytes]]] = {
    "cut": lambda body, at: [body[:at]],
    "garbage": lambda body, at: [body[:at], b"\n\ndata: {garbage\n\n", body[at:]],
    "error": lambda body, at: [body[:at], b"\n\n" + event({"error": {"message": "gone", "code": 500}}), body[at:]],
    "zeros": lambda body, at: [body[:at], b"\x00" * 9, body[at:]],
}


@quick
@given(scripts(), st.sampled_from(sorted(FAULTS)), st.data())
def test_whatever_breaks_there_is_one_end_and_no_lie(deltas: list[Delta], fault: str, data: st.DataObject) -> None:
    body = b"".join([*chunks(deltas), finish(), DONE])
    at = data.draw(st.integers(0, len(body)))
    out = translate(FAULTS[fault](body, at))
    assert check_stream(out) == []
    assert [entry["type"] in TERMINALS for entry in events_of(out)].count(True) == 1
    if fault != "zeros":  # zeros within a string of an event may be taken for a part of it
        assert is_beginning(output(out), shown(deltas), whole=False)


@quick
@given(scripts(), st.lists(st.integers(0, 40), max_size=4), st.integers(0, 60))
def test_keep_alives_and_a_broken_connection_at_any_time(deltas: list[Delta], beats: list[int], end: int) -> None:
    playing = new_translator()
    out = [playing.start()]
    for number, piece in enumerate([*chunks(deltas), finish()]):
        out += [playing.keep_alive() for at in beats if at == number]
        if number == end:
            out.append(playing.fail(server_error("lost")))
        out.append(playing.feed(piece))
    out += [playing.finish(), playing.keep_alive(), playing.fail(server_error("late"))]
    stream = b"".join([*out, playing.terminal()])
    assert check_stream(stream) == []
    assert playing.status == ("failed" if end <= len(chunks(deltas)) else "completed")
    whole = playing.status == "completed"
    assert is_beginning(output(stream), shown(deltas) if whole else meant(deltas), whole=whole)


def is_beginning(said: list[Said], whole_output: list[Said], *, whole: bool, omits: bool = False) -> bool:
    """Tell whether the items are as meant, in order. Calls, and the last item, may be cut if they say so, or be incomplete out
    of caution; a client that `omits` gets no such calls."""
    if whole:
        return said == whole_output
    intended = iter(whole_output)
    for number, item in enumerate(said):
        for other in intended:
            if fits(item, other, number == len(said) - 1):
                break
            if not (omits and other[0] == "call"):
                return False
        else:
            return False
    return True


def fits(item: Said, intended: Said, last: bool) -> bool:
    if item[-1] != "incomplete":
        return item == intended
    *head, text = item[:-1]
    beginning = str(intended[-1]).startswith(text) or not text.strip()
    return (last or item[0] == "call") and head == list(intended[:-1]) and beginning
