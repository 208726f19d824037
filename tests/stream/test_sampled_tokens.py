"""The ids that are kept are those that the server sent: on every recorded stream that has ids, raw and parsed."""

from __future__ import annotations

import json
from array import array
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from responses_gateway.server.features.rollouts.export import chain_of, pieces_of
from responses_gateway.server.features.rollouts.spans import shown
from responses_gateway.state.token_trees import CallTokens, KeptCall
from responses_gateway.stream.sampling import CallRecorder, SampledTokens
from tests.stream.recorded_servers import servers_of
from tests.stream.stream_player import DONE, event, new_translator
from tests.stream.test_recorded_streams import Recording, recordings
from tests.thoroughness import examples

WITH_IDS = [recording for recording in recordings() if b'"token_ids":[' in recording.data]
ALL_IDS = [recording for recording in recordings() if not recording.mislabelled]


def kept(pieces: list[bytes], **fields: Any) -> tuple[SampledTokens, str]:
    recorder = CallRecorder(hides_logprobs=True, shows=shown)
    translator = new_translator(recorder=recorder, **fields)
    translator.start()
    for piece in pieces:
        translator.feed(piece)
    translator.finish()
    [call] = recorder.calls
    return call.tokens(), translator.response.json()


def sent(data: bytes) -> tuple[list[int], list[int]]:
    """Return the ids of prompt and answer, read apart from the gateway."""
    chunks = [json.loads(line[6:]) for line in data.splitlines() if line.startswith(b"data: {")]
    prompt = next(chunk["prompt_token_ids"] for chunk in chunks if chunk.get("prompt_token_ids"))
    return prompt, [number for chunk in chunks for choice in chunk["choices"] for number in choice.get("token_ids") or ()]


@pytest.mark.parametrize("recording", WITH_IDS, ids=lambda each: f"{each.setting}-{each.name}")
def test_the_ids_of_every_recording_that_has_them_are_kept(recording: Recording) -> None:
    tokens, _ = kept([recording.data])
    prompt, ids = sent(recording.data)
    assert len(ids) == recording.entry["server"]["usage"]["completion_tokens"]
    assert tokens.prompt == array("q", prompt)
    assert tokens.ids == array("q", ids)
    assert tokens.reason == "no_log_probs"


@settings(max_examples=examples(30), deadline=None)
@given(st.sampled_from(ALL_IDS), st.data())
def test_the_ids_are_kept_however_the_body_is_cut(recording: Recording, data: st.DataObject) -> None:
    """Give the other recordings the ids that the model's own tokenizer tells."""
    servers = servers_of(recording)
    body = b"".join(servers.chunks)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(body)), max_size=8)))
    pieces = [body[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(body)], strict=True)]
    tokens, _ = kept(pieces)
    assert tokens.ids == array("q", servers.ids)
    assert tokens.prompt == array("q", servers.prompt)


def choice(ids: list[int] | None, text: str = "", finish: str | None = None, log_probs: list[float] | None = None) -> bytes:
    entries = None if log_probs is None else {"content": [{"token": "x", "logprob": each} for each in log_probs]}
    body = {"index": 0, "delta": {"content": text}, "token_ids": ids, "finish_reason": finish, "logprobs": entries}
    return event({"choices": [body], "prompt_token_ids": [1, 2]})


def counted(tokens: int) -> bytes:
    return event({"choices": [], "usage": {"prompt_tokens": 2, "completion_tokens": tokens, "total_tokens": 2 + tokens}})


def test_log_probabilities_are_kept_and_seen_by_nobody_else() -> None:
    pieces = [choice([3], "a", log_probs=[-0.5]), choice([4, 5], "b", log_probs=[-1.0, -2.5]), choice([6], "", "stop", [0.0])]
    tokens, response = kept([*pieces, DONE])
    assert tokens.log_probs == array("d", [-0.5, -1.0, -2.5, 0.0])
    [item] = json.loads(response)["output"]
    assert item["content"][0]["logprobs"] == []
    assert (item["prompt_token_ids"], item["generation_token_ids"]) == ([1, 2], [3, 4, 5, 6])
    assert item["generation_log_probs"] == [-0.5, -1.0, -2.5, 0.0]


@pytest.mark.parametrize(
    ("pieces", "reason"),
    [
        ([event({"choices": [{"delta": {"content": "a"}, "finish_reason": "stop"}]})], "no_token_ids"),
        ([choice([3], "a"), choice(None, "b"), choice([4], "", "stop")], "incomplete_token_ids"),
        ([choice([3], "a")], "broke_off"),
        ([choice([3], "a"), choice([4], "", "abort")], "broke_off"),
        ([event({"choices": [{"delta": {"content": "a"}, "token_ids": [3], "finish_reason": "stop"}]})], "no_prompt_token_ids"),
        ([choice([2**63], "a"), choice([3], "", "stop")], "incomplete_token_ids"),
        ([choice([3], "a"), choice(None), choice([4], "", "stop"), counted(3)], "incomplete_token_ids"),
        ([choice([3], "a", None, [-0.5]), choice([4], "", "stop", [0.0]), counted(3)], "incomplete_token_ids"),
        ([choice([3], "a"), choice([4], "", "stop"), counted(2)], "no_log_probs"),
        ([choice([3], "a", log_probs=[-0.5]), choice([4], "", "stop")], "no_log_probs"),
    ],
)
def test_what_is_missing_has_a_reason(pieces: list[bytes], reason: str) -> None:
    tokens, response = kept([*pieces, DONE])
    assert tokens.reason == reason
    assert "prompt_token_ids" not in response


