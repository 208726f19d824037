"""Recorded streams of a real vLLM, translated: what comes out is what the model said, however the bytes were cut.

The model plays scripts by heart, so the truth is known (`expected` in the manifests). Where the server itself lost or
mislabelled a part of it, no gateway that passes parsed fields on can know better: for those streams, listed one by one below,
the truth is what the server sent. What the server sent is read by an independent reading (`sent`), for every stream.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

import pytest

from responses_gateway.stream.options import CODEX
from tests.data_folder import STREAMS
from tests.stream.stream_player import Play, Said, play, substance, translate
from tests.thoroughness import one_in

pytestmark = pytest.mark.untraced  # because other tests run the same lines

# Without those whose server has no parser: markup in the content is the business of `test_raw_streams.py`.
SETTINGS = sorted({manifest.parent.name for manifest in STREAMS.glob("*/manifest.json")} - {"raw", "raw_interval"})

# Text before a thought, or without one: these parsers take the beginning of every answer as reasoning.
_NO_THOUGHT = "hello.0 json.0 parallel.0 parallel.0.cut-second_call parallel.1 think_text_tool.1 write_file.0"
# A second thought behind the text: these parsers know one.
_SECOND_THOUGHT = "rethink.0"
# Setting -> the streams in which the server did not send what the model said.
MISLABELLED = {
    "glm": "hello.0 parallel.0",
    "hermes": f"{_NO_THOUGHT} {_SECOND_THOUGHT} parallel.0.cont parallel.0.ids parallel.0.logprobs"
    " rethink.0.cont rethink.0.ids rethink.0.logprobs",
    "hermes_interval": f"{_NO_THOUGHT} {_SECOND_THOUGHT}",
    "hermes_ngram": f"{_NO_THOUGHT} {_SECOND_THOUGHT}",
    # weather.1: a thought without its opening tag, which this parser wants.
    "kimi": "hello.0 parallel.0 parallel.1 weather.1",
    "r1": _SECOND_THOUGHT,
    "seed": "hello.0 parallel.0 parallel.1 think_text_tool.1",
    "xml": f"{_NO_THOUGHT} {_SECOND_THOUGHT}",
    "xml_interval": f"{_NO_THOUGHT} {_SECOND_THOUGHT}",
    # No parser for calls: each stays text.
    "reasoning_only": f"{_NO_THOUGHT} {_SECOND_THOUGHT} agent.0 agent.1 ascii_escapes.0 patch.0 phantom.0 think_text_tool.0"
    " twins.0 typed.0 unicode_args.0 weather.0 weather.0.cut-call",
    # No parser for reasoning: each thought stays text.
    "tools_only": f"{_SECOND_THOUGHT} agent.0 agent.1 agent.2 cjk.0 cjk.0.cut-inside_character code.0 lookalike.0 patch.0"
    " phantom.0 think.0 think.0.cut-reasoning think.0.cut-text think_empty.0 think_json.0 think_text_tool.0"
    " unclosed_think.0 unicode_args.0 weather.0 weather.0.cut-call weather.1",
}


class Recording(NamedTuple):
    """One stream: its setting, its name without suffix, its bytes, and its line of the manifest."""

    setting: str
    name: str
    data: bytes
    entry: dict[str, Any]

    @property
    def mislabelled(self) -> bool:
        return self.name in MISLABELLED.get(self.setting, "").split()

    @property
    def cut(self) -> bool:
        return bool(self.entry["server"]["finish_reason"] == "length")


@cache
def recordings_of(setting: str) -> list[Recording]:
    """Return all streams of a setting."""
    folder = STREAMS / setting
    entries = json.loads((folder / "manifest.json").read_bytes())["streams"]
    files = [folder / entry["file"] for entry in entries]
    return [Recording(setting, file.stem, file.read_bytes(), entry) for file, entry in zip(files, entries, strict=True)]


def recordings() -> list[Recording]:
    """Return the streams of all settings."""
    return [recording for setting in SETTINGS for recording in recordings_of(setting)]


def short_ones() -> list[Recording]:
    """Return a dozen short streams, no two of one setting and one scenario, with calls and with cuts among them."""
    chosen: dict[tuple[str, str], Recording] = {}
    for recording in sorted(recordings(), key=lambda recording: len(recording.data)):
        if recording.setting.endswith("_interval") and not recording.name.startswith("empty"):
            chosen.setdefault((recording.setting, recording.entry["scenario"]), recording)
    return list(chosen.values())[:12]


every_setting = pytest.mark.parametrize("setting", SETTINGS)


# ---- the truth ---------------------------------------------------------------------------------------------------------


def sent(data: bytes) -> list[Said]:
    """Return what the server sent, in order, calls by their index; a text of white space alone is a separator, not an item."""
    said: list[list[str]] = []
    calls: dict[int, list[str]] = {}
    for kind, index, piece in _pieces(data):
        if index is not None:
            if index not in calls:
                calls[index] = ["call", piece, ""]
                said.append(calls[index])
            else:
                calls[index][2] += piece
        elif said and said[-1][0] == kind:
            said[-1][1] += piece
        elif piece.strip():
            said.append([kind, piece])
    return [comparable(*entry) for entry in said]


def _pieces(data: bytes) -> Iterator[tuple[str, int | None, str]]:
    for line in data.decode().split("\n"):
        for choice in json.loads(line[6:])["choices"] if line.startswith("data: {") else ():
            delta = choice["delta"]
            for field, kind in (("reasoning", "reasoning"), ("content", "text")):
                if delta.get(field):
                    yield kind, None, delta[field]
            for call in delta.get("tool_calls", ()):
                for piece in (call["function"].get("name"), call["function"].get("arguments")):
                    if piece:
                        yield "call", call["index"], piece


def comparable(kind: str, *values: str) -> Said:
    """Texts without the white space around them; calls by what their JSON says, as far as it is JSON."""
    if kind != "call":
        return (kind, values[0].strip(), *values[1:])
    name, arguments, *status = values
    try:
        return kind, name, json.loads(arguments or "{}"), *status
    except ValueError:
        return kind, name, arguments, *status


def agrees(said: Said, item: dict[str, Any]) -> bool:
    """Tell whether an item of the output is the expected one. An item that was cut is a beginning of it, and says so."""
    kind, *values = said
    if kind != item["kind"]:
        return False
    truth = [item["name"], item["args"]] if kind == "call" else [item["text"].strip()]
    if not item.get("incomplete"):
        return values == truth
    *before, content, status = values
    whole = truth[-1] if kind != "call" else json.dumps(item["args"], ensure_ascii=False)
    return status == "incomplete" and before == truth[:-1] and bool(content) and whole.startswith(content)


def is_true(output: list[Said], recording: Recording) -> bool:
    items = recording.entry["expected"]["items"]
    return len(output) == len(items) and all(agrees(said, item) for said, item in zip(output, items, strict=True))


@cache
def played(setting: str, name: str) -> Play:
    (recording,) = (recording for recording in recordings_of(setting) if recording.name == name)
    return play(recording.data, done=False, tools={})


def output_of(playing: Play) -> list[Said]:
    return [comparable(*said) for said in playing.said]


# ---- the tests ---------------------------------------------------------------------------------------------------------


def test_no_recording_is_left_out() -> None:
    """Count the streams: 445 of 18 settings; every entry of the list of mislabelled ones exists."""
    assert len({recording.setting for recording in recordings()}) == 18
    assert len(recordings()) == 445
    assert sum(recording.mislabelled for recording in recordings()) == 97
    assert sum(len(names.split()) for names in MISLABELLED.values()) == 97


@every_setting
def test_what_the_model_said_comes_out(setting: str, subtests: pytest.Subtests) -> None:
    for recording in recordings_of(setting):
        with subtests.test(recording.name):
            output = output_of(played(setting, recording.name))
            said = sent(recording.data)
            if not recording.cut and [kind for kind, *_ in said] == ["reasoning"]:  # else the user would see nothing
                assert output.pop() == ("text", *said[0][1:])
            assert is_true(output, recording) is not recording.mislabelled
            assert [entry[:3] if entry[0] == "call" else entry[:2] for entry in output] == said


@every_setting
def test_the_response_ends_as_the_server_says(setting: str, subtests: pytest.Subtests) -> None:
    for recording in recordings_of(setting):
        with subtests.test(recording.name):
            response = played(setting, recording.name).response
            reported = recording.entry["server"]["usage"]
            assert (response["usage"]["input_tokens"], response["usage"]["output_tokens"]) == (
                reported["prompt_tokens"],
                reported["completion_tokens"],
            )
            statuses = [item["status"] for item in response["output"]]
            if recording.cut:
                assert response["status"] == "incomplete"
                assert response["incomplete_details"] == {"reason": "max_output_tokens"}
                assert statuses == ["completed"] * (len(statuses) - 1) + ["incomplete"]
            else:
                assert response["status"] == "completed"
                assert set(statuses) <= {"completed"}


@every_setting
def test_every_chunk_alone_gives_the_same_stream(setting: str, subtests: pytest.Subtests) -> None:
    for recording in recordings_of(setting):
        with subtests.test(recording.name):
            chunks = [event + b"\n\n" for event in recording.data.split(b"\n\n")[:-1]]
            assert substance(translate(chunks)) == substance(translate([recording.data]))


@pytest.mark.untraced  # the test above runs the same lines
@every_setting
def test_every_byte_alone_gives_the_same_stream(setting: str, subtests: pytest.Subtests) -> None:
    for recording in one_in(3, recordings_of(setting)[::3]):
        with subtests.test(recording.name):
            data = recording.data
            assert substance(translate(data[at : at + 1] for at in range(len(data)))) == substance(translate([data]))


@pytest.mark.untraced  # the tests above run the same lines
@pytest.mark.parametrize("recording", short_ones(), ids=lambda recording: f"{recording.setting}/{recording.name}")
def test_every_cut_in_two_gives_the_same_stream(recording: Recording) -> None:
    data = recording.data
    whole = substance(translate([data]))
    assert [at for at in one_in(3, range(1, len(data))) if substance(translate([data[:at], data[at:]])) != whole] == []


@pytest.mark.parametrize("setting", sorted({recording.setting for recording in recordings() if recording.cut}))
def test_codex_is_never_handed_a_cut_call(setting: str, subtests: pytest.Subtests) -> None:
    for recording in recordings_of(setting):
        if recording.cut:
            with subtests.test(recording.name):
                standard = played(setting, recording.name)
                codex = play(recording.data, done=False, tools={}, client=CODEX)
                assert codex.response["status"] == "incomplete"
                assert codex.said == [said for said in standard.said if said[0] != "call" or said[-1] != "incomplete"]
                done = [event["item"]["status"] for event in codex.events if event["type"] == "response.output_item.done"]
                assert done == [item["status"] for item in codex.response["output"]]
