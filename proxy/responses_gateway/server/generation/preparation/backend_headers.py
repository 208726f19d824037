"""The headers that the settings give requests for answers, with what is known of each request in place of placeholders."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from urllib.parse import quote

from responses_gateway.settings.backend import PLACEHOLDERS

# In characters.
_LONGEST = 256
# What a value may consist of; anything else is percent-encoded.
_SAFE = "!#$&'()*+,/:;=?@[]^`|~ "


def filled(templates: Mapping[str, str], values: Mapping[str, str]) -> dict[str, str]:
    """Return the headers; one whose placeholder has no value is left out. Long values are replaced by their hash."""
    found = {}
    for name, template in templates.items():
        wanted = [placeholder for placeholder in PLACEHOLDERS if f"{{{placeholder}}}" in template]
        if not all(values.get(placeholder) for placeholder in wanted):
            continue
        text = template
        for placeholder in wanted:
            text = text.replace(f"{{{placeholder}}}", _sendable(values[placeholder]))
        found[name] = text
    return found


def _sendable(value: str) -> str:
    text = quote(value, safe=_SAFE, errors="replace").strip()
    return text if len(text) <= _LONGEST else blake2b(value.encode("utf-8", "replace"), digest_size=16).hexdigest()
