"""API keys in the settings: accepted notations, and that no key is ever repeated."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from responses_gateway.settings import Settings, SettingsError, describe
from responses_gateway.settings.keys import hash_of
from responses_gateway.settings.load import load

KEY = "rp_0123456789abcdef"
OTHER = "rp_fedcba9876543210"


def hashes(settings: Settings) -> dict[str, list[str]]:
    return {name: [found.get_secret_value() for found in key.hash] for name, key in settings.api_keys.items()}


def from_file(folder: Path, keys: Any) -> Settings:
    file = folder / "gateway.yaml"
    file.write_text(yaml.safe_dump({"api_keys": keys}), encoding="utf-8")
    return load({}, file, {})


def from_variable(text: str) -> Settings:
    return load({}, None, {"RESPONSES_GATEWAY_API_KEYS": text})


def test_a_hash_is_a_plain_digest() -> None:
    assert hash_of(KEY) == "sha256:" + hashlib.sha256(KEY.encode()).hexdigest()


def test_without_any_there_are_none() -> None:
    assert Settings().api_keys == {}
    assert from_variable("").api_keys == {}


def test_a_file_has_hashes_and_limits(tmp_path: Path) -> None:
    settings = from_file(
        tmp_path,
        {
            "alice": {"hash": [hash_of(KEY), hash_of(OTHER).upper().replace("SHA256", "sha256")], "requests_per_minute": 0},
            "bob.x-1": "sha256:" + "0" * 64,
        },
    )
    assert hashes(settings) == {"alice": [hash_of(KEY), hash_of(OTHER)], "bob.x-1": ["sha256:" + "0" * 64]}
    assert settings.api_keys["alice"].requests_per_minute == 0
    assert settings.api_keys["alice"].tokens_per_minute is None


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (f"alice={KEY}", {"alice": [KEY]}),
        (f"alice={KEY}, bob={OTHER},", {"alice": [KEY], "bob": [OTHER]}),
        (f"alice={KEY},alice={OTHER}", {"alice": [KEY, OTHER]}),
        (f"alice={hash_of(KEY)}", {"alice": [KEY]}),
        (f'{{"alice": "{hash_of(KEY)}"}}', {"alice": [KEY]}),
        (f"alice={KEY}==", {"alice": [KEY + "=="]}),
    ],
)
def test_the_variable_may_have_plain_keys(text: str, found: dict[str, list[str]]) -> None:
    assert hashes(from_variable(text)) == {name: [hash_of(key) for key in keys] for name, keys in found.items()}


def test_a_key_without_a_name_has_one_that_stays() -> None:
    """Check that the name does not depend on the other keys, since stored responses belong to it."""
    (alone,) = from_variable(KEY).api_keys
    assert alone in from_variable(f"{OTHER},{KEY}").api_keys
    (padded,) = from_variable(KEY + "==").api_keys
    assert padded != alone
    assert KEY not in alone


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"alice": "hunter2"}, "alice: hash: expected a hash (sha256:…)"),
        ({"alice": {"hash": "sha256:hunter2"}}, "alice: hash: expected a hash (sha256:…)"),
        ({"alice": {"hash": []}}, "alice: hash: expected a hash or a list of hashes"),
        ({"alice": {"hash": 12345}}, "alice: hash: expected a hash or a list of hashes"),
        ({"alice": {"requests_per_minute": 1}}, "alice: hash: this field is required"),
        ({"alice": {"hash": hash_of(KEY), "requests_per_minute": -1}}, "alice: requests_per_minute: "),
        ({"alice": {"hash": hash_of(KEY), "request_per_minute": 1}}, "(did you mean requests_per_minute?)"),
        ({"alice": hash_of(KEY), "bob": hash_of(KEY)}, "alice and bob have the same key"),
        ({"alice": hash_of(KEY), "bob": {"hash": [f" {hash_of(KEY).upper()}"]}}, "alice and bob have the same key"),
        ({"a b": hash_of(KEY)}, "a name must consist of"),
        ({"": hash_of(KEY)}, "a name must consist of"),
        ({7: hash_of(KEY)}, "a name must consist of"),
        ([hash_of(KEY)], "expected an object"),
        (None, "expected an object"),
    ],
)
def test_what_is_wrong_is_said_and_no_key_repeated(tmp_path: Path, keys: Any, said: str) -> None:
    with pytest.raises(SettingsError) as caught:
        from_file(tmp_path, keys)
    assert ": api_keys: " in str(caught.value)
    assert said in str(caught.value)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "text", ["hunter2", "alice=hunter2", "alice=", ",", "hunter2 " * 5, "{hunter2", "alice=hünter2" + "x" * 20, " {}"]
)
def test_a_variable_that_is_wrong_never_opens_the_door(text: str) -> None:
    with pytest.raises(SettingsError) as caught:
        from_variable(text)
    assert str(caught.value).startswith("RESPONSES_GATEWAY_API_KEYS: ")
    assert "nter2" not in str(caught.value)


@example("{}")
@example("{ }")
@given(st.text(min_size=1, max_size=100).filter(lambda text: "\0" not in text))
def test_no_text_opens_the_door_or_makes_it_fail(text: str) -> None:
    try:
        settings = from_variable(text)
    except SettingsError:
        return
    assert settings.api_keys


@pytest.mark.parametrize("origin", ["https://chat.example.com", "http://localhost:3000/", "chrome-extension://abc", "*"])
def test_an_origin_is_as_browsers_write_it(origin: str) -> None:
    assert load({}, None, {"RESPONSES_GATEWAY_CORS_ORIGINS": origin}).cors_origins == [origin]


@pytest.mark.parametrize("origin", ["chat.example.com", "https://", "https://a.example/path", "https://*.example.com", "null"])
def test_an_origin_that_no_browser_sends_is_refused(origin: str) -> None:
    with pytest.raises(SettingsError, match="an origin consists of a scheme"):
        load({}, None, {"RESPONSES_GATEWAY_CORS_ORIGINS": origin})


def test_neither_keys_nor_hashes_are_printed() -> None:
    settings = from_variable(f"alice={KEY}")
    printed = describe(settings) + repr(settings)
    assert "alice" in printed
    assert KEY not in printed
    assert hash_of(KEY).removeprefix("sha256:") not in printed
