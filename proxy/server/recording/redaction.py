"""Removing secrets from what is recorded."""

from __future__ import annotations

import base64
import json
from typing import Any

import msgspec

# Names of fields whose text is a secret (of an MCP server, say); case, `-` and `_` are ignored.
_SECRET_FIELDS = frozenset({"authorization", "apikey", "accesstoken", "refreshtoken", "clientsecret", "password", "cookie"})
# Shorter texts are replaced only where they are a whole string: replacing each "no" would spoil the record.
SHORTEST_SECRET = 8
REDACTED = "[redacted]"


class Redaction:
    """Removes secrets from bodies, and remembers them, since events may repeat what the request said."""

    def __init__(self, known: tuple[str, ...]) -> None:
        self._found = set(known)

    def value(self, body: bytes) -> Any:
        """Return the value of a body, redacted; a body that is not JSON stays bytes, under a name that says so."""
        try:
            return self._redacted(msgspec.json.decode(body))  # as the gateway itself reads it
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return {"not_json": as_text(body)}

    def text(self, record: str) -> str:
        """Return a whole record without the secrets found so far: in its own strings, and in JSON inside of them."""
        for secret in sorted(self._found, key=len, reverse=True):
            inside = json.dumps(json.dumps(secret, ensure_ascii=False))[1:-1]  # with its quotation marks
            if len(secret) >= SHORTEST_SECRET:
                record = record.replace(json.dumps(secret)[1:-1], REDACTED).replace(inside[2:-2], REDACTED)
            else:
                record = record.replace(inside, f'\\"{REDACTED}\\"')
        return record

    def _redacted(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._redacted(entry) for entry in value]
        if not isinstance(value, dict):
            return value
        return {name: self._field(name, entry, of=value) for name, entry in value.items()}

    def _field(self, name: str, entry: Any, of: dict[str, Any]) -> Any:
        if name == "headers" and of.get("type") == "mcp" and isinstance(entry, dict):
            return {header: self._secret(text) for header, text in entry.items()}
        if isinstance(entry, str) and entry and name.lower().replace("-", "").replace("_", "") in _SECRET_FIELDS:
            return self._secret(entry)
        return self._redacted(entry)

    def _secret(self, text: Any) -> str:
        if isinstance(text, str) and text:
            self._found.add(text)
        return REDACTED


def as_text(data: bytes) -> str | dict[str, str]:
    """Return bytes as a record has them: a text, or `{"base64": …}` where they are not UTF-8."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}
