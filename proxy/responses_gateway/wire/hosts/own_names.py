"""Under which names clients may address the gateway (the header `Host`).

A web page may let its own name resolve to this machine (DNS rebinding): the browser then takes a gateway on localhost, which
requires no key, for a part of that page. Such a request has the page's name in its `Host`."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import urlsplit

from responses_gateway.wire.hosts.addresses import read_address
from responses_gateway.wire.hosts.allowed_hosts import AllowedHosts

# Names below these cannot be registered in the public DNS. `.internal` is how containers reach their host.
_RESERVED = (".localhost", ".internal")


def host_name(header: str) -> str | None:
    """Return the name or address in a `Host`, in lower case, without its port and a dot at the end; None if it is malformed."""
    try:
        return (urlsplit(f"//{header}").hostname or "").removesuffix(".")
    except ValueError:
        return None


def is_same_origin(origin: str, header: str) -> bool:
    """Tell whether the page with this `Origin` came from the host in the `Host` of its request."""
    return origin.partition("://")[2].rstrip("/").lower() == header.lower()


class OwnNames:
    """The names of the gateway that no web page of somebody else can have: addresses, names without a dot, those below
    `.localhost` and `.internal`, and those that the operator lists."""

    def __init__(self, listed: Iterable[str]) -> None:
        """`listed` are names and `*.example.com`. A `*` stands for no name of the gateway's own."""
        self._listed = AllowedHosts.read(entry for entry in listed if entry != "*")

    def include(self, header: str) -> bool:
        """Tell whether a `Host` is one of these names."""
        name = host_name(header)
        if name is None:
            return False
        is_own = "." not in name or name.endswith(_RESERVED) or read_address(name) is not None
        return is_own or self._listed.covers(name)
