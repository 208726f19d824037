"""Rollouts in front of a server that refuses the form of their messages: each turn continues the one before all the same."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from tests.server.generation.test_refused_requests import disorderly, refusing, strict_about, wanting
from tests.server.reports.chat_server import Json, serving
from tests.server.running_gateway import ask, gateway, post, run

CALLS = [{"index": at, "id": f"call-{at}", "function": {"name": "f", "arguments": '{"a": 1}'}} for at in (0, 1)]
TOOL = {"type": "function", "name": "f", "parameters": {"type": "object"}}
FORMAT = {"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}}}
NO_SYSTEM = wanting(r"(?!s)", "System role not supported", 400)
SINGLE_CALLS = wanting(r"(?!.*tt)", "This model only supports single tool-calls at once!", 500)
NO_TOOL_ROLE = wanting(r"[^ct]*$", "Tool messages are not supported", 400)
NO_EMPTY_CONTENT = strict_about("messages: text content blocks must be non-empty", "")
# As DeepSeek says it. What the model is told in its place, each request says again.
NO_FORMAT = refusing(
    "response_format.json_schema",
    {"status": 400, "json": {"error": {"message": "This response_format type is unavailable now"}}},
)


@pytest.mark.parametrize("text", ["", "I look."])
@pytest.mark.parametrize(
    ("rules", "refused"),
    [
        ([], 0),
        ([NO_SYSTEM], 1),
        ([disorderly()], 1),
        ([NO_SYSTEM, disorderly()], 2),
        ([SINGLE_CALLS], 1),
        ([NO_TOOL_ROLE], 1),
        ([NO_EMPTY_CONTENT], None),
        ([NO_FORMAT], None),
        ([NO_FORMAT, NO_SYSTEM], None),
    ],
)
def test_a_form_that_is_learned_on_the_way_breaks_no_chain(rules: list[Json], refused: int | None, text: str) -> None:
    async def test() -> None:
        said: list[Any] = [{"delta": {"content": text, "tool_calls": CALLS}}, {"finish": "tool_calls"}, {"usage": True}, "DONE"]
        backend = {"rules": rules, "answers": [{"events": said}]}
        async with serving(backend, {"m": "someone", "other": "someone"}, 1) as server, gateway(f"{server.url}/v1") as served:
            items: list[Json] = [{"role": "user", "content": "hi"}, {"role": "user", "content": "quick"}]
            asked = {"model": "m", "instructions": "Be good.", "tools": [TOOL], "text": FORMAT, "stream": False}
            for turn in range(4):
                answer = await post(served, {**asked, "input": items}, headers={"X-Rollout-Id": "ep1"})
                assert answer.status == 200, answer.body
                made = [item for item in answer.json["output"] if item["type"] == "function_call"]
                results = [{"type": "function_call_output", "call_id": call["call_id"], "output": f"{turn}"} for call in made]
                items = [*items, *answer.json["output"], *results]
            kept = (await ask(served, "GET", "/rollouts/ep1")).json["calls"]
        if refused is not None:
            assert len(server.requests) == 4 + refused
        assert len(kept) == 4
        assert [later["parent"] for _, later in pairwise(kept)] == [earlier["id"] for earlier, _ in pairwise(kept)]

    run(test())
