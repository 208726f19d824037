"""The simulator's output has the shape of recordings of vLLM."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from responses_gateway.simulator import DIALECTS, SimulatorOptions
from responses_gateway.wire.chat import decode_chunk
from responses_gateway.wire.sse import SSEDecoder
from tests.data_folder import STREAMS
from tests.simulator.chat_client import WEATHER, Ask


def recorded(name: str) -> list[dict[str, Any]]:
    payloads = SSEDecoder().feed((STREAMS / name).read_bytes())
    return [json.loads(payload) for payload in payloads if payload != b"[DONE]"]


def keys(value: Any) -> Any:
    """Return the skeleton of a JSON value: keys and kinds, without what differs between answers."""
    if isinstance(value, dict):
        # a token of the recordings may be part of a character, whose bytes are then not there
        return {key: "bytes" if key == "bytes" else keys(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return distinct(keys(entry) for entry in value)
    return None if value is None else type(value).__name__


def distinct(skeletons_seen: Iterable[Any]) -> list[Any]:
    found: list[Any] = []
    for skeleton in skeletons_seen:
        if skeleton not in found:
            found.append(skeleton)
    return found


def skeletons(chunks: list[dict[str, Any]]) -> list[Any]:
    """Return the different shapes of the chunks of a stream, in the order of their first appearance."""
    return distinct(keys(chunk) for chunk in chunks)


@pytest.mark.parametrize(
    ("recording", "fields"),
    [
        ("hermes/weather.0.sse", {}),
        ("hermes/weather.0.ids.sse", {"return_token_ids": True}),
        ("hermes/weather.0.cont.sse", {"stream_options": {"include_usage": True, "continuous_usage_stats": True}}),
        ("hermes/weather.0.logprobs.sse", {"logprobs": True, "top_logprobs": 2}),
        ("hermes/weather.0.cut-call.sse", {"max_tokens": 36}),
    ],
)
def test_chunks_of_a_call_have_the_shapes_of_the_recording(ask: Ask, recording: str, fields: dict[str, Any]) -> None:
    fields = {"stream_options": {"include_usage": True}, **fields}
    reply = ask("weather in Paris? scenario: tool", tools=[WEATHER], **fields)
    assert skeletons(reply.chunks) == skeletons(recorded(recording))
    assert reply.payloads[-1] == b"[DONE]"


def test_raw_markup_has_the_shapes_of_the_recording(ask: Ask) -> None:
    options = SimulatorOptions(dialect=DIALECTS["vllm-raw"])
    reply = ask("scenario: tool", options=options, tools=[WEATHER], tool_choice="none", stream_options={"include_usage": True})
    assert skeletons(reply.chunks) == skeletons(recorded("raw/weather.0.hermes.sse"))
    assert re.fullmatch(
        r'<think>\n.+\n</think>\n\n<tool_call>\n\{"name": "get_weather", "arguments": \{.+\}\}\n</tool_call>', reply.text()
    )


def test_several_tokens_per_chunk_share_deltas_as_in_the_recordings(ask: Ask) -> None:
    # The head of a call with its first arguments, and the end of the reasoning with the beginning of the text.
    recordings = recorded("hermes_interval/parallel.0.sse") + recorded("hermes_interval/think_text_tool.0.sse")
    wanted = [keys(delta) for delta in _crowded(recordings)]
    assert wanted
    found = []
    for size in range(2, 13):
        options = SimulatorOptions(dialect=replace(DIALECTS["vllm"], tokens_per_delta=size))
        found += [keys(delta) for delta in _crowded(ask("scenario: demo", options=options, tools=[WEATHER]).chunks)]
    assert [shape for shape in wanted if shape not in found] == []


def _crowded(chunks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the deltas that hold more than one thing."""
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks if chunk["choices"]]
    return [delta for delta in deltas if {"content", "reasoning"} <= set(delta) or len(delta.get("tool_calls") or ()) > 1]


