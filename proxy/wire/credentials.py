"""Where clients put their API key."""

from __future__ import annotations

from collections.abc import Mapping

# `Authorization` has `Bearer` before the key.
KEY_HEADERS = ("Authorization", "X-Api-Key", "Api-Key")


def given_key(headers: Mapping[str, str]) -> str:
    """Return the key in a request's headers, or an empty text if there is none."""
    scheme, _, token = headers.get("Authorization", "").strip().partition(" ")
    if scheme.lower() == "bearer" and token.strip():
        return token.strip()
    return headers.get("X-Api-Key") or headers.get("Api-Key") or ""
