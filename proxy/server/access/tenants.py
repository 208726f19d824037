"""Whose request it is. What one key stored, another cannot see."""

from __future__ import annotations

import hashlib

from aiohttp import web

from proxy.server.access.api_keys import KEY_NAME


def tenant_of(request: web.Request) -> str:
    """A name for whoever asks.

    With keys in the settings it is the key's name there, so that a key that replaces another finds what that one stored.
    Without, it is made from the client's `Authorization` and does not give that away; requests without one have one name.
    """
    name = request.get(KEY_NAME)
    if name is not None:
        return f"key:{name}"  # the colon keeps it apart from the digests below
    authorization = request.headers.get("Authorization", "").strip()
    return hashlib.sha256(authorization.encode("utf-8", "surrogateescape")).hexdigest()[:32] if authorization else ""
