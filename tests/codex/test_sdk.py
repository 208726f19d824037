"""`@openai/codex-sdk` with the program and the configuration of `docs/codex.md`."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from responses_gateway.cli import main
from tests.clients.client_programs import run_command
from tests.codex.codex_cli import BINARY
from tests.codex.servers import Stage

ROOT = Path(__file__).parents[2]
_MODULES = BINARY.parents[1]
_SHOW_ERRORS = 'console.error(JSON.stringify(turn.items.filter((item) => item.type === "error")));\n'


def test_a_turn_of_a_program_has_the_catalog_and_no_warning(stage: Stage, tmp_path: Path) -> None:
    if not (_MODULES / "@openai" / "codex-sdk").is_dir():
        pytest.skip("the Codex SDK is not installed: run scripts/install-codex")
    home = tmp_path / "home"
    repository = tmp_path / "repository"
    for folder in (home, repository):
        folder.mkdir()
    subprocess.run(["git", "init", "--quiet", str(repository)], check=True)
    assert main(["codex-config", "--url", stage.url, "--codex-home", str(home), "--write", "--default"]) == 0
    ((_, snippet),) = re.findall(r"^```(js)\n(.*?)^```", (ROOT / "docs" / "codex.md").read_text(), re.MULTILINE | re.DOTALL)
    assert '"DIR"' in snippet
    program = repository / "program.mjs"
    program.write_text(snippet.replace('"DIR"', json.dumps(str(home))) + _SHOW_ERRORS)
    (repository / "node_modules").symlink_to(_MODULES)
    output = run_command(["node", str(program)], home, folder=repository)
    assert output.text.startswith("You said “Make the tests pass”.")
    assert output.errors == ["[]"]
    lists = [each for each in stage.exchanges if each.path.startswith("/v1/models?client_version=")]
    assert [each.status for each in lists] == [200]
