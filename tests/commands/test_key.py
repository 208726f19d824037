"""`responses-gateway key`: what it prints works."""

from __future__ import annotations

import io
import re

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
