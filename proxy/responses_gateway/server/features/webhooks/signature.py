"""The body and the headers of one delivery, as `webhooks.unwrap` of OpenAI's SDKs verifies them (Standard Webhooks)."""

from __future__ import annotations

import base64
import hashlib
import hmac

import msgspec

from responses_gateway.state.webhooks import Notice

_PREFIX = "whsec_"


def signing_key(secret: str) -> bytes:
    """Return the key that a secret stands for: base64 after `whsec_`, else the text itself."""
    if not secret.startswith(_PREFIX):
        return secret.encode()
    return base64.b64decode(secret.removeprefix(_PREFIX))


def event_of(notice: Notice) -> bytes:
    """Return the event as JSON: the same for every attempt."""
    event = {
        "id": f"evt_{notice.id}",
        "object": "event",
        "created_at": notice.ended_at,
        "type": f"response.{notice.status}",
        "data": {"id": notice.response_id},
    }
    return msgspec.json.encode(event)


def signed_headers(notice: Notice, body: bytes, key: bytes, now: int) -> dict[str, str]:
    """Return the headers of an attempt at the Unix time `now`. The id is the same for every attempt: it tells repetitions."""
    message_id = f"wh_{notice.id}"
    signed = b"%b.%d.%b" % (message_id.encode(), now, body)
    signature = base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()
    return {
        "Content-Type": "application/json",
        "User-Agent": "responses-gateway",
        "webhook-id": message_id,
        "webhook-timestamp": str(now),
        "webhook-signature": f"v1,{signature}",
    }
