"""Check the URLs in the input, which the backend will fetch.

Otherwise a client could make the backend connect to addresses that only it can reach: its own ports, the network behind it,
the metadata service of a cloud. A name that resolves to a private address passes. Only the backend's network prevents it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Literal

from responses_gateway.request.fields import Entry
from responses_gateway.wire.errors import invalid_request
from responses_gateway.wire.hosts.public_urls import not_public

UrlInputs = Literal["pass", "public", "refuse"]

# Fields of a content part whose text the backend may take for a URL.
_FIELDS = frozenset({"image_url", "file_url", "video_url", "audio_url", "file_data"})
# The beginning of a URL; anything else in `file_data` is the content itself.
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*:", re.IGNORECASE)


def refuse_urls(entries: Iterable[Entry], allowed: UrlInputs) -> None:
    """Check every URL in these items. Raises `ApiError` 400 for the first one that is not allowed. `pass` allows all, `public`
    those that do not obviously lead to a private address, `refuse` only `data:`."""
    if allowed == "pass":
        return
    for entry in entries:
        for path, url in _urls(entry.item, entry.path):
            complaint = _complaint(url, allowed)
            if complaint is not None:
                # The URL itself is not repeated: it may carry a secret.
                message = f"Invalid value for '{path}': this URL is refused, {complaint}."
                raise invalid_request(message, path, "unsupported_value")


def _complaint(url: str, allowed: UrlInputs) -> str | None:
    if url[:5].lower() == "data:":
        return None
    return "this gateway accepts content as data: URLs only" if allowed == "refuse" else not_public(url)


def _urls(value: Any, path: str) -> Iterator[tuple[str, str]]:
    """Yield the path and text of every possible URL, at any depth (the depth of a body is limited)."""
    if isinstance(value, list):
        for index, entry in enumerate(value):
            yield from _urls(entry, f"{path}[{index}]")
    elif isinstance(value, dict):
        for name, entry in value.items():
            if name in _FIELDS and isinstance(entry, str):
                if name != "file_data" or _SCHEME.match(entry.lstrip()):
                    yield f"{path}.{name}", entry
            elif isinstance(entry, dict | list):
                yield from _urls(entry, f"{path}.{name}")
