"""Our own commands as processes: `responses-gateway serve` before a server, and `responses-gateway doctor`."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from tests.real_servers.processes import plain_environment, running

# The gateway of this checkout, whatever is installed.
_COMMAND = (sys.executable, "-m", "responses_gateway")
_ENVIRONMENT = {"PYTHONPATH": str(Path(__file__).parents[2] / "proxy")}
_READY_WITHIN = 60.0
# Examining takes seconds; a server that does not answer a question is asked again for minutes.
_EXAMINED_WITHIN = 120.0
_DOCTOR_WITHIN = 300.0
_LISTENING = re.compile(r" listening .*\burl=(\S+)")


@contextmanager
def gateway(folder: Path, *flags: str) -> Iterator[str]:
    """Run the gateway with these flags while the block lasts, and yield its URL once it has examined its backend."""
    folder.mkdir(parents=True)
    command = [*_COMMAND, "serve", "--port", "0", *flags]
    with (
        running(command, plain_environment(folder) | _ENVIRONMENT, folder / "gateway.log") as process,
        httpx.Client(trust_env=False, timeout=10) as client,
    ):
        process.wait_until(lambda: _LISTENING.search(process.printed()) is not None, _READY_WITHIN)
        found = _LISTENING.search(process.printed())
        assert found is not None
        url = found[1]
        process.wait_until(lambda: "examining" not in client.get(f"{url}/health").json(), _EXAMINED_WITHIN)
        yield url


@dataclass(frozen=True)
class Diagnosis:
    """What the doctor said. `file` has the settings that it recommends, and exists only if it wrote any."""

    status: int
    report: dict[str, Any]
    file: Path

    @property
    def verdict(self) -> str:
        """The verdict in words."""
        return str(self.report.get("verdict"))

    @property
    def words(self) -> str:
        """All findings with their advice, a line for each."""
        found = self.report.get("findings") or [{"level": "error", "text": self.report.get("error", ""), "advice": ""}]
        return "\n".join(f"{finding['level']}: {finding['text']} {finding['advice']}".strip() for finding in found)

    @property
    def settings(self) -> dict[str, Any]:
        """The recommended settings, without the backend's URL."""
        return {name: value for name, value in self.report.get("settings", {}).items() if name != "backend"}

    @property
    def profile(self) -> dict[str, Any]:
        """The facts that it found out."""
        profile: dict[str, Any] = self.report.get("profile", {})
        return profile


def examine(url: str, folder: Path) -> Diagnosis:
    """Run the doctor on a server."""
    folder.mkdir(parents=True)
    file = folder / "gateway.yaml"
    ended = subprocess.run(
        [*_COMMAND, "doctor", url, "--json", "--write", str(file)],
        env=plain_environment(folder) | _ENVIRONMENT, capture_output=True, text=True, timeout=_DOCTOR_WITHIN, check=False,
    )  # fmt: skip
    try:
        report = json.loads(ended.stdout)
    except ValueError:
        report = {"verdict": "none", "error": ended.stderr[-500:] or f"no report (status {ended.returncode})"}
    return Diagnosis(ended.returncode, report, file)
