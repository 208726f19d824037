"""Whose request it is. What one key stored, another cannot see."""

from __future__ import annotations

import hashlib

from aiohttp import web


def tenant_of(request: web.Request) -> str:
    """A name for the key of the request that does not give the key away; the same for all requests without one."""
    authorization = request.headers.get("Authorization", "").strip()
    return hashlib.sha256(authorization.encode("utf-8", "surrogateescape")).hexdigest()[:32] if authorization else ""
