"""An answer breaks off at any byte, and another backend goes on with it: the client gets the stream that it would have got."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from itertools import count
from typing import Any, NoReturn

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from responses_gateway import parsers
from responses_gateway.server.generation.upstream.continuation import CannotContinue, CutPoint, cut_of_parsed, cut_of_raw
from responses_gateway.simulator import DIALECTS, SimulatorOptions, create_app
from responses_gateway.simulator.answer import completion_plan, plan_answer
from responses_gateway.simulator.frames import Frames, build_frames
from responses_gateway.simulator.text_completions import completion_frames
from responses_gateway.simulator.tokenizer import decode, encode
from responses_gateway.stream.continuation import ledger
from responses_gateway.stream.continuation.join import CatchUp, Diverged, Join, JoinPoint, join_at
from responses_gateway.stream.continuation.ledger import PartialAnswer
from responses_gateway.stream.options import StreamOptions
from responses_gateway.stream.reading.markup import Markup
from responses_gateway.stream.tape import Call, Tape
from responses_gateway.stream.translator import Translator
from responses_gateway.wire.deltas import Reasoning, Text, ToolArguments, ToolCall
from responses_gateway.wire.errors import server_error
from responses_gateway.wire.tools import ToolTable, ToolTarget
from tests.stream.stream_player import DONE, Play, chunk, event, finish, judged, options, play, text, usage
from tests.thoroughness import examples

SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "text": {"type": "string"}},
    "required": ["city", "text"],
}
WEATHER = {"type": "function", "function": {"name": "get_weather", "parameters": SCHEMA}}
TOOLS: ToolTable = {"get_weather": ToolTarget("function", "get_weather")}
FAMILIES = {"vllm": "hermes", "vllm-interval": "hermes", "vllm-raw": "hermes", "vllm-raw-xml": "qwen3_coder"}
LOST = server_error("The connection to the backend broke in the middle of the answer.")


# Of all tools that are called here.
SCHEMAS = dict.fromkeys(("get_weather", "docs__ask", "web_search", "file_search"), SCHEMA)
SCHEMAS["python"] = {"type": "object", "properties": {"code": {"type": "string"}}, "required": ["code"]}


def new_markup(tools: str = "hermes", *, reopens: bool = True) -> Markup:
    new_parser = partial(parsers.parser, "qwen3", tools, schemas=SCHEMAS, reopens=reopens)
    return Markup(new_parser, thinking_open=False)


def bytes_of(frames: Frames) -> bytes:
    return frames.bytes_of(0, len(frames.frames))


class Servers:
    """Servers of one model: what one sends for a request, and what another sends that goes on with it."""

    def __init__(self, dialect: str, scenario: str, tools: Sequence[dict[str, Any]] = (WEATHER,)) -> None:
        self._app = create_app(SimulatorOptions(dialect=DIALECTS[dialect]))
        self._raw = dialect.startswith("vllm-raw")
        self.family = FAMILIES[dialect]
        self.body: dict[str, Any] = {
            "model": "simulator",
            "messages": [{"role": "user", "content": f"scenario: {scenario}"}],
            "tools": list(tools),
            "tool_choice": "none" if self._raw else "auto",
            "stream": True,
            "stream_options": {"include_usage": True},
            "return_token_ids": True,
        }
        self._calls: list[Call] = []

    def answer(self) -> bytes:
        plan = plan_answer(self.body, {}, self._app)
        return bytes_of(build_frames(plan.rendered, plan.stream, plan.faults))

    def goes_on(self, ids: Sequence[int]) -> bytes:
        body = {**self.body, "prompt": list(ids), "skip_special_tokens": self._raw}
        prompt, tokens = completion_plan(body, ids, self._app)
        return bytes_of(completion_frames(body, prompt, tokens, cut=False, cached=0))

    def markup(self) -> Markup | None:
        """Return what reads an answer of the first server."""
        return new_markup(self.family) if self._raw else None

    def translator(self, tools: ToolTable = TOOLS, **fields: Any) -> Translator:
        """Return a translator whose calls are noted."""
        self._options = partial(self._new_options, tools, fields)
        tape = Tape(count(1_800_000_000, 1e-06).__next__)
        translator = Translator(self._options(), tape.clock)
        self._created = translator.created
        tape.attach(translator, lambda call, _: self._calls.append(call))
        return translator

    def _new_options(self, tools: ToolTable, fields: dict[str, Any]) -> StreamOptions:
        return options(tools=tools, continuable=True, markup=self.markup(), **fields)

    def repeated(self) -> bytes:
        """Have another translator make the calls of the last one; return the stream."""
        tape = Tape(lambda: 0.0, self._created)
        translator = Translator(self._options(), tape.clock)
        return b"".join(tape.play(translator, self._calls, new_markup)) + translator.terminal()


async def decoded(ids: Sequence[int]) -> str:
    return decode(ids)


def continued(translator: Translator, family: str) -> tuple[bytes, list[int]]:
    """Have the translator be ready for a continuation; return its events, and the ids to go on with."""
    beginning = translator.answer.partial()
    if translator.answer.said_nothing and not beginning.raw:
        return translator.restart(None), list(beginning.prompt)
    if beginning.raw:
        cut = asyncio.run(cut_of_raw(beginning, decoded, holds_text=False))
        ids = beginning.ids[: cut.kept]
        return translator.resume(Join(beginning.prompt, ids, overlap=cut.overlap), None), [*beginning.prompt, *ids]
    count, said = asyncio.run(cut_of_parsed(beginning, decoded, 0))
    ids = beginning.ids[:count]
    markup = new_markup(family)
    join = join_at(JoinPoint(count, text=said, start=family), beginning, translator.lifecycle, markup)
    return translator.resume(join, markup), [*beginning.prompt, *ids]


def reads(data: bytes, size: int) -> Iterator[bytes]:
    return (data[at : at + size] for at in range(0, len(data), size))


def play_cut(servers: Servers, cuts: list[float], size: int) -> Play:
    """Play an answer that breaks off at these places, each a part of what its server would have sent."""
    translator = servers.translator()
    sent = translator.start()
    body = servers.answer()
    for cut in cuts:
        sent += b"".join(map(translator.feed, reads(body[: int(len(body) * cut)], size)))
        if not translator.continuable:  # the model has ended, or has not begun
            sent += translator.fail(LOST)
            return judged(sent, translator)
        restarts = translator.answer.said_nothing and not translator.answer.partial().raw
        events, ids = continued(translator, servers.family)
        sent += events
        body = servers.answer() if restarts else servers.goes_on(ids)
    sent += b"".join(map(translator.feed, reads(body, size))) + translator.finish()
    return judged(sent, translator)


def shown(play: Play) -> list[dict[str, Any]]:
    items = play.response["output"]
    return [{name: value for name, value in item.items() if name not in ("id", "call_id")} for item in items]


@pytest.mark.parametrize("dialect", list(FAMILIES))
@given(
    scenario=st.sampled_from(["demo", "unicode", "parallel", "plain"]),
    cuts=st.lists(st.floats(0.05, 0.9), min_size=1, max_size=3),
    size=st.integers(20, 4000),
)
@settings(max_examples=examples(30), deadline=None)
def test_broken_off_anywhere_it_is_the_same_stream(dialect: str, scenario: str, cuts: list[float], size: int) -> None:
    servers = Servers(dialect, scenario)
    whole = play_cut(servers, [], 4000)
    broken = Servers(dialect, scenario)
    cut = play_cut(broken, cuts, size)
    assert broken.repeated() == cut.data
    if cut.response["status"] == "failed":  # before the first token
        assert not cut.response["output"]
        return
    assert shown(cut) == shown(whole)
    assert [event for event in cut.kinds if not event.endswith("delta")] == [
        event for event in whole.kinds if not event.endswith("delta")
    ]
    assert cut.response["usage"]["input_tokens"] == whole.response["usage"]["input_tokens"]
    assert cut.response["usage"]["output_tokens"] == whole.response["usage"]["output_tokens"]


# ---- what is not certain ends the response -----------------------------------------------------------------------------


def begun(*pieces: bytes, prompt: str | list[Any] = "hi", **fields: Any) -> Translator:
    """Return a translator that has read these pieces behind a prompt."""
    translator = Translator(options(tools=TOOLS, **{"continuable": True, **fields}), lambda: 0.0)
    translator.start()
    ids = encode(prompt) if isinstance(prompt, str) else prompt
    first = {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}], "prompt_token_ids": ids}
    for piece in (event(first), *pieces):
        translator.feed(piece)
    return translator


def token(content: str) -> bytes:
    return text(content, token_ids=encode(content))


def completion(content: str, asked: Sequence[int] | None = None, **fields: Any) -> bytes:
    """Return a chunk of a text completion; the first one has the ids of its prompt."""
    choice = {"index": 0, "text": content, "prompt_token_ids": asked, "token_ids": encode(content), "finish_reason": None}
    return event({"object": "text_completion", "choices": [choice | fields]})


def resumed(translator: Translator, kept: int, overlap: str = "") -> list[int]:
    beginning = translator.answer.partial()
    translator.resume(Join(beginning.prompt, beginning.ids[:kept], overlap=overlap), None)
    return [*beginning.prompt, *beginning.ids[:kept]]


def test_a_continuation_of_another_prompt_is_not_used() -> None:
    translator = begun(token("One"), markup=new_markup())
    resumed(translator, 1)
    assert b"Two" not in translator.feed(completion("Two", [1, 2, 3]))
    assert (translator.status, translator.answer.diverged) == ("failed", "other_prompt")


@pytest.mark.parametrize("prompt", [[[]], ["1"], [2**70]])
def test_a_prompt_that_is_not_one_of_ids_is_none(prompt: list[Any]) -> None:
    translator = begun(token("One"), prompt=prompt)
    assert not translator.answer.continuable
    translator.fail(LOST)
    assert (translator.status, translator.defect) == ("failed", None)
    continued = begun(token("One"), markup=new_markup())
    resumed(continued, 1)
    continued.feed(completion("Two", prompt))
    assert (continued.answer.diverged, continued.defect) == ("other_prompt", None)


def test_the_ids_of_a_prompt_are_not_read_where_nothing_broke(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(_raw: bytes) -> NoReturn:
        raise AssertionError

    monkeypatch.setattr(ledger, "ids_in", read)
    translator = begun(token("One"))
    translator.feed(finish() + usage(prompt_tokens=1, completion_tokens=1, total_tokens=2) + DONE)
    translator.finish()
    assert (translator.status, translator.defect) == ("completed", None)


def test_one_that_does_not_tell_its_prompt_is_not_used_either() -> None:
    translator = begun(token("One"), markup=new_markup())
    resumed(translator, 1)
    translator.feed(text("Two", token_ids=[5]))
    assert (translator.status, translator.answer.diverged) == ("failed", "other_prompt")


@pytest.mark.parametrize(("pieces", "status"), [(["on", "e more", " thing"], "completed"), (["on", "ce"], "failed")])
def test_text_that_comes_again_has_to_be_the_same(pieces: list[str], status: str) -> None:
    translator = begun(token("One"), token("one"), markup=new_markup())
    asked = resumed(translator, 1, overlap="one")
    said = b"".join(translator.feed(completion(piece, None if at else asked)) for at, piece in enumerate(pieces))
    said += translator.feed(completion("", finish_reason="stop")) + translator.feed(DONE) + translator.finish()
    assert translator.status == status
    if status == "completed":
        assert b'"text":"Oneone more thing"' in said


def test_a_continuation_that_ends_before_it_has_caught_up() -> None:
    translator = begun(token("One"), token("one"), markup=new_markup())
    asked = resumed(translator, 1, overlap="one")
    translator.feed(completion("o", asked, finish_reason="stop"))
    translator.feed(DONE)
    assert (translator.status, translator.answer.diverged) == ("failed", "text_differs")
    number = translator.writer.next_number
    assert translator.fail(LOST) == b""
    assert translator.writer.next_number == number


def test_a_second_break_before_it_has_caught_up_ends_the_response_once() -> None:
    translator = begun(token("One"), token("one"), markup=new_markup())
    asked = resumed(translator, 1, overlap="one")
    translator.feed(completion("o", asked))
    translator.fail(LOST)
    assert [item for item in translator.response.output if "Oneone" in item]
    assert translator.status == "failed"


def test_a_continuation_that_breaks_off_before_it_has_caught_up_is_continued() -> None:
    translator = begun(token("One"), token("one"), markup=new_markup())
    asked = resumed(translator, 1, overlap="one")
    translator.feed(completion("o", asked))
    asked = resumed(translator, 2)
    said = translator.feed(completion("ne more", asked)) + translator.feed(completion("", finish_reason="stop"))
    said += translator.feed(DONE) + translator.finish()
    assert b'"text":"Oneone more"' in said


@pytest.mark.parametrize(
    "pieces",
    [
        [text("One")],  # without ids
        [text("One", token_ids=[2**70])],
        [chunk({"content": [{"type": "text", "text": "One"}]}, token_ids=[5])],
        [chunk({"reasoning": "One"}), chunk({}, token_ids=[5])],
        [token("One"), event({"choices": [{"index": 1, "delta": {"content": "x"}, "token_ids": [5]}]})],
        [token("One"), event({"choices": [{"delta": {"content": "x"}, "token_ids": [5]}, {"index": 1}]})],
    ],
)
def test_without_all_ids_there_is_nothing_to_go_on_with(pieces: list[bytes]) -> None:
    assert not begun(*pieces).continuable


def test_an_answer_that_has_ended_is_not_continued() -> None:
    translator = begun(token("One"), finish())
    assert not translator.continuable
    translator.fail(LOST)
    assert translator.status == "completed"


def test_usage_that_was_lost_with_the_connection_is_known_by_the_ids() -> None:
    translator = begun(token("One"), text("", token_ids=[2], finish="stop"))
    translator.fail(LOST)
    assert '"input_tokens":1,' in translator.response.json()
    assert '"output_tokens":2,' in translator.response.json()


@pytest.mark.parametrize(
    "message", ["EngineCore encountered an issue. See stack trace.", "The server had an error while processing your request."]
)
def test_a_dead_engine_is_no_end_and_any_other_error_is(message: str) -> None:
    dead = {"error": {"message": message, "type": "InternalServerError", "param": None, "code": 500}}
    translator = begun(token("One"))
    translator.feed(event(dead) + DONE)
    assert (translator.answer.broken_off, translator.ended) == ("engine", False)
    translator.fail(LOST)
    assert translator.status == "failed"
    translator = begun(token("One"))
    translator.feed(event({"error": {"message": "out of range", "code": 400}}))
    assert translator.status == "failed"


def test_nothing_is_read_behind_the_break() -> None:
    translator = begun(token("One"))
    translator.feed(DONE)
    assert translator.answer.broken_off == "eof"
    assert translator.feed(token("Two")) == b""
    assert translator.finish() == b""


def test_a_second_reading_that_says_something_else() -> None:
    translator = begun(chunk({"reasoning": "Thinking"}, token_ids=[5]))
    for deltas in ([Text("Thinking")], [Reasoning("Thinner")], [Reasoning("T"), ToolCall(0, "", "get_weather")]):
        catch_up = CatchUp(translator.lifecycle)
        with pytest.raises(Diverged):
            catch_up.take(list(deltas))


@pytest.mark.parametrize(
    ("deltas", "differs"),
    [
        ([Text("Loo")], False),
        ([Text("Loud")], True),
        ([Reasoning("Look")], True),
        ([ToolCall(0, "", "get_weather")], True),
    ],
)
def test_a_second_reading_differs_before_its_item_is_done(deltas: list[Any], differs: bool) -> None:
    """Of several parsers the one that differs later must not be taken for the right one."""
    call = {"index": 0, "id": "c", "function": {"name": "get_weather", "arguments": ""}}
    translator = begun(text("Look.", token_ids=[5]), chunk({"tool_calls": [call]}, token_ids=[6]))
    catch_up = CatchUp(translator.lifecycle)
    with pytest.raises(Diverged) if differs else nullcontext():
        assert catch_up.take(deltas) == []


def test_a_second_reading_of_calls_that_are_done() -> None:
    calls = [{"index": at, "id": str(at), "function": {"name": "get_weather", "arguments": "{}"}} for at in range(2)]
    translator = begun(*(chunk({"tool_calls": [call]}, token_ids=[5]) for call in calls))
    catch_up = CatchUp(translator.lifecycle)
    assert catch_up.take([ToolCall(0, "", "get_weather"), ToolArguments(0, "{}")]) == []
    assert not catch_up.caught_up
    with pytest.raises(Diverged):
        CatchUp(translator.lifecycle).take([Text("Look.")])


def test_a_second_reading_goes_on_in_the_open_call_of_the_first() -> None:
    translator = begun(
        chunk({"tool_calls": [{"index": 4, "id": "c", "function": {"name": "get_weather", "arguments": '{"a'}}]})
    )
    catch_up = CatchUp(translator.lifecycle)
    news = catch_up.take([Text("\n"), ToolCall(9, "", "get_weather"), ToolArguments(9, '{"'), ToolArguments(9, 'a": 1}')])
    assert [(delta.index, delta.text) for delta in news] == [(translator.lifecycle.call.made.index, '": 1}')]  # type: ignore[union-attr]


def test_the_last_whole_id_is_found_by_the_texts_of_the_others() -> None:
    ids = encode("One two three")

    def found(whole: int, tail: str, extra: Sequence[int] = ()) -> CutPoint:
        beginning = PartialAnswer([1], [*ids, *extra], whole, tail, raw=True)
        return asyncio.run(cut_of_raw(beginning, decoded, holds_text=False))

    half = 0x01F09F
    assert found(1, "") == CutPoint(1)
    assert found(1, " two three") == CutPoint(3)
    assert found(1, " two three", [half]) == CutPoint(3)
    assert found(1, " two th") == CutPoint(2, " th")
    assert found(0, "One two", [half]) == CutPoint(2)
    assert found(1, " ten") == CutPoint(1, " ten")  # it has to come again


def test_text_that_was_held_for_a_stop_string_is_generated_again() -> None:
    ids = encode("One two three")
    beginning = PartialAnswer([1], ids, 0, "One tw", raw=True)
    assert asyncio.run(cut_of_raw(beginning, decoded, holds_text=True)) == CutPoint(1, " tw")
    assert asyncio.run(cut_of_parsed(beginning, decoded, 0)) == (3, "One two three")
    assert asyncio.run(cut_of_parsed(beginning, decoded, 4)) == (2, "One two")
    with pytest.raises(CannotContinue):
        asyncio.run(cut_of_parsed(PartialAnswer([1], ids, 0, "", raw=False), decoded, 100))
    # Nothing fits: all of it has to come again.
    assert asyncio.run(cut_of_raw(PartialAnswer([1], ids, 0, "else", raw=True), decoded, holds_text=True)) == CutPoint(
        0, "else"
    )


@pytest.mark.parametrize("family", ["qwen3", "auto"])
def test_a_parser_may_know_one_thought_alone(family: str) -> None:
    raw = "<think>\nOne.\n</think>\n\nText.\n<think>\ntwo\n</think>\n\nEnd."
    parser = parsers.parser(family, "auto", schemas={}, reopens=False)
    deltas = [*parser.feed(raw), *parser.finish("stop")]
    assert "".join(delta.text for delta in deltas if isinstance(delta, Text)) == raw.partition("</think>\n\n")[2]


def read_again(translator: Translator, said: str) -> list[int]:
    """Have a parser of ours take over from a backend that parses; return the prompt of the continuation."""
    beginning = translator.answer.partial()
    catch_up = CatchUp(translator.lifecycle)
    markup = new_markup(reopens=False)
    news = catch_up.take(markup.read([Text(said)], beginning.ids))
    translator.resume(Join(beginning.prompt, beginning.ids, catch_up=catch_up, unseen=news), markup)
    return [*beginning.prompt, *beginning.ids]


def test_a_thought_behind_text_stays_text_as_for_the_parser_that_began() -> None:
    translator = begun(chunk({"content": "One."}, token_ids=encode("One.")))
    asked = read_again(translator, "One.")
    for piece in (completion(" <think>", asked), completion("two</think>", finish_reason="stop"), DONE):
        translator.feed(piece)
    assert "One. <think>two</think>" in translator.response.json()


def test_an_answer_that_is_all_thought_is_shown_as_without_the_break() -> None:
    translator = begun(chunk({"reasoning": "So"}, token_ids=encode("<think>So")))
    asked = read_again(translator, "<think>So")
    for piece in (completion(" it is", asked, finish_reason="stop"), DONE):
        translator.feed(piece)
    assert translator.status == "completed"
    assert '"output_text","text":"So it is"' in translator.response.json()


@pytest.mark.parametrize("half", ["<tool_", "<tool_call>", '<tool_call>\n{"na', '<tool_call>\n{"name": "get_wea'])
@pytest.mark.parametrize("broken", [True, False])
def test_half_a_call_is_not_shown_when_the_stream_breaks(half: str, broken: bool) -> None:
    pieces = [text("Hello.\n"), text(half)]
    if broken:
        seen = play(*pieces, LOST, done=False, markup=new_markup(), tools=TOOLS)
        assert [(kind, said.strip(), status) for kind, said, status in seen.said] == [("text", "Hello.", "incomplete")]
        assert seen.translator.repairs == {"cut_markup": 1}
    else:
        assert play(*pieces, finish(), markup=new_markup(), tools=TOOLS).said == [("text", f"Hello.\n{half}")]


@pytest.mark.parametrize("end", ["a <", "a </b", "a </tool_", "<tools"])
def test_what_is_no_beginning_of_a_call_is_shown_when_the_stream_breaks(end: str) -> None:
    assert play(text(end), LOST, done=False, markup=new_markup(), tools=TOOLS).said == [("text", end, "incomplete")]
