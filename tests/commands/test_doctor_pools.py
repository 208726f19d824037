"""`responses-gateway doctor --config`: which backends the sources of pools name, and what is wrong with these."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from responses_gateway.cli import main
from tests.backend.discovery.api_server import api_server, endpoint


def examine(tmp_path: Path, capsys: pytest.CaptureFixture[str], **pools: Any) -> tuple[int, str]:
    config = tmp_path / "gateway.yaml"
    config.write_text(json.dumps({"pools": pools}), encoding="utf-8")
    status = main(["doctor", "--config", str(config), "--timeout", "20"])
    return status, capsys.readouterr().out


def test_each_member_is_shown_with_its_source(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def test() -> tuple[int, str]:
        async with api_server(tmp_path) as server:
            leaving = endpoint("10.0.0.2", "b", ready=False, serving=True, terminating=True)
            server.put("a", "vllm", [endpoint("10.0.0.1", "a"), leaving])
            pool = {"kubernetes": "models/vllm", "api": server.url, "credentials": str(tmp_path)}
            return await asyncio.to_thread(examine, tmp_path, capsys, chat=pool)

    status, said = asyncio.run(test())
    assert status == 0
    assert "chat (kubernetes): 2 backends" in said
    assert "10.0.0.1:8000  ready  vllm-a" in said
    assert "10.0.0.2:8000  draining  vllm-b" in said


def test_a_service_that_is_not_headless_is_warned_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, said = examine(tmp_path, capsys, chat={"dns": "127.0.0.1:8000"})
    assert (status, "must be headless" in said) == (0, True)


def test_what_cannot_be_read_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, said = examine(tmp_path, capsys, chat={"file": [str(tmp_path / "none.json")]})
    assert (status, "there is no file" in said) == (2, True)


def test_a_missing_extra_is_that_of_what_needs_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "gateway.yaml"
    config.write_text(json.dumps({"mcp_servers": {"files": {"command": "files"}}}), encoding="utf-8")
    monkeypatch.setitem(sys.modules, "responses_gateway.hosted.mcp.connections", None)
    assert main(["doctor", "--config", str(config)]) == 2
    assert "MCP servers need an extra" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "responses_gateway.server.features.standard", None)
    with pytest.raises(ImportError):  # whose message says what is missing
        main(["doctor", "--config", str(config)])
