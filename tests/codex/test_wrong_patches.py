"""Patches that do not match Codex's own grammar of them: what the gateway makes of them, and what Codex then does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.codex.codex_cli import Codex
from tests.codex.servers import StartStage

pytest.importorskip("re2", reason="the extra `grammars` is not installed")

_HELLO = {"hello.txt": "Hello from the simulator.\n"}


def corrections(chats: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [chat for chat in chats if not chat.get("stream")]


def test_a_patch_is_corrected_before_codex_sees_it(tmp_path: Path, start_stage: StartStage) -> None:
    stage = start_stage(repair_custom_tools="once")
    codex = Codex(tmp_path, stage.url)
    codex.use_catalog(apply_patch_tool_type="freeform")
    run = codex.run("scenario: wrong_patch")
    assert (run.code, run.errors) == (0, [])
    assert codex.files() == _HELLO
    [asked] = corrections(stage.chats)
    assert "*** Add File: " in asked["messages"][0]["content"]  # the grammar, as Codex declares it
    assert "Add File" in asked["structured_outputs"]["regex"]


def test_a_patch_that_is_right_costs_nothing(tmp_path: Path, start_stage: StartStage) -> None:
    stage = start_stage(repair_custom_tools="once")
    codex = Codex(tmp_path, stage.url)
    codex.use_catalog(apply_patch_tool_type="freeform")
    assert codex.run("scenario: patch").code == 0
    assert codex.files() == _HELLO
    assert corrections(stage.chats) == []


def test_without_correction_codex_tells_the_model(tmp_path: Path, start_stage: StartStage) -> None:
    stage = start_stage()
    codex = Codex(tmp_path, stage.url)
    codex.use_catalog(apply_patch_tool_type="freeform")
    assert codex.run("scenario: wrong_patch").code == 0
    assert codex.files() == {}
    told = [message["content"] for message in stage.chats[-1]["messages"] if message["role"] == "tool"]
    assert "End Patch" in told[-1]
