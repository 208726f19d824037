"""Hints how to install an extra: the command of the installer that the gateway came from."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from responses_gateway.extras import how_to_install

_RECEIPT = """
[tool]
requirements = [{ name = "responses-gateway", extras = ["redis"], directory = "/src/gateway" }]
"""


@pytest.mark.parametrize(
    ("file", "content", "command"),
    [
        ("uv-receipt.toml", _RECEIPT, "uv tool install --reinstall '/src/gateway[redis,web]'"),
        ("uv-receipt.toml", "[tool]", "uv tool install --reinstall '.[web]' (in the checkout of the gateway)"),
        ("uv-receipt.toml", "no TOML", "uv tool install --reinstall '.[web]' (in the checkout of the gateway)"),
        ("pipx_metadata.json", "{}", "pipx install --force '.[web]' (in the checkout of the gateway)"),
        ("pyvenv.cfg", "", "pip install '.[web]' (in the checkout of the gateway)"),
    ],
)
def test_the_hint_is_the_command_of_the_installer(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, file: str, content: str, command: str
) -> None:
    (tmp_path / file).write_text(content, encoding="utf-8")
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    assert how_to_install("web") == command


def test_an_environment_without_pip_is_one_of_uv(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert how_to_install("web").startswith("uv pip install '.[web]'")
