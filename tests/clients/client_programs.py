"""Programs of users: each does several things with one client library, and prints as JSON what came of them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.waiting import PATIENCE

ROOT = Path(__file__).parents[2]
CLIENTS = ROOT / ".cache" / "clients"
PYTHON = CLIENTS / "python" / "bin" / "python"
# Frameworks that need other versions of the OpenAI SDK, and the programs with them.
FRAMEWORKS = CLIENTS / "frameworks" / "bin" / "python"
OLDER_FRAMEWORKS = CLIENTS / "older" / "bin" / "python"
ANTHROPIC = CLIENTS / "anthropic" / "bin" / "python"
_PYTHONS = {
    "anthropic_python.py": ANTHROPIC,
    "anthropic_accumulator.py": ANTHROPIC,
    "anthropic_langchain.py": CLIENTS / "anthropic-langchain" / "bin" / "python",
    "frameworks.py": FRAMEWORKS,
    "instructor_schemas.py": OLDER_FRAMEWORKS,
    "llama_index_agents.py": OLDER_FRAMEWORKS,
    "strands_agents.py": OLDER_FRAMEWORKS,
    "dspy_programs.py": OLDER_FRAMEWORKS,
}
NODE_MODULES = CLIENTS / "node" / "node_modules"
_NODE_MODULES = {
    "openai_lanes.mjs": CLIENTS / "openai-lanes" / "node_modules",
    "anthropic_node.mjs": CLIENTS / "anthropic-node" / "node_modules",
    "anthropic_vercel.mjs": CLIENTS / "anthropic-ai" / "node_modules",
}
_HERE = Path(__file__).parent
NOT_INSTALLED = "the client libraries are not installed: run scripts/install-clients"
# A port that nobody listens on: what would leave the machine fails at once.
_NOWHERE = "http://127.0.0.1:9"


def absence(program: str) -> str | None:
    """Return why a program cannot run here; None if it can."""
    return missing(Path(program).suffix, _python_of(program), _NODE_MODULES.get(program, NODE_MODULES))


def missing(suffix: str, python: Path = PYTHON, modules: Path = NODE_MODULES) -> str | None:
    """Return why a program in JavaScript (`.mjs`) with these modules, or for this Python, cannot run here; None if it can."""
    node = shutil.which("node") is not None and modules.is_dir()
    return None if (node if suffix == ".mjs" else python.exists()) else NOT_INSTALLED


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
    modules = _NODE_MODULES.get(program, NODE_MODULES)
    return run_text(text, Path(program).suffix, url, *arguments, python=_python_of(program), modules=modules)


def _python_of(program: str) -> Path:
    return _PYTHONS.get(program, PYTHON)


def run_text(program: str, suffix: str, *arguments: str, python: Path = PYTHON, modules: Path = NODE_MODULES) -> Output:
    """Run the text of a program in JavaScript (`.mjs`) or Python (`.py`) where its libraries are, with nothing of the
    surroundings but the search path."""
    with TemporaryDirectory() as folder:
        script = Path(folder) / f"program{suffix}"
        script.write_text(program)
        if suffix == ".mjs":  # libraries are looked for beside the script
            (Path(folder) / "node_modules").symlink_to(modules)
        interpreter = "node" if suffix == ".mjs" else str(python)
        return run_command([interpreter, str(script), *arguments], Path(folder))


def run_command(command: list[str], home: Path, *, folder: Path | None = None, programs: str = "") -> Output:
    """Run a command with nothing of the surroundings but the search path, and `programs` before that. `folder` is where it
    runs: by default, in its home. What it has started ends with it."""
    environment = {
        "PATH": os.pathsep.join(filter(None, [programs, os.environ["PATH"]])),
        "HOME": str(home),
        "HTTPS_PROXY": _NOWHERE,
        "HTTP_PROXY": _NOWHERE,
        "NO_PROXY": "127.0.0.1,localhost",
        "LANG": "C.UTF-8",
    }
    running = subprocess.Popen(
        command, cwd=folder or home, env=environment, text=True, start_new_session=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        output, errors = running.communicate(timeout=2 * PATIENCE)
    finally:
        _end_group(running)
    assert running.returncode == 0, errors
    return Output(output, errors)


def _end_group(leader: subprocess.Popen[str]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(leader.pid, signal.SIGKILL)
    leader.communicate()
