"""Hosts to which a request may have the gateway connect."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import urlsplit

from proxy.wire.public_urls import not_public

_ENTRY = re.compile(r"(?P<host>\*|(\*\.)?[a-z0-9_-]+(\.[a-z0-9_-]+)*|\[[0-9a-f:.]+\])(:(?P<port>[0-9]{1,5}))?", re.IGNORECASE)
_PORTS = {"http": 80, "https": 443}
_LAST_PORT = 65535
# Printable ASCII without what some parsers drop or read as something else.
_PLAIN = re.compile(r"[!-\[\]-~]+")


class _Entry(NamedTuple):
    host: str
    port: int | None


@dataclass(frozen=True, slots=True)
class AllowedHosts:
    """A list of hosts. `mcp.example.com` stands for its HTTPS port, `*.example.com` for all names below, `*` for every host.
    With a port (`mcp.example.com:8080`) it is that port, and plain HTTP will do. Only such an entry can allow a private host,
    which it must name in full (`10.0.0.5:8080`, `tools.internal:9000`)."""

    entries: tuple[_Entry, ...] = ()

    @classmethod
    def read(cls, entries: Iterable[str]) -> AllowedHosts:
        """Read the entries. Raises `ValueError` for one that is none."""
        return cls(tuple(_entry(text) for text in entries))

    def complaint(self, url: str) -> str | None:
        """Say why a URL is not allowed; return None if it is."""
        parts = _parts(url)
        if parts is None:
            return "it is not the URL of a server: https://mcp.example.com/mcp"
        if self.allows_private(url):
            return None
        if not any(_matches(entry, parts) for entry in self.entries):
            return "its host and port are not allowed"
        return not_public(url)

    def allows_private(self, url: str) -> bool:
        """Tell whether the host of a URL is a private one that an entry names, with its port."""
        parts = _parts(url)
        if parts is None:
            return False
        named = _Entry(parts.host, parts.port) in self.entries
        return named and not_public(f"http://{parts.host}") is not None


class _Parts(NamedTuple):
    scheme: str
    host: str
    port: int


def _entry(text: str) -> _Entry:
    found = _ENTRY.fullmatch(text.strip())
    port = int(found["port"]) if found is not None and found["port"] else None
    if found is None or port == 0 or (port or 0) > _LAST_PORT:
        raise ValueError("a host is a name, optionally with a port: mcp.example.com, *.example.com, tools.internal:9000")
    return _Entry(found["host"].lower(), port)


def _parts(url: str) -> _Parts | None:
    """Return the parts of a URL by which it is judged; None if parsers might disagree about them."""
    if not _PLAIN.fullmatch(url):
        return None
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return None
    if parts.scheme not in _PORTS or not parts.hostname or "@" in parts.netloc or "%" in parts.netloc:
        return None
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return _Parts(parts.scheme, host, _PORTS[parts.scheme] if port is None else port)


def _matches(entry: _Entry, parts: _Parts) -> bool:
    if entry.port is None:
        if parts.scheme != "https" or parts.port != _PORTS["https"]:
            return False
    elif entry.port != parts.port:
        return False
    if entry.host == "*":
        return True
    if entry.host.startswith("*."):
        return parts.host.endswith(entry.host[1:])
    return parts.host == entry.host
