"""The running version can be told."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from responses_gateway.version import __version__, read_commit, version_line

ROOT = Path(__file__).parents[1]
SEMANTIC = r"\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?"


def test_the_version_is_semantic_and_the_changelog_begins_with_it() -> None:
    assert re.fullmatch(SEMANTIC, __version__)
    headings = re.findall(
        rf"^## \[(Unreleased|{SEMANTIC})\]", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert __version__ in [heading[0] for heading in headings[:2]]


def test_the_version_line_has_a_commit_where_there_is_one() -> None:
    assert re.fullmatch(rf"{SEMANTIC}( \([0-9a-f]{{7}}\))?", version_line())


def test_a_written_commit_goes_before_git(tmp_path: Path) -> None:
    room = tmp_path / "proxy" / "responses_gateway"
    room.mkdir(parents=True)
    assert read_commit(room) == ""
    (room / "commit.txt").write_text("ABC1234DEF\n", encoding="ascii")
    assert read_commit(room) == "abc1234"


@pytest.mark.parametrize("written", ["", "no commit", "ä", "${COMMIT}"])
def test_a_commit_that_is_none_is_left_out(tmp_path: Path, written: str) -> None:
    room = tmp_path / "proxy" / "responses_gateway"
    room.mkdir(parents=True)
    (room / "commit.txt").write_text(written, encoding="utf-8")
    assert read_commit(room) == ""


def test_a_checkout_that_git_cannot_read_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".git").mkdir()
    assert read_commit(tmp_path / "proxy" / "responses_gateway") == ""
    monkeypatch.setenv("PATH", str(tmp_path))  # no git at all
    assert read_commit(tmp_path / "proxy" / "responses_gateway") == ""


def test_a_wheel_knows_its_commit(tmp_path: Path) -> None:
    commit = read_commit(ROOT / "proxy" / "responses_gateway")
    if not commit:
        pytest.skip("not a checkout")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        assert archive.read("responses_gateway/commit.txt").decode() == f"{commit}\n"
