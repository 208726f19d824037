"""Lists of hosts that the operator allows."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from responses_gateway.wire.hosts.addresses import looked_up

# A name of any language, an address, or `*`; `*.` may stand before a name.
_ENTRY = re.compile(r"(?P<below>\*\.)?(?P<host>(?<!\.)\*|[\w-]+(\.[\w-]+)*|(?<!\.)\[[0-9a-fA-F:.]+\])(:(?P<port>[0-9]{1,5}))?")
_LAST_PORT = 65535


class _Entry(NamedTuple):
    """A host as it is looked up, with `*.` before it or not; an IPv6 address in brackets."""

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
    match = _ENTRY.fullmatch(text.strip())
    host = looked_up(match["host"]) if match is not None else None
    port = int(match["port"]) if match is not None and match["port"] else None
    if match is None or host is None or port == 0 or (port or 0) > _LAST_PORT:
        raise ValueError("a host is a name, optionally with a port: mcp.example.com, *.example.com, tools.internal:9000")
    return _Entry(f"{match['below'] or ''}{host}", port)


def is_entry(text: str, *, ports: bool, patterns: bool) -> bool:
    """Tell whether a text is an entry of a list of hosts, for a setting that allows `ports` and `patterns` or not."""
    try:
        entry = _entry(text)
    except ValueError:
        return False
    return (ports or entry.port is None) and (patterns or "*" not in entry.host)
