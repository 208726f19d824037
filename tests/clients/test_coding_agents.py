"""opencode and pi with the configuration and the command of `docs/clients.md`: a simulated model writes a program with their
tools."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.clients.client_programs import CLIENTS, NOT_INSTALLED, ROOT, run_command
from tests.codex.servers import GREETING, Stage

_URL = "http://127.0.0.1:9000/v1"
_DONE = "Done: the file is written and checked, in 3 tool calls."


def _section(client: str) -> tuple[str, str]:
    """Return the configuration and the command that the page shows for a client."""
    page = (ROOT / "docs" / "clients.md").read_text()
    section = re.search(rf"^## {client}\n(.*?)^## ", page, re.MULTILINE | re.DOTALL)
    assert section
    (configuration,) = re.findall(r"^```json\n(.*?)^```", section[1], re.MULTILINE | re.DOTALL)
    (command,) = re.findall(r"^```sh\n(.*?)^```", section[1], re.MULTILINE | re.DOTALL)
    assert _URL in configuration
    return configuration, command


def _programs(client: str) -> str:
    """Return the folders of a client's program, for the search path."""
    modules = CLIENTS / client / "node_modules"
    folders = [folder for folder in (modules / ".bin", *modules.glob("opencode-*/bin")) if (folder / client).exists()]
    if not folders:
        pytest.skip(NOT_INSTALLED)
    return os.pathsep.join(map(str, folders))


@pytest.mark.parametrize(
    ("client", "file", "thought"),
    [
        ("opencode", "workspace/opencode.json", "Thinking: "),
        ("pi", ".pi/agent/models.json", ""),  # prints the last message alone
    ],
)
def test_a_coding_agent_works_in_several_steps(client: str, file: str, thought: str, stage: Stage, tmp_path: Path) -> None:
    programs = _programs(client)
    configuration, command = _section(client)
    workspace = tmp_path / "workspace"
    for folder in (workspace, (tmp_path / file).parent):
        folder.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).write_text(configuration.replace(_URL, stage.url))
    before = len(stage.exchanges)
    output = run_command(["bash", "-c", command], tmp_path, folder=workspace, programs=programs)
    assert _DONE in output.text
    assert thought in output.text
    assert (workspace / "greeting.py").read_text() == GREETING
    exchanges = stage.exchanges[before:]
    steps = [each.request for each in exchanges if any(item.get("type") == "function_call" for item in each.request["input"])]
    assert len(steps) == 3
    assert all(each.is_stream for each in exchanges)
