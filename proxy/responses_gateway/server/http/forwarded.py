"""The address of a client behind reverse proxies."""

from __future__ import annotations

from aiohttp import web

from responses_gateway.wire.hosts.addresses import Networks, address_in

_HEADER = "X-Forwarded-For"


def forwarded_address(request: web.Request, proxies: Networks) -> str | None:
    """Return the address for which trusted proxies have forwarded a request; None if it did not come from one.

    Each proxy appends the address that it was asked from, so that the header is read from its end: the first address that is
    no proxy's is the client's, and what stands before it anybody may have written."""
    if not proxies.include(request.remote):
        return None
    client: str | None = None
    hops = ",".join(request.headers.getall(_HEADER, ())).split(",")
    for hop in reversed(hops):
        address = address_in(hop.strip())
        if address is None:
            break
        client = address
        if not proxies.include(address):
            break
    return client
