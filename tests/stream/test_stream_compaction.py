"""A compaction: whatever the model writes, the client sees one item, or a failure."""

from __future__ import annotations

import json
from typing import Any

import pytest

from responses_gateway.conformance.checker import check_stream
from responses_gateway.stream.options import StreamOptions
from responses_gateway.stream.translator import Translator
from responses_gateway.wire.errors import server_error


def chunk(finish: str | None = None, **delta: Any) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n"


def new_translator() -> Translator:
    options = StreamOptions(response_id="resp_1", model="m", compaction=lambda text: f"sealed({text})")
    return Translator(options, lambda: 1.0)


def play(*chunks: bytes, queued: bool = False, kept_alive: bool = False) -> list[dict[str, Any]]:
    translator = new_translator()
    stream = translator.queue() if queued else b""
    stream += translator.start()
    for data in chunks:
        stream += translator.feed(data)
        stream += translator.keep_alive() if kept_alive else b""
    stream += translator.finish() + translator.terminal()
    assert [broken.rule for broken in check_stream(stream) if broken.rule != "fields"] == []
    lines = [line[6:] for line in stream.split(b"\n") if line.startswith(b"data: {")]
    return [json.loads(line) for line in lines]


def test_only_the_item_is_seen() -> None:
    said = [chunk(reasoning="hm"), chunk(content="The "), chunk(content="summary."), chunk("stop")]
    for options in ({}, {"queued": True}, {"kept_alive": True}):
        events = play(*said, **options)
        assert [event["sequence_number"] for event in events] == list(range(len(events)))
        assert events[-1]["response"]["output"] == [
            {"type": "compaction", "id": "cmp_1", "encrypted_content": "sealed(The summary.)"}
        ]
        assert "hm" not in json.dumps(events)


def test_the_summary_is_announced_when_it_begins() -> None:
    translator = new_translator()
    translator.start()
    assert translator.feed(chunk(role="assistant", content="")) == b""
    begun = translator.feed(chunk(content="The "))
    assert [line[7:] for line in begun.decode().splitlines() if line.startswith("event:")] == [
        "response.output_item.added",
        "response.compaction.compacting",
    ]
    assert translator.feed(chunk(content="summary.")) == b""
    events = play(chunk(content="The summary."), chunk("stop"))
    kinds = [event["type"] for event in events if event.get("item_id", event.get("item", {}).get("id")) == "cmp_1"]
    assert kinds == ["response.output_item.added", "response.compaction.compacting", "response.output_item.done"]
    assert "compacting" not in json.dumps(play(chunk("stop")))


def test_a_model_that_only_thinks_has_its_thoughts_taken() -> None:
    events = play(chunk(reasoning="All of it."), chunk("stop"))
    assert events[-1]["response"]["output"][0]["encrypted_content"] == "sealed(All of it.)"


def test_a_cut_summary_is_better_than_none() -> None:
    response = play(chunk(content="Half of"), chunk("length"))[-1]["response"]
    assert (response["status"], response["incomplete_details"]) == ("completed", None)


@pytest.mark.parametrize(
    "chunks", [[chunk("stop")], [chunk("length")], [chunk(content="  "), chunk("stop")], [chunk(content="x")]]
)
def test_without_a_summary_it_fails(chunks: list[bytes]) -> None:
    response = play(*chunks)[-1]["response"]
    assert (response["status"], response["output"], response["incomplete_details"]) == ("failed", [], None)


def test_it_can_be_failed() -> None:
    translator = new_translator()
    translator.start()
    translator.feed(chunk(content="x"))
    assert translator.fail(server_error("gone")) == b""
    assert b"event: response.failed" in translator.terminal()
