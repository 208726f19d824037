"""The settings of code_interpreter, and the sandbox that they open."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from responses_gateway.hosted.code.container import SandboxUnavailable
from responses_gateway.server.features.hosted_tools.opening import code_limits, open_sandbox
from responses_gateway.settings import Settings, SettingsError
from responses_gateway.settings.load import load
from tests.hosted.code.sandboxes import KEY, PYTHON, execute, needs_sandbox, run


@needs_sandbox
def test_the_sandbox_is_opened_as_the_settings_say() -> None:
    flags = {
        "code_interpreter": f"sandbox:{PYTHON}",
        "hosted_call_timeout": "1.5",
    }

    async def test() -> None:
        sandbox = await open_sandbox(load(flags, None, {}))
        assert sandbox is not None
        try:
            outcome = await execute(sandbox, "print('x' * 100_000)\nwhile True: pass", KEY)
            assert outcome.error is not None
            assert "1.5 seconds" in outcome.error
            assert 65_000 < len(outcome.logs) < 66_000
        finally:
            await sandbox.close()

    run(test())


def test_without_the_setting_there_is_no_sandbox(tmp_path: Path) -> None:
    file = tmp_path / "gateway.yaml"
    file.write_text("code_interpreter: off\n")

    async def test() -> None:
        assert await open_sandbox(load({}, file, {})) is None
        assert await open_sandbox(Settings(code_interpreter="mcp:python/run")) is None

    run(test())


def test_the_python_of_the_gateway_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/no/python")

    async def test() -> None:
        with pytest.raises(SandboxUnavailable, match="/no/python"):
            await open_sandbox(Settings(code_interpreter="sandbox"))

    run(test())


def test_the_limits_are_those_of_the_settings() -> None:
    limits = code_limits(Settings(hosted_call_timeout=7, code_interpreter_memory_bytes="128MiB"))  # type: ignore[arg-type]
    assert (limits.timeout, limits.memory_bytes, limits.output_bytes) == (7, 128 * 1024**2, 64 * 1024)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("code_interpreter", "on"),
        ("code_interpreter", "mcp:"),
        ("code_interpreter", "mcp:label"),
        ("code_interpreter", "sandbox:"),
        ("code_interpreter", "sandboxed"),
        ("hosted_call_timeout", "0"),
        ("hosted_call_timeout", "3601"),
        ("code_interpreter_memory_bytes", "1MiB"),
        ("code_interpreter_memory_bytes", "10GiB"),
        ("code_interpreter_containers", "0"),
    ],
)
def test_a_value_out_of_bounds_is_refused(name: str, value: Any) -> None:
    with pytest.raises(SettingsError, match=name.replace("_", "-")):
        load({name: value}, None, {})
