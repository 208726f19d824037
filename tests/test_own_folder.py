"""Folders that a process has for its time: who removes them, and who does not."""

from __future__ import annotations

import fcntl
import os
import tempfile
from pathlib import Path

import pytest

from responses_gateway.own_folder import OwnFolder, is_locked

PREFIX = "responses-gateway-test-"


def test_folders_of_living_processes_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "lock").touch()
    (tmp_path / "responses-gateway-test-link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "responses-gateway-test-new").mkdir()  # not locked yet
    first = OwnFolder(PREFIX)
    second = OwnFolder(PREFIX)
    assert first.path.stat().st_mode & 0o077 == 0
    with (first.path / "lock").open() as lock, pytest.raises(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    first.remove()
    second.remove()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "elsewhere",
        "responses-gateway-test-link",
        "responses-gateway-test-new",
    ]


def test_what_a_killed_process_left_is_removed_by_the_next_one(tmp_path: Path) -> None:
    killed = OwnFolder(PREFIX, str(tmp_path))
    assert is_locked(killed.path)
    os.close(killed.lock)
    assert not is_locked(killed.path)
    folder = OwnFolder(PREFIX, str(tmp_path))
    other = OwnFolder("another-prefix-", str(tmp_path))
    assert sorted(tmp_path.iterdir()) == sorted([folder.path, other.path])
    folder.remove()
    other.remove()
