"""The wheel brings the page with it."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from responses_gateway.server.window import pages
from tests.waiting import PATIENCE

ROOT = Path(__file__).parents[3]


@pytest.mark.slow
def test_the_wheel_has_every_file_of_the_page(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    packed = set(zipfile.ZipFile(wheel).namelist())
    folder = Path(pages.__file__).parent / "static"
    files = {f"responses_gateway/server/window/static/{file.name}" for file in folder.iterdir()}
    assert files
    assert files <= packed
