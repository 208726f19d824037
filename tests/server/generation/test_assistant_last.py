"""Conversations that end with the model's own text: Codex repeats a request with what it has of an answer that broke off."""

from __future__ import annotations

from tests.server.generation.test_refused_requests import TWO_CALLS, say, served_by, wanting
from tests.server.running_gateway import run


def test_an_answer_that_broke_off_is_asked_for_again_where_the_assistant_must_not_stand_last() -> None:
    async def test() -> None:
        llamacpp = wanting(r".*[^a]$", "Assistant response prefill is incompatible with enable_thinking.", 400)
        async with served_by([llamacpp]) as (served, (server,)):
            asked = {"input": [*TWO_CALLS, {"role": "assistant", "content": "I look."}], "instructions": "Be good."}
            for _ in range(2):
                assert (await say(served, "responses", **asked)).known["status"] == "completed"
            assert len(server.requests) == 3
            refused, sent = (server.requests[place]["messages"] for place in (0, -1))
            assert (sent[:-1], sent[-1]["content"]) == (refused, "Go on.")
            await say(served, "responses", input=TWO_CALLS, instructions="Be good.")
            assert server.requests[-1]["messages"] == refused[:-1]

    run(test())
