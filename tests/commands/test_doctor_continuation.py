"""What the doctor says about answers that break off: whether another backend could continue them, and if not, what to do."""

from __future__ import annotations

from typing import Any

import pytest
from aiohttp import web

from tests.commands.doctor_report import CONTEXT, Report, examine, report, report_on
from tests.probing.simulated_backend import SimulatedBackend


def listing(**entry: Any) -> Report:
    """Examine a vLLM whose list of models says this."""
    backend = SimulatedBackend()

    @web.middleware
    async def list_models(request: web.Request, handler: Any) -> web.StreamResponse:
        if request.path.endswith("/models"):
            return web.json_response({"object": "list", "data": [{"id": "m", "object": "model", **entry}]})
        answer: web.StreamResponse = await handler(request)
        return answer

    backend.app.middlewares.insert(0, list_models)
    return report_on(backend)


def test_a_vllm_says_what_a_second_one_has_to_list(capsys: pytest.CaptureFixture[str]) -> None:
    examine()
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("broken answers")]
    assert f"continued by another vLLM backend that lists the same root m and max_model_len {CONTEXT}" in line


def test_another_server_cannot_continue_and_vllm_is_named() -> None:
    found = report(dialect="llamacpp")
    assert "not continued at another backend: llama.cpp cannot continue them. Only vLLM (0.32 or later)" in found.said("note")
    assert found.profile["checkpoint"] is None


def test_a_list_without_the_checkpoint_asks_the_operator_to_vouch() -> None:
    said = listing(owned_by="vllm", max_model_len=CONTEXT).said("note")
    assert "/v1/models does not list its root and max_model_len." in said
    assert "set continue_answers: 1." in said


def test_a_vllm_without_token_ids_is_too_old_or_behind_a_proxy() -> None:
    def change(body: dict[str, Any]) -> None:
        body.pop("return_token_ids", None)

    said = report(change=change).said("note")
    assert "the server sends no token ids. Use vLLM 0.32 or later" in said
