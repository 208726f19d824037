"""Lists of hosts that the operator allows."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

_ENTRY = re.compile(r"(?P<host>\*|(\*\.)?[a-z0-9_-]+(\.[a-z0-9_-]+)*|\[[0-9a-f:.]+\])(:(?P<port>[0-9]{1,5}))?", re.IGNORECASE)
_LAST_PORT = 65535


class _Entry(NamedTuple):
    """A host in lower case, an IPv6 address in brackets."""

    host: str
    port: int | None


@dataclass(frozen=True, slots=True)
class AllowedHosts:
    """A list of hosts: names and addresses (`10.0.0.5`, `[::1]`), `*.example.com` for all names below, `*` for every host. Each
    may have a port; which ports one without stands for depends on the rule that uses the list."""

    entries: tuple[_Entry, ...] = ()

    @classmethod
    def read(cls, entries: Iterable[str]) -> AllowedHosts:
        """Read the entries. Raise `ValueError` for one that is none."""
        return cls(tuple(_entry(text) for text in entries))

    def lists(self, host: str, port: int | None = None) -> bool:
        """Tell whether an entry is this very host, with this port; None: without a port."""
        name = f"[{host}]" if ":" in host else host
        return _Entry(name.lower(), port) in self.entries

    def covers(self, host: str, port: int | None = None) -> bool:
        """Tell whether an entry with this port is or includes this host; None: an entry without a port."""
        below = tuple(entry.host[1:] for entry in self.entries if entry.port == port and entry.host.startswith("*."))
        return self.lists(host, port) or _Entry("*", port) in self.entries or host.lower().endswith(below)


def _entry(text: str) -> _Entry:
    found = _ENTRY.fullmatch(text.strip())
    port = int(found["port"]) if found is not None and found["port"] else None
    if found is None or port == 0 or (port or 0) > _LAST_PORT:
        raise ValueError("a host is a name, optionally with a port: mcp.example.com, *.example.com, tools.internal:9000")
    return _Entry(found["host"].lower(), port)
