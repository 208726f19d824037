"""What a source of backends is, and what it tells."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

MOST_TARGETS = 5000  # most members of a pool, because a source that names more is broken

SourceKind: TypeAlias = Literal["dns", "file", "kubernetes"]

# A host and a port; an IPv6 address in brackets.
_ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?):([0-9]{1,5})")


@dataclass(frozen=True, slots=True)
class Target:
    """A backend that a source names.

    `address` is `host:port`, with an IPv6 address in brackets. `scheme` and `weight` are those of the pool where the source
    says nothing. `draining`: it is shutting down, and gets requests only while no other member is left. `pod` is its name in
    the cluster, for people."""

    address: str
    scheme: str = ""
    weight: float | None = None
    draining: bool = False
    pod: str = ""


class Report(Protocol):
    """Takes what a source says."""

    def __call__(self, targets: Sequence[Target] | None, problem: str = "") -> None:
        """Take all targets there are now; None: those of before are still the last that is known. `problem` tells why the
        source cannot be read, or a part of it; it is empty if all of it can."""


class Source(Protocol):
    """Where the members of a pool are found. Two sources that are equal say the same."""

    @property
    def kind(self) -> SourceKind:
        """Which kind of source it is."""

    async def watch(self, report: Report) -> None:
        """Report the targets at first and again and again, until cancelled: who listens looks for what has changed."""


def is_address(text: str) -> bool:
    """Tell whether a text is a valid `Target.address`."""
    match = _ADDRESS.fullmatch(text)
    return match is not None and 0 < int(match[3]) < 65_536


def address_of(host: str, port: int) -> str:
    """Return the address of a host: a name, or an IPv4 or IPv6 address without brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
