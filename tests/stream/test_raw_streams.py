"""Recorded streams of a real vLLM without parsers, or with one of the two: the gateway finds what the model said, however the
bytes were cut, with the ids of tokens and without, and the same as where the server itself parsed it right.

Eight streams cannot come out right: the server had a parser for reasoning, and it took for reasoning what was none, or let a
second thought pass as text.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cache, partial
from typing import Any

import pytest

from responses_gateway import parsers as formats
from responses_gateway.stream.options import CODEX
from responses_gateway.stream.reading.markup import Markup
from tests.data_folder import TINY_MODEL
from tests.stream.stream_player import Play, Said, play, substance, translate
from tests.stream.test_recorded_streams import Recording, is_true, output_of, played, recordings, recordings_of
from tests.thoroughness import one_in

pytestmark = pytest.mark.untraced  # because other tests run the same lines

# Markup of the recording -> names of the parsers for reasoning and calls.
PARSERS: dict[str, tuple[str | None, str | None]] = {
    "hermes": ("qwen3", "hermes"),
    "xml": ("qwen3", "qwen3_coder"),
    "r1": ("deepseek_r1", "hermes"),
    "deepseek_v31": ("deepseek_r1", "deepseek_v31"),
    "deepseek_v4": ("deepseek_v4", "deepseek_v4"),
    "gemma4": ("gemma4", "gemma4"),
    "glm": ("glm45", "glm45"),
    "kimi": ("kimi_k2", "kimi_k2"),
    "llama3": (None, "llama3_json"),
    "minimax": ("minimax_m2", "minimax_m2"),
    "mistral": ("mistral", "mistral"),
    "pythonic": (None, "pythonic"),
    "seed": ("seed_oss", "seed_oss"),
}
# Setting -> which of the two the gateway parses.
SETTINGS = {"raw": (True, True), "raw_interval": (True, True), "tools_only": (True, False), "reasoning_only": (False, True)}
# Answers without a thought that the server took for one, and a second thought that it took for text.
MISLABELLED = {
    "hello.0",
    "json.0",
    "parallel.0",
    "parallel.0.cut-second_call",
    "parallel.1",
    "rethink.0",
    "think_text_tool.1",
    "write_file.0",
}


def raw_recordings() -> list[Recording]:
    """Return the streams of all settings."""
    return [recording for setting in SETTINGS for recording in recordings_of(setting)]


def _names() -> list[tuple[str, str]]:
    return sorted({(recording.setting, recording.entry["format"]) for recording in raw_recordings()})


# One test for each setting and markup family; it names the streams that fail.
every_family = pytest.mark.parametrize(("setting", "family"), _names())


def streams(setting: str, family: str) -> list[Recording]:
    return [recording for recording in recordings_of(setting) if recording.entry["format"] == family]


def mislabelled(recording: Recording) -> bool:
    return recording.setting == "reasoning_only" and recording.name in MISLABELLED


def cut_calls(recording: Recording) -> bool:
    """Tell whether the stream was cut inside a call."""
    items = recording.entry["expected"]["items"]
    return bool(items) and items[-1]["kind"] == "call" and bool(items[-1].get("incomplete"))


@cache
def marker_ids() -> dict[str, int]:
    tokens = json.loads((TINY_MODEL / "tokenizer.json").read_text(encoding="utf-8"))["added_tokens"]
    return {token["content"]: token["id"] for token in tokens}


def markup_for(recording: Recording, *, names: tuple[str | None, str | None] | None = None, ids: bool = False) -> Markup:
    """Return a parser for one play of the stream. `ids`: it knows which markers are single tokens."""
    parses = SETTINGS[recording.setting]
    reasoning, tools = names or PARSERS[recording.entry["format"]]
    reasoning = reasoning if parses[0] else None
    tools = tools if parses[1] else None
    functions = [tool["function"] for tool in recording.entry["request"].get("tools", ())]
    known = {marker: marker_ids()[marker] for marker in formats.markers(reasoning, tools) if marker in marker_ids()}
    return Markup(
        partial(
            formats.parser,
            reasoning,
            tools,
            schemas={function["name"]: function["parameters"] for function in functions},
            marker_ids=known if ids else None,
        ),
        thinking_open=recording.entry["prompt_tail"].rstrip().endswith("<think>"),
        prompt_known=True,
    )


def parsed(recording: Recording, pieces: Iterable[bytes] | None = None, **options: Any) -> Play:
    client = {"client": options.pop("client")} if "client" in options else {}
    whole = [recording.data] if pieces is None else pieces
    return play(*whole, done=False, tools={}, markup=markup_for(recording, **options), **client)


def chunks(recording: Recording) -> list[bytes]:
    return [event + b"\n\n" for event in recording.data.split(b"\n\n")[:-1]]


def twin(recording: Recording) -> Recording | None:
    """Return the same stream of a server that parsed it, and parsed it right."""
    setting = recording.entry["format"] + ("_interval" if recording.setting == "raw_interval" else "")
    name = recording.name.replace(f".{recording.entry['format']}", "")
    return parsed_right().get((setting, name))


@cache
def parsed_right() -> dict[tuple[str, str], Recording]:
    return {(recording.setting, recording.name): recording for recording in recordings() if not recording.mislabelled}


# ---- the tests ---------------------------------------------------------------------------------------------------------


def test_no_recording_is_left_out() -> None:
    """Count the streams: 345 of four settings; the list of those that cannot come out right names only what is there."""
    assert len(raw_recordings()) == 345
    assert {recording.name for recording in raw_recordings() if mislabelled(recording)} == MISLABELLED
    assert {recording.entry["format"] for recording in raw_recordings()} == set(PARSERS)
    assert sum(twin(recording) is not None for recording in raw_recordings()) > 100


@every_family
def test_what_the_model_said_comes_out(setting: str, family: str, subtests: pytest.Subtests) -> None:
    for recording in streams(setting, family):
        with subtests.test(recording.name):
            playing = parsed(recording)
            assert is_true(without_repetition(output_of(playing)), recording) is not mislabelled(recording)
            response = playing.response
            statuses = [item["status"] for item in response["output"]]
            if recording.cut:
                assert (response["status"], response["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
                assert statuses == ["completed"] * (len(statuses) - 1) + ["incomplete"]
            else:
                assert response["status"] == "completed"
                assert set(statuses) <= {"completed"}
            assert response["usage"]["output_tokens"] == recording.entry["server"]["usage"]["completion_tokens"]
            if setting == "raw":
                assert playing.translator.repairs == {}, "nothing has to be forgiven"


def translated(recording: Recording, pieces: Iterable[bytes]) -> list[dict[str, Any]]:
    return substance(translate(pieces, markup=markup_for(recording)))


@every_family
def test_every_chunk_alone_gives_the_same_stream(setting: str, family: str, subtests: pytest.Subtests) -> None:
    for recording in streams(setting, family):
        with subtests.test(recording.name):
            assert translated(recording, chunks(recording)) == translated(recording, [recording.data])


@pytest.mark.untraced  # the test above runs the same lines
@every_family
def test_every_byte_alone_gives_the_same_stream(setting: str, family: str, subtests: pytest.Subtests) -> None:
    for recording in one_in(3, streams(setting, family)[::3]):
        with subtests.test(recording.name):
            data = recording.data
            assert translated(recording, (data[at : at + 1] for at in range(len(data)))) == translated(recording, [data])


def test_the_ids_of_tokens_change_nothing_of_it(subtests: pytest.Subtests) -> None:
    for recording in raw_recordings():
        if ".ids" in recording.name:
            with subtests.test(recording.name):
                for pieces in (None, chunks(recording)):
                    assert is_true(output_of(parsed(recording, pieces, ids=True)), recording)


@pytest.mark.parametrize(("setting", "family"), [names for names in _names() if names[0] in ("raw", "raw_interval")])
def test_the_names_may_be_auto(setting: str, family: str, subtests: pytest.Subtests) -> None:
    for recording in streams(setting, family):
        with subtests.test(recording.name):
            assert is_true(output_of(parsed(recording, names=("auto", "auto"))), recording)


@every_family
def test_a_server_that_parses_right_gives_the_same_items(setting: str, family: str, subtests: pytest.Subtests) -> None:
    for recording in streams(setting, family):
        of_the_server = twin(recording)
        if of_the_server is None:
            continue
        with subtests.test(recording.name):
            ours = without_repetition(output_of(parsed(recording)))
            theirs = without_repetition(output_of(played(of_the_server.setting, of_the_server.name)))
            if recording.cut:  # how much of a cut item is out depends on who held what back
                assert [shape(said) for said in ours] == [shape(said) for said in theirs]
                ours = ours[:-1]
                theirs = theirs[:-1]
            assert ours == theirs


def without_repetition(said: list[Said]) -> list[Said]:
    """Return the items without the message that repeats the reasoning of a server that sent nothing else."""
    return said[:1] if [kind for kind, *_ in said] == ["reasoning", "text"] and said[0][1:] == said[1][1:] else said


def shape(said: Said) -> Said:
    return (said[0], said[-1] == "incomplete")


def test_codex_is_never_handed_a_cut_call(subtests: pytest.Subtests) -> None:
    for recording in raw_recordings():
        if not cut_calls(recording):
            continue
        with subtests.test(recording.name, setting=recording.setting):
            codex = parsed(recording, client=CODEX)
            assert codex.response["status"] == "incomplete"
            assert codex.said == [said for said in parsed(recording).said if said[0] != "call" or said[-1] != "incomplete"]
            done = [event["item"]["status"] for event in codex.events if event["type"] == "response.output_item.done"]
            calls = [item["status"] for item in codex.response["output"] if item["type"] == "function_call"]
            assert "incomplete" not in calls
            assert done == [item["status"] for item in codex.response["output"]]
