"""`input_transformations` of a response: the reasoning that the model does not get, because nobody here can read it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from responses_gateway.request.input.content import reasoning_text
from responses_gateway.server.generation.preparation.encrypted_content import Encryption

Item = dict[str, Any]


def removed_reasoning(items: Sequence[Any], encryption: Encryption, tenant: str, model: str) -> list[Item]:
    """Return an entry for each reasoning item that is encrypted and has no other text, unless this model wrote it. `items` are
    as the client gave them, after a translation without error."""
    found = []
    for item in items:
        if isinstance(item, dict) and item.get("type") == "reasoning" and isinstance(item.get("id"), str):
            content = item.get("encrypted_content")
            reason = None if content is None or reasoning_text(item, "") else _reason(content, encryption, tenant, model)
            if reason is not None:
                found.append({"type": "reasoning", "id": item["id"], "action": "removed", "reason": reason})
    return found


def _reason(content: str, encryption: Encryption, tenant: str, model: str) -> str | None:
    read = encryption.decrypt("reasoning", tenant, content, "input")
    if read is None:
        return "organization_mismatch"
    return None if read[0] == model else "model_mismatch"
