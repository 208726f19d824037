"""A finished response as a stream again: the same items, under the laws of a stream."""

from __future__ import annotations

import json
from typing import Any

import pytest

from responses_gateway.conformance.checker import check_stream
from responses_gateway.stream.stored import replay

ITEMS: list[dict[str, Any]] = [
    {
        "type": "reasoning",
        "id": "rs_1",
        "status": "completed",
        "summary": [{"type": "summary_text", "text": "hm"}],
        "content": [{"type": "reasoning_text", "text": "hm"}],
        "encrypted_content": "x",
    },
    {
        "type": "message",
        "id": "msg_1",
        "status": "completed",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "", "annotations": [], "logprobs": []}],
    },
    {
        "type": "message",
        "id": "msg_2",
        "status": "incomplete",
        "role": "assistant",
        "content": [{"type": "refusal", "refusal": "no"}],
    },
    {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "f", "arguments": "{}", "status": "completed"},
    {"type": "custom_tool_call", "id": "ctc_1", "call_id": "c2", "name": "g", "input": "text", "status": "completed"},
    {"type": "custom_tool_call", "id": "ctc_2", "call_id": "c3", "name": "g", "input": "", "status": "completed"},
    {"type": "function_call", "id": "fc_2", "call_id": "c4", "name": "f", "arguments": "", "status": "incomplete"},
    {"type": "compaction", "id": "cmp_1", "encrypted_content": "x"},
]


def response(status: str, items: list[dict[str, Any]]) -> str:
    incomplete = {"reason": "max_output_tokens"} if status == "incomplete" else None
    fields = {"incomplete_details": incomplete, "created_at": 1, "completed_at": 2 if status == "completed" else None}
    return json.dumps({"id": "resp_1", "object": "response", **fields, "model": "m", "status": status, "output": items})


def events(stream: bytes) -> list[dict[str, Any]]:
    return [json.loads(line[6:]) for line in stream.split(b"\n") if line.startswith(b"data: {")]


@pytest.mark.parametrize("item", ITEMS, ids=lambda item: item["id"])
def test_every_kind_of_item_comes_back(item: dict[str, Any]) -> None:
    status = "incomplete" if item.get("status") == "incomplete" else "completed"
    stream = replay(response(status, [item]), "response.reasoning_text")
    assert check_stream(stream, unfinished_allowed=True) == []
    done = [event["item"] for event in events(stream) if event["type"] == "response.output_item.done"]
    assert done == [item]


@pytest.mark.parametrize(
    ("status", "event"),
    [("completed", "completed"), ("incomplete", "incomplete"), ("failed", "failed"), ("cancelled", "failed")],
)
def test_it_ends_as_it_ended(status: str, event: str) -> None:
    text = response(status, ITEMS)
    stream = replay(text, "response.reasoning_text")
    assert stream.endswith(b"data: [DONE]\n\n")
    assert events(stream)[-1] == {**events(stream)[-1], "type": f"response.{event}", "response": json.loads(text)}
    (only,) = events(replay(text, "response.reasoning_text", after=41))
    assert (only["sequence_number"], only["response"]) == (42, json.loads(text))
