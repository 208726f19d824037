"""Images that code wrote, as `data:` URLs."""

from __future__ import annotations

import base64
import binascii

# The first bytes of the types that clients show. No SVG: it may contain scripts.
_SIGNATURES = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
}


def image_url(content: str) -> str | None:
    """Return the `data:` URL of an image, given in base64, or None if its first bytes are those of no known type."""
    try:
        head = base64.b64decode(content[:32], validate=True)
    except (binascii.Error, ValueError):
        return None
    media_type = _media_type(head)
    return f"data:{media_type};base64,{content}" if media_type else None


def _media_type(head: bytes) -> str | None:
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "image/webp"
    return next((media_type for signature, media_type in _SIGNATURES.items() if head.startswith(signature)), None)
