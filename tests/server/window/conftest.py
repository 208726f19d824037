"""What the tests of the window have in common."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    """An empty folder for the browser."""
    folder = tmp_path / "browser"
    folder.mkdir()
    return folder
