"""Programs of users: each does several things with one client library, and prints as JSON what came of them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.waiting import PATIENCE

ROOT = Path(__file__).parents[2]
CLIENTS = ROOT / ".cache" / "clients"
PYTHON = CLIENTS / "python" / "bin" / "python"
# Frameworks that need another version of the OpenAI SDK.
FRAMEWORKS = CLIENTS / "frameworks" / "bin" / "python"
NODE_MODULES = CLIENTS / "node" / "node_modules"
_HERE = Path(__file__).parent
# A port that nobody listens on: what would leave the machine fails at once.
_NOWHERE = "http://127.0.0.1:9"


def absence(program: str) -> str | None:
    """Return why a program cannot run here; None if it can."""
    node = shutil.which("node") is not None and NODE_MODULES.is_dir()
    there = node if program.endswith(".mjs") else _python_of(program).exists()
    return None if there else "the client libraries are not installed: run scripts/install-clients"


class Output:
    """What a program printed. `errors`: the lines of stderr, where warnings would be."""

    def __init__(self, text: str, errors: str) -> None:
        self.text = text
        self.errors = errors.splitlines()

    @property
    def results(self) -> dict[str, Any]:
        """Name of the deed → what its user got."""
        results: dict[str, Any] = json.loads(self.text)
        return results


def run(program: str, url: str, *arguments: str) -> Output:
    """Run one of the programs of this folder against the gateway at `url`, with more arguments."""
    text = (_HERE / program).read_text()
    return run_text(text, Path(program).suffix, url, *arguments, python=_python_of(program))


def _python_of(program: str) -> Path:
    return FRAMEWORKS if program == "frameworks.py" else PYTHON


def run_text(program: str, suffix: str, *arguments: str, python: Path = PYTHON) -> Output:
    """Run the text of a program in JavaScript (`.mjs`) or Python (`.py`) where its libraries are, with nothing of the
    surroundings but the search path."""
    with TemporaryDirectory() as folder:
        script = Path(folder) / f"program{suffix}"
        script.write_text(program)
        if suffix == ".mjs":  # libraries are looked for beside the script
            (Path(folder) / "node_modules").symlink_to(NODE_MODULES)
        interpreter = "node" if suffix == ".mjs" else str(python)
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": folder,
            "HTTPS_PROXY": _NOWHERE,
            "HTTP_PROXY": _NOWHERE,
            "NO_PROXY": "127.0.0.1",
            "LANG": "C.UTF-8",
        }
        done = subprocess.run(
            [interpreter, str(script), *arguments],
            cwd=folder, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return Output(done.stdout, done.stderr)
