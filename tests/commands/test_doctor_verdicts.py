"""What the doctor says about servers of many kinds and settings: the verdict of an expert, and the flag that mends it.

`make servers` asks the same of real servers.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web

from tests.commands.doctor_report import report

WORKS = "works"
WITH_SETTINGS = "works with the settings below"


@dataclass(frozen=True)
class Case:
    """A server, the expected verdict, what the findings must name, and the settings that are recommended."""

    dialect: str
    verdict: str
    named: tuple[str, ...] = ()
    settings: dict[str, Any] = field(default_factory=dict)
    model: str = "m"


_END = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}

CASES = {
    "vLLM with fitting parsers": Case("vllm", WORKS),
    "vLLM without parsers": Case(
        "vllm-raw",
        WITH_SETTINGS,
        ("--enable-auto-tool-choice --tool-call-parser hermes --reasoning-parser qwen3",),
        {"reasoning_parser": "qwen3", "tool_call_parser": "hermes"},
    ),
    "vLLM without parsers, calls as XML": Case(
        "vllm-raw-xml",
        WITH_SETTINGS,
        ("--tool-call-parser qwen3_coder --reasoning-parser qwen3",),
        {"reasoning_parser": "qwen3", "tool_call_parser": "qwen3_coder"},
    ),
    "vLLM with a reasoning parser alone": Case(
        "vllm-reasoning-only",
        WITH_SETTINGS,
        ("--enable-auto-tool-choice --tool-call-parser hermes.",),
        {"tool_call_parser": "hermes"},
    ),
    "vLLM with a tool parser alone": Case(
        "vllm-tools-only", WITH_SETTINGS, ("--reasoning-parser qwen3.",), {"reasoning_parser": "qwen3"}
    ),
    "vLLM whose tool parser does not fit the model": Case(
        "vllm-wrong-tool-parser",
        WITH_SETTINGS,
        ("does not fit the model", "--enable-auto-tool-choice --tool-call-parser qwen3_coder."),
        {"tool_call_parser": "qwen3_coder"},
    ),
    "SGLang": Case("sglang", WITH_SETTINGS, settings={"reasoning_field": "reasoning_content"}),
    "llama.cpp": Case(
        "llamacpp",
        WITH_SETTINGS,
        ("The server ignores a tool_choice that names a function.",),
        {"reasoning_field": "reasoning_content", "named_tool_choice": "required"},
    ),
    "transformers serve": Case(
        "transformers",
        WITH_SETTINGS,
        ("The server refuses fields that the gateway adds: chat_template_kwargs, return_token_ids.", "generation_config.json"),
        {"reasoning_field": "reasoning_content", "default_max_output_tokens": 32768},
    ),
}


@pytest.mark.parametrize("server", CASES)
def test_the_verdict_is_that_of_an_expert(server: str) -> None:
    case = CASES[server]
    found = report(dialect=case.dialect, model=case.model)
    said = "\n".join(found.said(level) for level in ("error", "warning", "note"))
    assert found.verdict == case.verdict, said
    assert [words for words in case.named if words not in said] == []
    assert found.settings == case.settings
    assert found.said("error") == ""


def test_a_server_that_hides_the_tools_without_a_parser_has_to_be_restarted() -> None:
    # Then its own settings are the only remedy. The markup is found by the ids of the tokens, or in an answer at once.
    def change(body: dict[str, Any]) -> web.Response | None:
        if body.get("tool_choice") == "none":
            body.pop("tools", None)
            body.pop("tool_choice", None)
        return None

    found = report(dialect="vllm-wrong-tool-parser", change=change)
    assert found.verdict == "broken"
    assert "--enable-auto-tool-choice --tool-call-parser qwen3_coder." in found.said("error")
    assert "tool_call_parser: qwen3_coder" in found.said("error")
    assert found.settings == {}


def test_without_ids_the_answer_in_one_piece_shows_the_call() -> None:
    def change(body: dict[str, Any]) -> web.Response | None:
        body.pop("return_token_ids", None)
        if body.get("tool_choice") == "none":
            body.pop("tools", None)
            body.pop("tool_choice", None)
        return None

    found = report(dialect="vllm-wrong-tool-parser", change=change, model="sim-tool")
    assert found.profile["calls"] == "swallowed"
    assert "--tool-call-parser qwen3_coder." in found.said("error")


def test_a_reasoning_parser_that_does_not_fit() -> None:
    # The end of the thought was not recognised: markup, and all that follows, is in the reasoning.
    chunks = [
        {"reasoning": "Let me see.</think>\n\nThe answer is 391."},
    ]

    def change(body: dict[str, Any]) -> web.Response | None:
        if "step by step" not in body["messages"][0]["content"]:
            return None
        lines = [*({"choices": [{"index": 0, "delta": delta}]} for delta in chunks), _END]
        text = "".join(f"data: {json.dumps(line)}\n\n" for line in lines) + "data: [DONE]\n\n"
        return web.Response(text=text, content_type="text/event-stream")

    found = report(change=change)
    assert "reasoning parser of the server does not fit" in found.said("warning")
    assert "--reasoning-parser qwen3." in found.said("warning")
