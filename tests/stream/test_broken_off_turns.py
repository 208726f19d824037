"""A response of several turns, in which the gateway runs tools: each answer of the model breaks off, and another backend goes
on with it. The client gets the stream that it would have got."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from responses_gateway.conformance.checker import check_stream
from responses_gateway.simulator.chat_request import ChatRequest
from responses_gateway.simulator.scenarios import SCENARIOS
from responses_gateway.simulator.script import Say, Script, Think, call, script
from responses_gateway.simulator.tokenizer import encode
from responses_gateway.stream.continuation.join import CatchUp, Diverged, Join
from responses_gateway.stream.items.hosted import CallOutcome, HostedOptions
from responses_gateway.stream.translator import Translator
from responses_gateway.wire.deltas import Delta, Text, ToolArguments, ToolCall, ToolCallCut
from responses_gateway.wire.tools import ToolTable, ToolTarget
from tests.stream.stream_player import DONE, Play, calls_to_run, event, finish, judged, options, substance, text, wants_turn
from tests.stream.stream_player import call as stream_call
from tests.stream.test_broken_off_streams import FAMILIES, LOST, SCHEMAS, Servers, completion, continued, new_markup, reads
from tests.stream.test_hosted_calls import ALL, TOOLS, outcome_of
from tests.thoroughness import examples, one_in

OFFERED = [{"type": "function", "function": {"name": name, "parameters": schema}} for name, schema in SCHEMAS.items()]
TABLE: ToolTable = {**TOOLS, "get_weather": ToolTarget("function", "get_weather")}
# How many answers the model gives in one response.
TURNS = 4


def expedition(request: ChatRequest) -> Script:
    """Search, run code and ask in parallel, cite, and call a function of the client at the end."""
    results = len(request.tool_results)
    if not results:
        return script(
            Think("Two places to look."), call("web_search", {"text": "Flüsse 行"}), call("file_search", {"text": "notes"})
        )
    if results == 2:
        code = 'print("é 行")\nfor n in range(2):\n    n\n'
        return script(
            Say("Rivers flow 【1】. They are long 【2】【1】 and wide【9】."),
            call("python", {"code": code}),
            call("docs__ask", {"city": "Wien", "text": "【1】 is {no} mark"}),
            Say("That is\n under way 【1】 now."),
        )
    if results == 4:
        return script(Think("Ask 【1】 again."), Say("So 【1"), call("docs__ask", {"text": "x"}))
    return script(Say("It flows 【1】 down. 東京 【 1, 2 "), call("get_weather", {"city": "Paris", "text": ""}))


@pytest.fixture(autouse=True, scope="module")
def _expeditions() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(SCENARIOS, "expedition", expedition)
        yield


class Talk:
    """One response: the servers of the model, and what the client gets."""

    def __init__(self, dialect: str, size: int = 4000) -> None:
        self._servers = Servers(dialect, "expedition", OFFERED)
        self._size = size
        self.longest = 0  # how many events the longest answer has
        self.lost = False  # an answer broke off where nobody can go on with it
        self.playing = self._servers.translator(TABLE, hosted=HostedOptions(ALL, "cntr_1"))
        self.sent = self.playing.start()

    def play(self, cuts: Sequence[Sequence[float]]) -> bytes:
        """Play all turns and return the stream, up to its terminal event. `cuts` are the places where the answers of each turn
        break off: so many events, or a part of what a server would have sent."""
        playing = self.playing
        for turn in range(TURNS):
            self._play_turn(cuts[turn] if turn < len(cuts) else [])
            while calls_to_run(playing):
                made = calls_to_run(playing)[0]
                self._hear(made.name, made.arguments)
                self.sent += playing.finish_call(outcome_of(made))
            if not wants_turn(playing):
                break
            assert playing.answer.ledger is None  # while tools run, no ids are kept
            markup = self._servers.markup()
            playing.next_turn(markup, start=markup and self._servers.family)
        return self.sent

    def repeated(self) -> bytes:
        """Have another translator make the same calls; return the stream."""
        return self._servers.repeated()

    def _play_turn(self, cuts: Sequence[float]) -> None:
        body = self._servers.answer()
        self.longest = max(self.longest, body.count(b"\n\n"))
        for cut in cuts:
            self._feed(beginning_of(body, cut))
            if self.playing.nothing_received:
                body = self._servers.answer()
            elif self.playing.continuable:
                restarts = self.playing.answer.said_nothing and not self.playing.answer.partial().raw
                events, ids = continued(self.playing, self._servers.family)
                self.sent += events
                body = self._servers.answer() if restarts else self._servers.goes_on(ids)
            elif self.playing.answer.ended_by_model:
                break
            else:  # within the first chunk
                self.lost = True
                self.sent += self.playing.fail(LOST)
                return
        else:
            self._feed(body)
        self.sent += self.playing.finish()

    def _feed(self, body: bytes) -> None:
        self.sent += b"".join(map(self.playing.feed, reads(body, self._size)))

    def _hear(self, name: str, arguments: str) -> None:
        """Tell the model of a call that was run."""
        said = {"id": "c", "type": "function", "function": {"name": name, "arguments": arguments}}
        self._servers.body["messages"] += [
            {"role": "assistant", "content": None, "tool_calls": [said]},
            {"role": "tool", "tool_call_id": "c", "content": "found"},
        ]


def beginning_of(body: bytes, cut: float) -> bytes:
    if isinstance(cut, int):
        return b"".join(one + b"\n\n" for one in body.split(b"\n\n")[:-1][:cut])
    return body[: int(len(body) * cut)]


def shown(data: bytes) -> list[dict[str, Any]]:
    """Return what a stream shows, but for what differs from one server to another: the ids of calls, and what of the usage was
    thought or in a cache."""
    events = substance(data)
    for told in events:
        for item in (told.get("item", {}), *told.get("response", {}).get("output", ())):
            item.pop("call_id", None)
        usage = told.get("response", {}).get("usage") or {}
        for name in ("input_tokens_details", "output_tokens_details"):
            usage.pop(name, None)
    return events


def whole(dialect: str) -> Play:
    talk = Talk(dialect)
    return judged(talk.play(()), talk.playing)


class Shown(dict[str, list[dict[str, Any]]]):
    """What is shown, by dialect, without a long representation: hypothesis prints all arguments."""

    def __repr__(self) -> str:
        return "Shown()"


@pytest.fixture(scope="module")
def wholes(_expeditions: None) -> Shown:
    """Return what is shown by responses that never broke off."""
    return Shown({dialect: shown(whole(dialect).data) for dialect in FAMILIES})


def test_the_whole_response_has_all_that_may_break_off() -> None:
    for dialect in FAMILIES:
        played = whole(dialect)
        items = played.response["output"]
        kinds = [item["type"] for item in items]
        made = [kinds.count(kind) for kind in ("web_search_call", "file_search_call", "code_interpreter_call", "mcp_call")]
        assert (made, kinds[-1]) == ([1, 1, 1, 2], "function_call")
        first, *others = [item["content"][0] for item in items if item["type"] == "message"]
        assert first["text"] == "Rivers flow. They are long and wide【9】."
        assert len(first["annotations"]) == 3
        assert [text["text"] for text in others] == ["That is\n under way now.", "So 【1", "It flows down. 東京 【 1, 2"]
        assert "".join(played.deltas("code_interpreter_call_code")).startswith('print("é 行")')


@pytest.mark.slow
@pytest.mark.untraced  # the next test runs the same lines
@pytest.mark.parametrize("dialect", list(FAMILIES))
def test_cut_after_every_event_of_every_turn(dialect: str) -> None:
    """All turns are cut in each play, behind the same number of events."""
    undisturbed = Talk(dialect)
    whole = shown(undisturbed.play(()) + undisturbed.playing.terminal())
    assert undisturbed.longest > 20
    for place in one_in(3, range(undisturbed.longest)):
        talk = Talk(dialect, 10_000)
        data = talk.play([[place]] * TURNS) + talk.playing.terminal()
        assert shown(data) == whole, place
        assert check_stream(data) == []
        assert not talk.playing.tokens.disagrees


@pytest.mark.slow
@pytest.mark.parametrize("dialect", list(FAMILIES))
@pytest.mark.untraced
@given(
    cuts=st.lists(st.lists(st.floats(0.0, 1.0), max_size=2), min_size=1, max_size=TURNS),
    size=st.integers(20, 4000),
)
@settings(max_examples=examples(15), deadline=None)
def test_broken_off_anywhere_it_is_the_same_response(dialect: str, wholes: Shown, cuts: list[list[float]], size: int) -> None:
    talk = Talk(dialect, size)
    played = judged(talk.play(cuts), talk.playing)
    assert talk.repeated() == played.data
    assert played.response["status"] == ("failed" if talk.lost else "completed")
    if not talk.lost:
        assert shown(played.data) == wholes[dialect]


# ---- what waits behind a hosted call, which is open until it was run -----------------------------------------------------


def waiting(*pieces: bytes, **fields: Any) -> Translator:
    """Return a translator that has read these pieces, with a hosted call among them, from a backend that parses."""
    playing = Translator(options(tools=TABLE, continuable=True, hosted=HostedOptions(), **fields), lambda: 0.0)
    playing.start()
    for piece in pieces:
        playing.feed(piece)
    return playing


def made(index: int, name: str, text: str = "{}") -> bytes:
    return stream_call(index, f"call-{index}", name, text)


ASKED = [ToolCall(7, "", "docs__ask"), ToolArguments(7, "{}")]


def test_white_space_behind_a_hosted_call_comes_again() -> None:
    playing = waiting(made(0, "docs__ask"), text("\n"))
    catch_up = CatchUp(playing.lifecycle)
    assert catch_up.take([*ASKED, Text("\n"), Text(" More")]) == [Text("\n"), Text(" More")]
    assert not playing.lifecycle.pending


def test_text_behind_a_hosted_call_is_gone_on_with() -> None:
    playing = waiting(made(0, "docs__ask"), text("\n One"), text(" two "))
    catch_up = CatchUp(playing.lifecycle)
    assert catch_up.take([*ASKED, Text("\n On"), Text("e two three")]) == [Text(" three")]


def test_a_call_behind_a_hosted_call_is_gone_on_with_under_its_own_number() -> None:
    playing = waiting(made(0, "docs__ask"), made(1, "get_weather", '{"city": "Pa'))
    catch_up = CatchUp(playing.lifecycle)
    news = catch_up.take([*ASKED, ToolCall(8, "", "get_weather"), ToolArguments(8, '{"city": "Paris"}'), ToolCallCut(8)])
    assert news == [ToolArguments(1, 'ris"}'), ToolCallCut(1)]


@pytest.mark.parametrize(
    "behind",
    [
        [ToolCall(8, "", "python")],
        [ToolCall(8, "", "get_weather"), ToolArguments(8, '{"town"')],
        [ToolCall(8, "", "get_weather"), ToolCall(9, "", "get_weather")],
        [Text("One")],
    ],
)
def test_a_second_reading_that_says_something_else_behind_a_hosted_call(behind: list[Delta]) -> None:
    playing = waiting(made(0, "docs__ask"), made(1, "get_weather", '{"city": "Pa'))
    with pytest.raises(Diverged):
        CatchUp(playing.lifecycle).take([*ASKED, *behind])


@pytest.mark.parametrize(("may_call", "fields"), [(False, {}), (True, {"max_calls": 1})])
def test_a_turn_without_calls_is_read_again_without_calls(may_call: bool, fields: dict[str, Any]) -> None:
    """The limit of turns, or of calls, was reached in an earlier turn."""
    playing = waiting(made(0, "docs__ask"), finish("tool_calls"), DONE, **fields)
    playing.finish_call(CallOutcome())
    playing.next_turn(None, may_call=may_call)
    playing.feed(text("So"))
    catch_up = CatchUp(playing.lifecycle)
    assert catch_up.take([ToolCall(7, "", "docs__ask"), ToolArguments(7, "{}"), Text("So it is.")]) == [Text(" it is.")]


def test_what_is_held_when_nobody_goes_on_is_given_out() -> None:
    """A part of a mark is text after all."""
    playing = waiting(made(0, "web_search"), finish("tool_calls"), DONE)
    playing.finish_call(outcome_of(calls_to_run(playing)[0]))
    playing.next_turn(None)
    first = {"choices": [{"index": 0, "delta": {}}], "prompt_token_ids": encode("hi")}
    for piece in (event(first), text("It flows", token_ids=encode("It flows"))):
        playing.feed(piece)
    beginning = playing.answer.partial()
    catch_up = CatchUp(playing.lifecycle)
    markup = new_markup(reopens=False)
    news = catch_up.take(markup.read([Text("It flows")], beginning.ids))
    playing.resume(Join(beginning.prompt, beginning.ids, catch_up=catch_up, unseen=news), markup)
    playing.feed(completion(" 【1", [*beginning.prompt, *beginning.ids]))
    playing.fail(LOST)
    assert '"text":"It flows 【1"' in playing.response.json()
    assert playing.status == "failed"