def test_an_answer_without_stream_has_the_keys_of_the_recording(ask: Ask) -> None:
    lines = (STREAMS / "errors.txt").read_text(encoding="utf-8").splitlines()
    recording = json.loads(lines[lines.index("### bad role") + 2])
    recording["usage"]["prompt_tokens_details"].pop("multimodal_tokens")
    reply = ask("scenario: reasoning_only", stream=False)
    assert keys(reply.json) == keys(recording)
    assert reply.headers["content-type"].startswith("application/json")


def test_the_same_words_whatever_the_dialect(ask: Ask) -> None:
    # Field names, chunking and usage differ, but not what the model says.
    arguments = set()
    for name, dialect in DIALECTS.items():
        if not dialect.parses_calls or dialect.swallows_calls:
            continue
        reply = ask("scenario: tool", options=SimulatorOptions(dialect=dialect), tools=[WEATHER])
        for payload in reply.payloads[:-1]:
            decode_chunk(payload)
        if dialect.function_call:
            calls = [delta["function_call"] for delta in reply.deltas if "function_call" in delta]
            assert calls[0]["name"] == "get_weather", name
            arguments.add("".join(call.get("arguments", "") for call in calls))
            assert reply.finish_reason == "function_call"
        else:
            assert [call["name"] for call in reply.calls] == ["get_weather"], name
            arguments.add(reply.calls[0]["arguments"])
            assert reply.finish_reason == "tool_calls"
    assert arguments == {'{"city": "Paris", "unit": "celsius"}'}


@pytest.mark.parametrize(
    ("dialect", "field"), [("vllm", "reasoning"), ("sglang", "reasoning_content"), ("deepseek", "reasoning_content")]
)
def test_reasoning_comes_in_the_field_of_its_server_type(ask: Ask, dialect: str, field: str) -> None:
    reply = ask("scenario: reasoning", options=SimulatorOptions(dialect=DIALECTS[dialect]))
    assert "391" in reply.text(field)
    assert reply.text().strip() == "The answer is **391**."


def test_ollama_sends_a_call_in_one_piece(ask: Ask) -> None:
    reply = ask("scenario: tool", options=SimulatorOptions(dialect=DIALECTS["ollama"]), tools=[WEATHER])
    (delta,) = [delta for delta in reply.deltas if delta.get("tool_calls")]
    assert json.loads(delta["tool_calls"][0]["function"]["arguments"]) == {"city": "Paris", "unit": "celsius"}


def test_interleaved_calls_take_turns(ask: Ask) -> None:
    options = SimulatorOptions(dialect=DIALECTS["vllm-interleaved"])
    reply = ask("scenario: parallel", options=options, tools=[WEATHER])
    indices = [part["index"] for delta in reply.deltas for part in delta.get("tool_calls") or ()]
    assert indices != sorted(indices)
    assert [json.loads(call["arguments"])["city"] for call in reply.calls] == ["Rome", "Lima"]


def test_usage_adds_up_and_ids_count_its_tokens(ask: Ask) -> None:
    options = {"include_usage": True}
    reply = ask("scenario: parallel", tools=[WEATHER], return_token_ids=True, stream_options=options)
    usage = reply.chunks[-1]["usage"]
    ids = [number for chunk in reply.chunks if chunk["choices"] for number in chunk["choices"][0].get("token_ids") or ()]
    assert usage["completion_tokens"] == len(ids)
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert usage["prompt_tokens"] == len(reply.chunks[0]["prompt_token_ids"])
    assert len({call["id"] for call in reply.calls}) == 2


@pytest.mark.parametrize("mode", ["last", "every", "none"])
def test_usage_modes(ask: Ask, mode: str) -> None:
    name = {"last": "vllm", "every": "vllm-usage-every", "none": "vllm-usage-none"}[mode]
    reply = ask(options=SimulatorOptions(dialect=DIALECTS[name]), stream_options={"include_usage": True})
    with_usage = sum("usage" in chunk for chunk in reply.chunks)
    assert with_usage == {"last": 1, "every": len(reply.chunks), "none": 0}[mode]
    whole = "".join((chunk["choices"] or [{"delta": {}}])[0]["delta"].get("content") or "" for chunk in reply.chunks)
    assert "simulated model" in whole
