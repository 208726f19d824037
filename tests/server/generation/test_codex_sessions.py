"""The model that Codex names for reviews, which no backend serves: the model of its session answers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from responses_gateway.server.generation.preparation.codex_sessions import REVIEW_MODEL, CodexSessions
from responses_gateway.simulator import SimulatorOptions
from responses_gateway.wire.requests import ResponsesRequest
from tests.server.running_gateway import Answer, Reachable, assert_error, post, run, simulated


def headers(session: str) -> dict[str, str]:
    return {"originator": "codex_exec", "session-id": session}


async def ask(served: Reachable, model: str, session: str, **fields: Any) -> Answer:
    return await post(served, model=model, headers=headers(session), **fields)


@pytest.mark.parametrize("stream", [True, False])
def test_a_review_is_answered_by_the_model_of_its_session(stream: bool) -> None:
    async def test() -> None:
        async with simulated(SimulatorOptions(models=("qwen3", "tiny"), strict_models=True)) as served:
            assert_error(await ask(served, REVIEW_MODEL, "one", stream=stream), 404, "model_not_found")
            await ask(served, "qwen3", "one")
            await ask(served, "tiny", "two")
            for session, model in (("one", "qwen3"), ("two", "tiny"), ("three", "tiny")):
                answer = await ask(served, REVIEW_MODEL, session, stream=stream)
                response = answer.final if stream else json.loads(answer.body)
                assert (answer.status, response["model"]) == (200, model)

    run(test())


def test_sessions_of_other_tenants_are_not_known_and_old_ones_are_forgotten() -> None:
    sessions = CodexSessions()
    review = ResponsesRequest(model=REVIEW_MODEL, input="x")
    for number in range(3000):
        sessions.with_model(ResponsesRequest(model=f"m{number}", input="x"), "a", f"s{number}")
    assert sessions.with_model(review, "b", "s2999").model == REVIEW_MODEL
    assert sessions.with_model(review, "a", "s2999").model == "m2999"
    assert sessions.with_model(review, "a", "s2500").model == "m2500"
    assert sessions.with_model(review, "a", "s0").model == "m2999"
    known = [number for number in range(3000) if sessions.with_model(review, "a", f"s{number}").model == f"m{number}"]
    assert 500 < len(known) <= 1024


def test_a_tenant_of_many_sessions_makes_another_one_forget_none() -> None:
    sessions = CodexSessions()
    review = ResponsesRequest(model=REVIEW_MODEL, input="x")
    sessions.with_model(ResponsesRequest(model="m", input="x"), "quiet", "s")
    sessions.with_model(ResponsesRequest(model="other", input="x"), "quiet", "t")
    for number in range(3000):
        sessions.with_model(ResponsesRequest(model="m", input="x"), "busy", f"s{number}")
    assert sessions.with_model(review, "quiet", "s").model == "m"


@pytest.mark.parametrize(("kind", "scenario", "status"), [
    ("compaction", "empty", "failed"),
    ("compaction", "reasoning_only", "completed"),  # the thought is shown as the answer
    ("compaction", "plain", "completed"),
    ("turn", "empty", "completed"),
])  # fmt: skip
def test_a_summary_that_says_nothing_is_a_failure(kind: str, scenario: str, status: str) -> None:
    """Codex would put it in the place of the session. It asks again after a failure, and keeps what it has."""

    async def test() -> None:
        async with simulated() as served:
            named = {**headers("one"), "x-codex-turn-metadata": json.dumps({"request_kind": kind})}
            response = (await post(served, input=f"scenario: {scenario}", headers=named)).final
            assert response["status"] == status
            assert status == "completed" or response["error"]["message"] == "The model wrote no summary."

    run(test())
