"""API keys: in the settings, never in plain text once they have been read, and in the headers of requests."""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from collections.abc import Mapping
from typing import Annotated, Any, TypeGuard

from pydantic import BeforeValidator, Field, SecretStr, field_validator

from responses_gateway.settings.section import Amount, Details

_PREFIX = "sha256:"
_HASH = re.compile(r"sha256:[0-9a-f]{64}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
NAME_RULE = "a name must consist of up to 64 letters, digits, dots, dashes and underscores"
SHORTEST_KEY = 16  # shorter keys could be guessed
# By this prefix people, and scanners for leaked keys, recognise a key that was generated.
_GENERATED_PREFIX = "rp_"
_GENERATED_BYTES = 32  # random bytes in it: 256 bits
# Where clients put their key. `Authorization` has `Bearer` before it.
KEY_HEADERS = ("Authorization", "X-Api-Key", "Api-Key")


def new_key() -> str:
    """Generate a key."""
    return _GENERATED_PREFIX + secrets.token_urlsafe(_GENERATED_BYTES)


def hash_of(key: str) -> str:
    """Return `sha256:` and the digest of a key in hexadecimal. A slow hash such as bcrypt would not be better: the keys are
    random and cannot be guessed, and every request is checked, so it must be fast."""
    return _PREFIX + hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()


def given_key(headers: Mapping[str, str]) -> str:
    """Return the key in a request's headers, or an empty text if there is none."""
    scheme, _, token = headers.get("Authorization", "").strip().partition(" ")
    if scheme.lower() == "bearer" and token.strip():
        return token.strip()
    return headers.get("X-Api-Key") or headers.get("Api-Key") or ""


class Limited(Details):
    """What a key or a team may use. 0 is no limit; None stands for the general setting of the same name, where there is one."""

    requests_per_minute: Amount | None = None
    tokens_per_minute: Amount | None = None
    concurrent_requests: Amount | None = None
    # Quotas: days and months are those of UTC. The soft ones only warn.
    tokens_per_day: Amount | None = None
    tokens_per_month: Amount | None = None
    soft_tokens_per_day: Amount | None = None
    soft_tokens_per_month: Amount | None = None
    # Names of models, in which `*` stands for any text; None for all.
    models: Annotated[tuple[str, ...], Field(min_length=1)] | None = None


class Team(Limited):
    """The settings of one team. All of its members count together."""


class ApiKey(Limited):
    """The settings of one client."""

    # Several while a key is being replaced. Never printed: the key behind a hash may be weak.
    hash: tuple[SecretStr, ...] = Field(min_length=1)
    team: str | None = None

    @field_validator("hash", mode="before", json_schema_input_type=str | list[str])
    @classmethod
    def _one_or_several(cls, value: object) -> object:
        hashes = [value] if isinstance(value, str) else value
        if not isinstance(hashes, list | tuple) or not hashes:
            raise ValueError("expected a hash or a list of hashes, as `responses-gateway key new` prints them")
        return [_checked(entry) for entry in hashes]


def _checked(value: object) -> str:
    text = value.get_secret_value() if isinstance(value, SecretStr) else str(value).strip().lower()
    if not _HASH.fullmatch(text):
        raise ValueError("expected a hash (sha256:…), as `responses-gateway key new` prints it with a new key")
    return text


def _read(value: object) -> object:
    """Read keys from the text of a variable or the mapping of a file. Raises `ValueError`, which repeats no key."""
    if isinstance(value, str):
        value = _from_text(value)
    if not isinstance(value, dict):
        return value
    _check_names(value)
    entries = {name: {"hash": entry} if isinstance(entry, str | list) else entry for name, entry in value.items()}
    _refuse_duplicates(entries)
    return entries


def _check_names(value: object) -> object:
    """Return a mapping by names as it is. Raise `ValueError` for one that is no name."""
    for name in value if isinstance(value, dict) else ():
        if not is_key_name(name):
            raise ValueError(NAME_RULE)
    return value


def is_key_name(name: object) -> TypeGuard[str]:
    """Tell whether a key or a team may have this name."""
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


def _refuse_duplicates(entries: dict[str, Any]) -> None:
    seen: dict[str, str] = {}
    for name, entry in entries.items():
        hashes = entry.get("hash") if isinstance(entry, dict) else None
        for hashed in [hashes] if isinstance(hashes, str) else hashes if isinstance(hashes, list) else ():
            other = seen.setdefault(str(hashed).strip().lower(), name)
            if other != name:
                raise ValueError(f"{other} and {name} have the same key")


def _from_text(text: str) -> object:
    """Parse `NAME=KEY` or `KEY`, separated by commas, or a JSON object as in the file. A `KEY` may be a hash."""
    if text.lstrip().startswith("{"):
        try:
            keys = json.loads(text)
        except ValueError:
            raise ValueError("not a JSON object") from None
        if not keys:  # which would let everybody in
            raise ValueError("an object without keys")
        return keys
    entries: dict[str, list[str]] = {}
    for part in filter(None, map(str.strip, text.split(","))):
        name, _, key = part.partition("=")
        if not key.strip("="):  # the padding of a key that has no name
            name = ""
            key = part
        hashed = key.lower() if key.lower().startswith(_PREFIX) else _hash_of_plain(key)
        # The name does not depend on the position in the list, since stored responses belong to a name.
        entries.setdefault(name or f"key-{hashed.removeprefix(_PREFIX)[:12]}", []).append(hashed)
    if not entries:
        raise ValueError("expected at least one key")  # an empty mapping would admit everybody
    return entries


def _hash_of_plain(key: str) -> str:
    if len(key) < SHORTEST_KEY or not key.isascii() or not key.isprintable() or " " in key:
        message = f"a key must have at least {SHORTEST_KEY} printable characters; `responses-gateway key new` generates one"
        raise ValueError(message)
    return hash_of(key)


# Name -> key. In the environment also `NAME=KEY,…` with plain keys, of which only the hash is kept.
ApiKeys = Annotated[dict[str, ApiKey], BeforeValidator(_read, json_schema_input_type=dict[str, ApiKey | str | list[str]])]
# Name -> team.
Teams = Annotated[dict[str, Team], BeforeValidator(_check_names)]
