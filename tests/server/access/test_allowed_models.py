"""Models that a key and its team may use: for others, the rest does not exist."""

from __future__ import annotations

from typing import Any

import aiohttp
import pytest

from responses_gateway.settings.keys import hash_of
from tests.server.running_gateway import Answer, Served, ask, assert_error, post, run, simulated

ALICE = "rp_alice-0123456789"
HEADERS = {"Authorization": f"Bearer {ALICE}"}


def settings(models: list[str] | None, of_team: list[str] | None = None) -> dict[str, Any]:
    key = {"hash": hash_of(ALICE), "team": "red", "models": models}
    return {"teams": {"red": {"models": of_team}}, "api_keys": {"alice": key}}


async def asked(served: Served, path: str = "/v1/responses", **body: Any) -> Answer:
    return await ask(served, "POST", path, json=body, headers=HEADERS)


@pytest.mark.parametrize(
    ("models", "of_team", "allowed"),
    [
        (["simulator"], None, True), (["simu*", "x"], ["*or"], True), (None, ["other"], False), (["other"], None, False),
        (["simulator"], ["other"], False), (["sim.lator"], None, False), (["*"], None, True),
    ],
)  # fmt: skip
def test_both_lists_count(models: list[str] | None, of_team: list[str] | None, allowed: bool) -> None:
    async def test() -> None:
        async with simulated(**settings(models, of_team)) as served:
            answer = await post(served, headers=HEADERS)
            listed = (await ask(served, "GET", "/v1/models", headers=HEADERS)).json
            one = await ask(served, "GET", "/v1/models/simulator", headers=HEADERS)
            assert answer.status == one.status == (200 if allowed else 404)
            assert [model["id"] for model in listed["data"]] == (["simulator"] if allowed else [])
            assert len(listed["models"]) == allowed

    run(test())


@pytest.mark.parametrize(("models", "served_as"), [(["simulator"], "simulator"), (None, "other"), (["other"], "other")])
def test_a_name_of_anthropic_means_a_model_that_the_key_may_use(models: list[str] | None, served_as: str) -> None:
    """Claude Code asks for such names beside its main model."""

    async def test() -> None:
        async with simulated(**settings(models), messages_model="other") as served:
            body = {"max_tokens": 99, "messages": [{"role": "user", "content": "hi"}]}
            answer = await asked(served, "/v1/messages", model="claude-haiku-9", **body)
            assert answer.status == 200
            assert served.metric("tokens_total", model=served_as, kind="input") > 0

    run(test())


def test_a_hidden_model_cannot_be_reached_by_any_path() -> None:
    async def test() -> None:
        async with simulated(**settings(["seen"])) as served:
            hidden = {"model": "simulator", "input": "hi", "messages": [{"role": "user", "content": "hi"}]}
            for path in ("/v1/responses", "/v1/responses/compact", "/v1/responses/input_tokens", "/v1/chat/completions"):
                message = assert_error(await asked(served, path, **hidden), 404, "model_not_found")
                assert message == "The model `simulator` does not exist."
            decision = {"questions": [{"type": "predicate", "instructions": "x"}]}
            decided = await asked(served, "/v1/decisions", model="simulator", input="hi", **decision)
            assert_error(decided, 404, "model_not_found")
            # A backend may answer with any model where the body names none, or cannot be read as JSON.
            assert_error(await asked(served, "/v1/chat/completions", messages=[]), 404, "model_not_found")
            form = {"data": {"model": "simulator"}, "headers": HEADERS}
            assert_error(await ask(served, "POST", "/v1/audio/transcriptions", **form), 404, "model_not_found")
            session = aiohttp.ClientSession(headers=HEADERS)
            async with session, session.ws_connect(f"{served.url}/v1/responses") as socket:
                await socket.send_json({"type": "response.create", **hidden})
                assert (await socket.receive_json())["error"]["code"] == "model_not_found"

    run(test())
