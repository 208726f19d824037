"""The tokens of each item: exact or not told, and the same however an answer was cut into chunks."""

from __future__ import annotations

import json
from array import array
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from responses_gateway import parsers
from responses_gateway.server.features.rollouts.spans import ItemSpan, item_spans
from responses_gateway.stream.reading.markup import Markup
from responses_gateway.stream.sampling import CallRecorder, SampledTokens
from tests.stream.recorded_servers import RecordedServers, decode, servers_of
from tests.stream.stream_player import DONE, event, new_translator
from tests.stream.test_recorded_streams import Recording, recordings
from tests.thoroughness import examples

pytestmark = pytest.mark.untraced  # because other tests run the same lines

RECORDINGS = [recording for recording in recordings() if not recording.mislabelled]


def played(body: list[bytes], **fields: Any) -> tuple[list[dict[str, Any]], list[ItemSpan] | None]:
    """Return the items of an answer, and their spans."""
    recorder = CallRecorder(hides_logprobs=True, shows=None)
    translator = new_translator(recorder=recorder, **fields)
    translator.start()
    for data in body:
        translator.feed(data)
    translator.finish()
    [call] = recorder.calls
    items = [json.loads(item) for item in translator.writer.done]
    return items, item_spans(call.texts, call.tokens(), items)


def with_texts(chunks: list[bytes]) -> list[dict[str, Any]]:
    """Return the events of a recording with the log probabilities that vLLM sends, where each token is decoded by itself."""
    events = [json.loads(chunk[6:]) for chunk in chunks if chunk.startswith(b"data: {")]
    for each in events:
        for choice in each["choices"]:
            entries = [{"token": decode([number]), "logprob": -0.5} for number in choice.get("token_ids") or ()]
            choice["logprobs"] = {"content": entries} if entries else None
    return events


def raw(servers: RecordedServers, sizes: list[int]) -> list[bytes]:
    """Return the same tokens as a server without parsers sends them: `sizes` are how many of them each chunk has."""
    ids = servers.ids
    chunks: list[bytes] = []
    begin = 0
    while begin < len(ids):
        end = min(len(ids), begin + sizes[len(chunks) % len(sizes)])
        text = "".join(servers.texts[begin:end]).removesuffix("<|im_end|>")
        entries = [{"token": decode([number]), "logprob": -0.5} for number in ids[begin:end]]
        finish = ("length" if servers.cut else "stop") if end == len(ids) else None
        choice = {"delta": {"content": text}, "token_ids": ids[begin:end], "logprobs": {"content": entries}}
        prompt = {} if begin else {"prompt_token_ids": servers.prompt}
        chunks.append(event({"choices": [{**choice, "finish_reason": finish}], **prompt}))
        begin = end
    return [*chunks, DONE]


def reader() -> Markup:
    def new_parser(*, thinking_open: bool | None) -> parsers.Parser:
        return parsers.parser("auto", "auto", schemas={}, thinking_open=thinking_open)

    return Markup(new_parser)


def check(ids: list[int], items: list[dict[str, Any]], spans: list[ItemSpan]) -> None:
    """The tokens of texts are exactly these texts, a call's have its name, and none belongs to two items, nor any marker."""
    assert [span.item_id for span in spans] == [item["id"] for item in items]
    assert all(one.end <= other.start for one, other in pairwise(spans))
    for item, span in zip(items, spans, strict=True):
        text = decode(ids[span.start : span.end])
        assert text.strip()
        if item["type"] in ("reasoning", "message"):
            assert text.strip().rstrip("\ufffd") == item["content"][0]["text"].strip()
        else:
            assert item["name"] in text
        assert not {"<think>", "</think>", "<tool_call>", "</tool_call>", "<|im_end|>"} & set(
            map(decode, ([number] for number in ids[span.start : span.end]))
        )


@pytest.mark.parametrize("setting", sorted({recording.setting for recording in RECORDINGS}))
def test_the_items_of_recorded_answers_have_exactly_their_tokens(setting: str) -> None:
    told = 0
    for recording in RECORDINGS:
        if recording.setting == setting:
            servers = servers_of(recording)
            items, spans = played([*map(event, with_texts(servers.chunks)), DONE])
            if spans is not None:
                check(servers.ids, items, spans)
                told += 1
    assert told >= 5


@settings(max_examples=examples(40), deadline=None)
@given(st.sampled_from(RECORDINGS), st.lists(st.integers(1, 9), min_size=1, max_size=9))
def test_every_cut_of_the_same_tokens_gives_the_same_spans(recording: Recording, sizes: list[int]) -> None:
    servers = servers_of(recording)
    items, spans = played(raw(servers, [1]), markup=reader())
    others, same = played(raw(servers, sizes), markup=reader())
    assert [item["id"] for item in others] == [item["id"] for item in items]
    assert same == spans
    if spans is not None:
        check(servers.ids, items, spans)


def message(text: str, item_id: str = "msg_1") -> dict[str, Any]:
    return {"type": "message", "id": item_id, "content": [{"type": "output_text", "text": text}]}


CALL = {"type": "function_call", "id": "fc_1", "name": "weather"}
THOUGHT = {"type": "reasoning", "id": "rs_1", "content": [{"type": "reasoning_text", "text": "So"}]}


@pytest.mark.parametrize(
    ("texts", "finish", "items", "spans"),
    [
        (["a", " b", "<|im_end|>"], "stop", [message("a b")], [(0, 2)]),
        (["So", "</think>", "\n\n", "a", "</s>"], "stop", [THOUGHT, message("a")], [(0, 1), (3, 4)]),
        (["<think>", "\n", "</think>", "a"], "length", [message("a")], [(3, 4)]),
        (["x", "\ufffd", "\ufffd", "y"], "length", [message("x世y")], [(0, 4)]),
        (["x", "\ufffd", "y", "\ufffd", "z"], "length", [message("x世y界z")], [(0, 5)]),
        (['[{"', "weather", '"}]', "<|eot_id|>"], "stop", [CALL], [(0, 3)]),
        # What the items say is not what was sampled, or it is not certain which tokens say it.
        (["x", "\ufffd", "y", "\ufffd", "z"], "length", [message("x世z")], None),
        (["x", "\ufffd", "y"], "length", [message("xy世")], None),
        (["token_id:7", "token_id:8"], "length", [message("ab")], None),
        (["I ", "weather", "!"], "stop", [CALL], None),
        (["<tool_call>", "a", "</tool_call>"], "stop", [CALL], None),
        (["<tool_call>", "a", "</tool_call>"], "stop", [message("a")], None),
        (["So", "</think>", "So"], "stop", [THOUGHT, message("So"), message("So")], None),
        (["a"], "stop", [], None),
        ([], "stop", [], []),
    ],
)
def test_what_is_not_certain_is_not_told(
    texts: list[str], finish: str, items: list[dict[str, Any]], spans: list[tuple[int, int]] | None
) -> None:
    ids = array("q", range(len(texts)))
    told = item_spans(texts, SampledTokens(None, ids, None, finish, None, None), items)
    assert (None if told is None else [(span.start, span.end) for span in told]) == spans
