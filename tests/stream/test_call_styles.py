"""Calls in all the ways in which servers send them, mixed and cut anywhere: what comes out as completed was meant so."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from responses_gateway.stream.validity.call_rules import CallRules
from responses_gateway.wire.tools import ToolTable, ToolTarget
from tests.stream.stream_player import DONE, chunk, complaints, events_of, finish, translate
from tests.thoroughness import examples

NAMES = ("get", "get_weather", "get_time", "clock")
TOOLS: ToolTable = {name: ToolTarget("function", name) for name in NAMES}
# Each of them requires an argument.
DECLARED = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object", "required": ["q"]}}} for name in NAMES
]
PLACEHOLDERS = ("{}", '""', "null")

quick = settings(deadline=None, max_examples=examples(400), derandomize=True)

Entry = dict[str, Any]


class Call(NamedTuple):
    """A call that the model makes."""

    name: str
    arguments: str


values = st.sampled_from(["Paris", "a}b{", '"', "{}", "", 1, None, {"a": {}}, [{}]])
objects = st.dictionaries(st.sampled_from(["q", "zip"]), values, max_size=2)
calls = st.builds(Call, st.sampled_from(NAMES), objects.map(json.dumps))
some_calls = st.lists(calls, min_size=1, max_size=4)


def pieces(draw: st.DrawFn, whole: str) -> list[str]:
    cuts = sorted(draw(st.lists(st.integers(1, max(1, len(whole) - 1)), max_size=3, unique=True)))
    return [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True) if a < b]


def entry(index: int | None, call_id: str | None, name: str | None = None, arguments: Any = None) -> Entry:
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    told = {key: value for key, value in (("index", index), ("id", call_id)) if value is not None}
    return {**told, "function": function}


# ---- the styles: each returns the entries of one call, in their order --------------------------------------------------------

Style = Callable[[st.DrawFn, int, Call], list[Entry]]


def by_index(draw: st.DrawFn, at: int, call: Call) -> list[Entry]:
    """The usual style: the id with the name, then only the index; with a new id for each piece at some servers."""
    first = draw(st.sampled_from(["", None, *PLACEHOLDERS]))
    new_ids = draw(st.booleans())
    begin = entry(at, draw(st.sampled_from([f"c{at}", ""])), call.name, first)
    return [begin, *(entry(at, f"p{at}{n}" if new_ids else None, None, p) for n, p in enumerate(pieces(draw, call.arguments)))]


def by_id(draw: st.DrawFn, at: int, call: Call, index: int | None = None) -> list[Entry]:
    """No index: the id comes with each piece."""
    begin = entry(index, f"c{at}", call.name, draw(st.sampled_from(["", None, *PLACEHOLDERS])))
    return [begin, *(entry(index, f"c{at}", None, piece) for piece in pieces(draw, call.arguments))]


def by_id_at_one_index(draw: st.DrawFn, at: int, call: Call) -> list[Entry]:
    """The same index for all calls: it tells nothing."""
    return by_id(draw, at, call, 0)


def by_id_elsewhere(draw: st.DrawFn, at: int, call: Call) -> list[Entry]:
    """The id comes with each piece, and another index with the pieces than with the name."""
    begin = entry(at, f"c{at}", call.name, draw(st.sampled_from(["", None, *PLACEHOLDERS])))
    return [begin, *(entry(draw(st.integers(0, 9)), f"c{at}", None, piece) for piece in pieces(draw, call.arguments))]


def in_one_piece(draw: st.DrawFn, at: int, call: Call) -> list[Entry]:
    """The whole call in one entry, its arguments as a text or as an object."""
    index = draw(st.sampled_from([None, at, 0]))
    return [entry(index, f"c{at}", call.name, draw(st.sampled_from([call.arguments, json.loads(call.arguments)])))]


def with_names(draw: st.DrawFn, at: int, call: Call) -> list[Entry]:
    """Index, name and id come with each piece."""
    first = draw(st.sampled_from(["", None, *PLACEHOLDERS]))
    call_id = draw(st.sampled_from([f"c{at}", None]))
    return [entry(at, call_id, call.name, piece) for piece in (first, *pieces(draw, call.arguments))]


def name_in_pieces(draw: st.DrawFn, at: int, call: Call) -> list[Entry]:
    """The name comes in two pieces, the first of which may be another tool's."""
    cut = draw(st.integers(1, len(call.name) - 1))
    names = [entry(at, f"c{at}", call.name[:cut]), entry(at, None, call.name[cut:])]
    return [*names, *(entry(at, None, None, piece) for piece in pieces(draw, call.arguments))]


DECIDED = (by_index, by_id, by_id_at_one_index, by_id_elsewhere, in_one_piece, with_names, name_in_pieces)


