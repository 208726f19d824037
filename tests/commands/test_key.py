"""`responses-gateway key`: what it prints works."""

from __future__ import annotations

import io
import os
import re
from pathlib import Path

import pytest
import yaml

from responses_gateway.cli import main
from responses_gateway.settings import Settings
from responses_gateway.settings.keys import hash_of


def printed(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    assert main(["key", *argv]) == 0
    return capsys.readouterr().out


def entry(text: str) -> Settings:
    """The settings that the printed YAML makes."""
    return Settings(**yaml.safe_load(text[text.index("api_keys:") :]))


def test_a_new_key_and_its_entry(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "new", "--name", "bob")
    (key,) = re.findall(r"^  (rp_[\w-]{43})$", text, re.MULTILINE)
    assert [found.get_secret_value() for found in entry(text).api_keys["bob"].hash] == [hash_of(key)]
    assert key not in printed(capsys, "new", "--name", "bob")


def test_a_key_that_is_there_already(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("sk-0123456789abcdef\n"))
    text = printed(capsys, "hash")
    assert "sk-0123456789abcdef" not in text
    assert entry(text).api_keys["alice"].hash[0].get_secret_value() == hash_of("sk-0123456789abcdef")


def test_what_will_not_do(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("hunter2\n"))
    assert main(["key", "hash"]) == 2
    assert main(["key", "new", "--name", "a b"]) == 2
    assert main(["key"]) == 2
    assert "hunter2" not in "".join(capsys.readouterr())


@pytest.mark.parametrize(
    "before",
    [
        "",
        "port: 9000",
        "port: 9000 # ours\napi_keys:\n    # the team\n\n    alice: sha256:" + "a" * 64 + "\nhost: 0.0.0.0\n",
        "api_keys:\n",
    ],
)
def test_a_second_person_gets_a_key_in_the_file_beside_what_is_there(
    before: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "gateway.yaml"
    path.write_text(before, encoding="utf-8")
    text = printed(capsys, "add", "--name", "bob", "--config", str(path))
    (key,) = re.findall(r"^  (rp_[\w-]{43})$", text, re.MULTILINE)
    after = path.read_text(encoding="utf-8")
    settings = Settings(**yaml.safe_load(after))
    assert [found.get_secret_value() for found in settings.api_keys["bob"].hash] == [hash_of(key)]
    assert [line for line in after.splitlines() if "bob" not in line and hash_of(key) not in line] == (
        before.splitlines() if "api_keys" in before else [*before.splitlines(), "api_keys:"]
    )
    assert key not in after
    assert main(["key", "add", "--name", "bob", "--config", str(path)]) == 1
    assert "already" in capsys.readouterr().err


def test_a_file_stays_that_of_its_user(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "gateway.yaml"
    path.write_text("backend: http://a\n", encoding="utf-8")
    given: list[tuple[int, int]] = []

    def chown(_file: str, user: int, group: int) -> None:
        given.append((user, group))
        raise PermissionError

    monkeypatch.setattr(os, "chown", chown)
    printed(capsys, "add", "--name", "bob", "--config", str(path))
    assert given == [(path.stat().st_uid, path.stat().st_gid)]
    assert "bob" in path.read_text(encoding="utf-8")
    if os.getuid() == 0:
        monkeypatch.undo()
        os.chown(path, 12345, 23456)
        printed(capsys, "add", "--name", "carol", "--config", str(path))
        assert (path.stat().st_uid, path.stat().st_gid) == (12345, 23456)


@pytest.mark.parametrize("text", ["api_keys: {}\n", "a: [\n", "- 1\n", "api_keys: {alice: x}\n"])
def test_a_file_that_is_written_in_another_way_stays_as_it_is(
    text: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "gateway.yaml"
    path.write_text(text, encoding="utf-8")
    assert main(["key", "add", "--name", "bob", "--config", str(path)]) == 1
    assert path.read_text(encoding="utf-8") == text
    assert str(path) in capsys.readouterr().err
    assert main(["key", "add", "--name", "bob"]) == 2