@pytest.mark.parametrize(
    "last", [{"choices": [], "prompt_token_ids": [1, 2]}, {"choices": [{"delta": {}}], "prompt_token_ids": [1, 2]}]
)
def test_a_server_may_send_the_ids_of_the_prompt_at_the_end(last: dict[str, Any]) -> None:
    end = {"delta": {"content": "a"}, "token_ids": [3], "finish_reason": "stop"}
    tokens, _ = kept([event({"choices": [end]}), event(last), DONE])
    assert (tokens.prompt, tokens.ids) == (array("q", [1, 2]), array("q", [3]))


@pytest.mark.parametrize("index", [0, 1])
@pytest.mark.parametrize("together", [False, True])
def test_the_tokens_of_an_answer_are_not_certain_if_there_is_another_choice(index: int, together: bool) -> None:
    def part(index: int, text: str, ids: list[int], finish: str | None = None) -> dict[str, Any]:
        logprobs = {"content": [{"token": text, "logprob": -0.5}]}
        return {"index": index, "delta": {"content": text}, "token_ids": ids, "finish_reason": finish, "logprobs": logprobs}

    both = [part(1 - index, "x", [8]), part(index, "b", [4], "stop")]
    pieces = [event({"choices": [part(index, "a", [3])], "prompt_token_ids": [1, 2]})]
    pieces += [event({"choices": both})] if together else [event({"choices": [each]}) for each in both]
    tokens, response = kept([*pieces, DONE])
    assert (tokens.ids, tokens.reason) == (None, "incomplete_token_ids")
    assert json.loads(response)["output"][-1]["content"][0]["text"] == "ab"


@pytest.mark.parametrize("place", ["chunk", "choice"])
def test_a_server_may_send_all_ids_at_the_end(place: str) -> None:
    """Read them as SGLang sends them, and the version of the weights as vLLM does."""
    told = {"sglext": {"input_ids": [1, 2], "output_ids": [3, 4]}}
    first = event({"choices": [{"delta": {"content": "a"}, "logprobs": {"content": [{"token": "a", "logprob": -1.5}]}}]})
    last: dict[str, Any] = {"delta": {}, "finish_reason": "stop", "logprobs": {"token_logprobs": [-0.5, None]}}
    last["weight_versions"] = [{"version": "v1", "start": 0, "end": 1}, {"version": 7, "start": 1, "end": 2}]
    whole = {"choices": [{**last, **told}]} if place == "choice" else {"choices": [last], **told}
    tokens, _ = kept([first, event(whole), DONE])
    assert tokens == (array("q", [1, 2]), array("q", [3, 4]), array("d", [-1.5, -0.5]), "stop", "7", None)


@pytest.mark.parametrize(
    "fields",
    [
        {"sglext": None},
        {"sglext": 3},
        {"sglext": {"input_ids": [2**70], "output_ids": "x"}},
        {"sglext": {"output_ids": [2**63]}},
        {"weight_versions": {}},
        {"weight_versions": [{"version": None}]},
    ],
)
def test_what_a_server_tells_wrongly_is_left_out(fields: dict[str, Any]) -> None:
    chunk = {"choices": [{"delta": {"content": "a"}, "finish_reason": "stop", **fields}], **fields}
    tokens, response = kept([event(chunk), DONE])
    assert tokens.ids is None
    assert json.loads(response)["status"] == "completed"


def kept_call(name: str, prompt: list[int] | None, ids: list[int], log_probs: array[float] | None, unbroken: bool) -> KeptCall:
    tokens = CallTokens(None if prompt is None else array("q", prompt), array("q", ids), log_probs)
    return KeptCall(name, name, None, None, b"{}", tokens, unbroken)


def calls(*parts: tuple[list[int] | None, list[int], bool]) -> list[KeptCall]:
    return [
        kept_call(str(number), prompt, ids, array("d", [-1.0] * len(ids)), on) for number, (prompt, ids, on) in enumerate(parts)
    ]


def test_a_chain_has_what_is_new_of_each_prompt_and_begins_anew_where_it_is_broken() -> None:
    chain = chain_of(
        calls(([1, 2], [3], False), ([1, 2, 3, 4], [5, 6], True), ([1, 9], [7], False), (None, [8], True), ([1, 9], [2], True))
    )
    assert chain.token_ids == [1, 2, 3, 4, 5, 6, 1, 9, 7, 1, 9, 2]
    assert chain.mask == [0, 0, 1, 0, 1, 1, 0, 0, 1, 0, 0, 1]
    assert chain.log_probs == [0.0, 0.0, -1.0, 0.0, -1.0, -1.0, 0.0, 0.0, -1.0, 0.0, 0.0, -1.0]
    assert chain.breaks == [6, 9]
    assert chain.call_ids == ["0", "1", "2", "4"]


def test_the_parts_of_a_chain_are_those_between_breaks() -> None:
    pieces = pieces_of(calls(([1], [2], False), ([1, 2, 3], [4], True), (None, [5], True), ([1], [2], True), ([7], [8], False)))
    assert [piece.call_ids for piece in pieces] == [["0", "1"], ["3"], ["4"]]
    assert [piece.token_ids for piece in pieces] == [[1, 2, 3, 4], [1, 2], [7, 8]]
    unknown = chain_of([kept_call("0", [1], [2], None, unbroken=False)])
    assert unknown.log_probs == [0.0, None]