def one_after_the_other(draw: st.DrawFn, at: int, call: Call) -> list[Entry]:
    """Neither index nor id."""
    return [entry(None, None, call.name, ""), *(entry(None, None, None, piece) for piece in pieces(draw, call.arguments))]


def with_new_ids(draw: st.DrawFn, at: int, call: Call) -> list[Entry]:
    """One index for all calls; the name, and a new id, with each piece."""
    first = draw(st.sampled_from(["", None, '""', "null"]))  # `{}` with an id of its own is a call
    return [entry(0, f"c{at}{n}", call.name, piece) for n, piece in enumerate((first, *pieces(draw, call.arguments)))]


def with_one_id(draw: st.DrawFn, at: int, call: Call) -> list[Entry]:
    """The name of the function is the id."""
    first = draw(st.sampled_from(["", None]))
    return [entry(at, call.name, call.name, first), *(entry(at, call.name, None, p) for p in pieces(draw, call.arguments))]


def with_index_of_tool(draw: st.DrawFn, at: int, call: Call) -> list[Entry]:
    """The name comes at the index of its tool, the arguments at the first one."""
    begin = entry(1 + NAMES.index(call.name), draw(st.sampled_from([f"c{at}", None])), call.name, "")
    return [begin, *(entry(0, None, None, piece) for piece in pieces(draw, call.arguments))]


def with_id_and_index_of_all(draw: st.DrawFn, at: int, call: Call) -> list[Entry]:
    """All calls have the same id and the same index."""
    first = draw(st.sampled_from(["", None]))
    return [entry(0, "c", call.name, first), *(entry(0, "c", None, piece) for piece in pieces(draw, call.arguments))]


def with_wrong_index(draw: st.DrawFn, at: int, call: Call, shift: int, call_id: str | None = None) -> list[Entry]:
    """The arguments come at another index than the name, which may be another call's."""
    # Where all have one id, `{}` behind a name may belong to the call before.
    begin = entry(20 + at, call_id, call.name, draw(st.sampled_from(["", None, *([] if call_id else ["{}"])])))
    return [begin, *(entry(20 + at + shift, call_id, None, piece) for piece in pieces(draw, call.arguments))]


def with_placeholder_of_its_own(at: int, call: Call, index: int | None) -> list[Entry]:
    """`{}` comes with one id, the arguments with the name and another."""
    return [entry(index, f"c{at}", call.name, "{}"), entry(index, f"d{at}", call.name, call.arguments)]


def telling_nothing(draw: st.DrawFn, at: int, call: Call) -> list[Entry]:
    """Anything may be missing, repeated or wrong."""
    indices = st.sampled_from([None, None, at, at, at, 0, 1])
    ids = st.sampled_from([None, None, f"c{at}", f"c{at}", "c0", "x"])
    entries = [entry(draw(indices), draw(ids), call.name, draw(st.sampled_from(["", None, *PLACEHOLDERS])))]
    for piece in pieces(draw, call.arguments):
        name = draw(st.sampled_from([None, None, None, call.name]))
        entries.append(entry(draw(indices), draw(ids), name, piece))
    return entries


AMBIGUOUS = (one_after_the_other, with_new_ids, with_one_id, with_index_of_tool, with_id_and_index_of_all)


# ---- the whole answer --------------------------------------------------------------------------------------------------------


def mixed(draw: st.DrawFn, queues: list[list[Entry]], *, overlap: bool) -> list[Entry]:
    """Return the entries of all calls: one call after the other, or such that they begin in order and overlap."""
    if not overlap:
        return [each for queue in queues for each in queue]
    out: list[Entry] = []
    begun: list[list[Entry]] = []
    rest = [list(queue) for queue in queues]
    while rest or any(begun):
        open_queues = [queue for queue in begun if queue]
        if rest and (not open_queues or draw(st.booleans())):
            begun.append(rest.pop(0))
            open_queues = [begun[-1]]
        out.append(draw(st.sampled_from(open_queues)).pop(0))
    return out


def chunked(draw: st.DrawFn, entries: list[Entry]) -> Iterator[bytes]:
    """Return the entries in chunks, of which some have several."""
    while entries:
        size = draw(st.sampled_from([1, 1, 1, 2, 3]))
        yield chunk({"tool_calls": entries[:size]})
        entries = entries[size:]


def played(body: list[bytes], **options: Any) -> tuple[str, list[Call]]:
    """Return how the response ended, and the calls that are completed."""
    data = translate([*body, finish("tool_calls"), DONE], tools=TOOLS, **options)
    assert complaints(data) == []
    response = events_of(data)[-1]["response"]
    made = [item for item in response["output"] if item["type"] == "function_call" and item["status"] == "completed"]
    return response["status"], [Call(item["name"], item["arguments"]) for item in made]


