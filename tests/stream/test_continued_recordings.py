"""Recorded answers of a real vLLM that break off at any token, and are continued by another server: the client gets the items
and the counts that it would have got, whoever parses the markup, the servers or the gateway."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from functools import cache, partial
from typing import Any, NamedTuple

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from responses_gateway import parsers
from responses_gateway.parsers.thought_tokens import prompt_end_of
from responses_gateway.probing.known_models import UNKNOWN, KnownModel
from responses_gateway.request import Policy
from responses_gateway.server.generation.parser_choice.choice import ParserChoice
from responses_gateway.server.generation.upstream.continuation import cut_of_parsed, cut_of_raw, read_again
from responses_gateway.settings import Settings
from responses_gateway.stream.continuation.join import Join, JoinPoint
from responses_gateway.stream.translator import Translator
from responses_gateway.wire.tools import ToolTarget
from tests.data_folder import STREAMS
from tests.stream.recorded_servers import RecordedServers, decode, servers_of, tokenizer
from tests.stream.stream_player import judged, options
from tests.stream.test_raw_streams import PARSERS
from tests.stream.test_recorded_streams import Recording, recordings_of
from tests.thoroughness import examples

SETTINGS = sorted(manifest.parent.name for manifest in STREAMS.glob("*/manifest.json"))
RAW = ("raw", "raw_interval")
# In which the server's own parser drops a marker, or takes a call for the end of a thought though calls stay text: a second
# reading does not repeat that.
LOST_BY_THE_SERVER = {
    "xml": {"rethink.0", "parallel.0.cut-second_call"},
    "xml_interval": {"rethink.0", "parallel.0.cut-second_call"},
    "kimi": {"weather.1"},
    "minimax": {"hello.0", "parallel.0", "parallel.1", "think_text_tool.1"},
    "reasoning_only": {"parallel.0.cut-second_call", "parallel.0", "write_file.0"},
}


class Reading(NamedTuple):
    """How the gateway reads answers: its settings, and what it knows of the model."""

    choice: ParserChoice
    body: dict[str, Any]


def known_models() -> dict[str, KnownModel]:
    """Return what a gateway may have learned of the model, by a name."""
    prompt_end = prompt_end_of([(number, text) for text, number in tokenizer().get_vocab().items()], ("<think>",))
    return {
        "nothing": UNKNOWN,
        "prompt": KnownModel(prompt_end=prompt_end),
        "opens": KnownModel(opens=True),
        "opens, by its ids": KnownModel(opens=True, prompt_end=prompt_end),
        "field": KnownModel(field=True),
        "marked": KnownModel(field=True, marked=True),
        "calls": KnownModel(field=True, calls_written=2),
    }


@cache
def thoughts() -> parsers.ThoughtTokens | None:
    ids = {marker: tokenizer().token_to_id(marker) for marker in parsers.thought_markers()}
    return parsers.thought_tokens({marker: number for marker, number in ids.items() if number is not None})


def reading_of(recording: Recording, known: str) -> Reading:
    """Return how a gateway reads the answer, whose servers parse as recorded: with the parsers that are missing there, where
    these are "named", or else by what it knows."""
    choice = ParserChoice(Settings(adapt=known != "named", **_parsers_named(recording, known)), Policy())
    body = {**recording.entry["request"], "model": "tiny"}
    choice.known_models.learn("tiny", known_models().get(known, UNKNOWN))
    return Reading(choice, body)


def _parsers_named(recording: Recording, known: str) -> dict[str, str]:
    if known != "named":
        return {}
    reasoning, tools = PARSERS[recording.entry["format"]]
    missing: dict[str, str] = {}
    if recording.setting in (*RAW, "tools_only"):
        missing["reasoning_parser"] = reasoning or "none"
    if recording.setting in (*RAW, "reasoning_only"):
        missing["tool_call_parser"] = tools or "none"
    return missing


async def decoded(ids: Sequence[int]) -> str:
    return decode(ids)


def continued(translator: Translator, servers: RecordedServers, reading: Reading) -> tuple[bytes, list[bytes]]:
    """Have the translator be ready for a continuation, as `Continuation` does; return its events, and what the server sends."""
    choice, body = reading
    beginning = translator.answer.partial()
    reads_on = beginning.raw and (translator.answer.join is not None or choice.reads_all(body, beginning.start))
    if translator.answer.said_nothing and not (reads_on and beginning.brought_text):
        return translator.restart(choice.markup_of(body)(beginning.start), beginning.start), servers.chunks
    markup = None
    if reads_on:
        cut = asyncio.run(cut_of_raw(beginning, decoded, holds_text=False))
        join = Join(beginning.prompt, beginning.ids[: cut.kept], overlap=cut.overlap)
    else:
        count, text = asyncio.run(cut_of_parsed(beginning, decoded, 0))
        ways = choice.second_readings(body, beginning)
        points = [[JoinPoint(count, text=text, start=start) for start in starts] for starts in ways]
        markup, join = read_again(translator, beginning, points, partial(choice.markup, body))
    ids = beginning.ids[: join.generated]
    return translator.resume(join, markup), servers.continued([*beginning.prompt, *ids])


class Told(NamedTuple):
    """What a client is told: items, status, usage. What was in a cache is not known of an answer that broke off."""

    items: list[dict[str, Any]]
    status: str
    usage: tuple[int, int, int]


def played(recording: Recording, known: str, cuts: Sequence[int]) -> tuple[bytes, Translator] | None:
    """Play an answer that breaks off behind so many events, and each continuation likewise; None if it had ended by then."""
    servers = servers_of(recording)
    reading = reading_of(recording, known)
    choice, body = reading
    start = choice.start_without_template(body)
    tools = {tool["function"]["name"]: ToolTarget("function", tool["function"]["name"]) for tool in body.get("tools", ())}
    markup = choice.markup(body, start)
    translator = Translator(
        options(tools=tools, continuable=True, markup=markup, start=start, thoughts=thoughts()), lambda: 1_800_000_000.0
    )
    data = translator.start()
    chunks = servers.chunks
    for cut in cuts:
        data += b"".join(map(translator.feed, chunks[:cut]))
        if not translator.continuable:
            return None
        events, chunks = continued(translator, servers, reading)
        data += events
    data += b"".join(map(translator.feed, chunks)) + translator.finish()
    return data, translator


def told(translator: Translator) -> Told:
    response = json.loads(translator.response.json())
    items = [{name: value for name, value in item.items() if name not in ("id", "call_id")} for item in response["output"]]
    usage = response["usage"]
    thought = usage["output_tokens_details"]["reasoning_tokens"]
    return Told(items, response["status"], (usage["input_tokens"], usage["output_tokens"], thought))


@cache
def undisturbed(setting: str, name: str, known: str) -> Told:
    play = played(recording(setting, name), known, ())
    assert play is not None
    return told(play[1])


def kinds_of(setting: str, name: str, known: str) -> list[str]:
    return [item["type"] for item in undisturbed(setting, name, known).items]


def recording(setting: str, name: str) -> Recording:
    return next(one for one in recordings_of(setting) if one.name == name)


def differing(setting: str, name: str, known: str) -> list[int]:
    """Return the events behind which a break changes what the client is told."""
    one = recording(setting, name)
    whole = undisturbed(setting, name, known)
    plays = {cut: played(one, known, (cut,)) for cut in range(1, len(servers_of(one).chunks))}
    return [cut for cut, play in plays.items() if play is not None and told(play[1]) != whole]


# ---- the tests ---------------------------------------------------------------------------------------------------------


def recordings() -> list[tuple[str, str]]:
    """Return the settings and names of all streams of which another server can say the same."""
    return [
        (setting, one.name)
        for setting in SETTINGS
        for one in recordings_of(setting)
        if one.name not in LOST_BY_THE_SERVER.get(setting, ())
    ]


@given(data=st.data())
@settings(max_examples=examples(200), deadline=None)
def test_broken_off_at_any_tokens_it_is_the_same_answer(data: st.DataObject) -> None:
    setting, name = data.draw(st.sampled_from(recordings()))
    known = data.draw(st.sampled_from([*known_models(), "named"]))
    # Where a server shows nothing of an empty thought, a parser that knows the prompt to open it takes text for it.
    assume(setting in RAW or kinds_of(setting, name, known) == kinds_of(setting, name, "field"))
    cuts = data.draw(st.lists(st.integers(1, 120), min_size=1, max_size=3))
    play = played(recording(setting, name), known, cuts)
    if play is not None:
        judged(*play)
        assert told(play[1]) == undisturbed(setting, name, known)


@pytest.mark.untraced  # the test above runs the same lines
@pytest.mark.parametrize("name", ["agent.0", "agent.2", "cjk.0", "unclosed_think.0", "hello.0"])
@pytest.mark.parametrize("known", ["opens", "opens, by its ids"])
def test_a_thought_of_which_the_prompt_is_known_to_open_it_ends_where_the_server_says(name: str, known: str) -> None:
    """Text behind it is no reasoning, broken off or not."""
    if name != "unclosed_think.0":  # where a prompt that is seen to open it is the marker
        assert kinds_of("r1", name, known) == kinds_of("r1", name, "nothing")
    assert differing("r1", name, known) == []


@pytest.mark.parametrize(("setting", "name"), [("hermes", "think_empty.0"), ("r1", "think_empty.0"), ("glm", "parallel.1")])
def test_an_empty_thought_has_no_tokens(setting: str, name: str) -> None:
    assert undisturbed(setting, name, "field").usage[-1] == 0
    assert differing(setting, name, "field") == []


@pytest.mark.parametrize("name", ["rethink.0.hermes", "unclosed_think.0.hermes", "unclosed_think.0.r1"])
@pytest.mark.parametrize("known", ["nothing", "opens", "named"])
def test_raw_markup_is_read_on_as_it_was_read(name: str, known: str) -> None:
    """A second thought is one, and a thought that is not closed is a message as well only where it is without the break."""
    assert differing("raw", name, known) == []


@pytest.mark.slow
@pytest.mark.untraced  # likewise
@pytest.mark.parametrize(("setting", "name"), [("tools_only", "agent.1"), ("reasoning_only", "agent.1")])
@pytest.mark.parametrize("known", ["nothing", "named"])
def test_a_server_that_parses_one_kind_of_markup(setting: str, name: str, known: str) -> None:
    assert differing(setting, name, known) == []