def meant(made: list[Call]) -> list[tuple[str, Any]]:
    return [(call.name, value_of(call.arguments)) for call in made]


def value_of(arguments: str) -> Any:
    try:
        return json.loads(arguments)
    except ValueError:
        return arguments


def are_among(some: list[Any], all_of_them: list[Any]) -> bool:
    rest = list(all_of_them)
    for each in some:
        if each not in rest:
            return False
        rest.remove(each)
    return True


@pytest.mark.untraced
@pytest.mark.parametrize("style", DECIDED)
@quick
@given(some_calls, st.booleans(), st.data())
def test_calls_that_can_be_told_apart_come_out_as_they_were_meant(
    style: Style, made: list[Call], overlap: bool, data: st.DataObject
) -> None:
    queues = [style(data.draw, at, call) for at, call in enumerate(made)]
    body = list(chunked(data.draw, mixed(data.draw, queues, overlap=overlap)))
    status, completed = played(body)
    assert (status, meant(completed)) == ("completed", meant(made))


@pytest.mark.untraced
@pytest.mark.parametrize("style", AMBIGUOUS)
@quick
@given(some_calls, st.data())
def test_no_call_is_completed_that_was_not_meant(style: Style, made: list[Call], data: st.DataObject) -> None:
    queues = [style(data.draw, at, call) for at, call in enumerate(made)]
    status, completed = played(list(chunked(data.draw, mixed(data.draw, queues, overlap=False))))
    assert are_among(meant(completed), meant(made))
    if status == "completed" and style is one_after_the_other:
        assert len(completed) == len(made)


@quick
@given(some_calls, st.data())
def test_nor_is_one_if_calls_without_index_and_id_overlap(made: list[Call], data: st.DataObject) -> None:
    queues = [one_after_the_other(data.draw, at, call) for at, call in enumerate(made)]
    _, completed = played([chunk({"tool_calls": [each]}) for each in mixed(data.draw, queues, overlap=True)])
    assert are_among(meant(completed), meant(made))


several_calls = st.lists(calls, min_size=2, max_size=4)
# Because the same name once more, with the same id and index, is the same call.
calls_of_several_tools = st.lists(calls, min_size=2, max_size=4, unique_by=lambda call: call.name)


def behind_their_names(queues: list[list[Entry]]) -> list[Entry]:
    """Return the names of all calls, then their arguments in the same order."""
    return [queue[0] for queue in queues] + [each for queue in queues for each in queue[1:]]


@pytest.mark.untraced
@quick
@given(calls_of_several_tools, st.data())
def test_nor_is_one_if_the_names_come_first_and_all_have_one_id_and_index(made: list[Call], data: st.DataObject) -> None:
    queues = [with_id_and_index_of_all(data.draw, at, call) for at, call in enumerate(made)]
    _, completed = played(list(chunked(data.draw, behind_their_names(queues))))
    assert are_among(meant(completed), meant(made))


@pytest.mark.untraced
@pytest.mark.parametrize("call_id", [None, "c"])
@quick
@given(several_calls, st.sampled_from([-1, 1, 2, 9]), st.data())
def test_nor_is_one_if_the_names_come_first_and_the_arguments_at_wrong_indices(
    call_id: str | None, made: list[Call], shift: int, data: st.DataObject
) -> None:
    queues = [with_wrong_index(data.draw, at, call, shift, call_id) for at, call in enumerate(made)]
    _, completed = played([chunk({"tool_calls": [each]}) for each in behind_their_names(queues)])
    assert are_among(meant(completed), meant(made))


@pytest.mark.untraced
@pytest.mark.parametrize("index", [0, None])
@quick
@given(some_calls, st.data())
def test_a_placeholder_with_an_id_of_its_own_is_no_call_of_a_tool_that_requires_arguments(
    index: int | None, made: list[Call], data: st.DataObject
) -> None:
    made = [call for call in made if call.arguments != "{}"]
    queues = [with_placeholder_of_its_own(at, call, index) for at, call in enumerate(made)]
    body = list(chunked(data.draw, mixed(data.draw, queues, overlap=False)))
    status, completed = played(body, calls=CallRules(DECLARED, repairs=False, drops_nulls=False))
    assert (status, meant(completed)) == ("completed", meant(made))


@quick
@given(some_calls, st.booleans(), st.data())
def test_whatever_is_told_the_stream_keeps_the_rules(made: list[Call], overlap: bool, data: st.DataObject) -> None:
    queues = [telling_nothing(data.draw, at, call) for at, call in enumerate(made)]
    status, _ = played(list(chunked(data.draw, mixed(data.draw, queues, overlap=overlap))))
    assert status in ("completed", "incomplete")
