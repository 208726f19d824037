"""Who a client is according to a proxy that has authenticated it: by headers, from proxies that are trusted alone."""

from __future__ import annotations

import hmac
from collections.abc import Sequence

from aiohttp import web

from responses_gateway.server.identity.claimed import Claimed, NotIdentified, claimed
from responses_gateway.settings.identity import PROXY_SECRET_HEADER
from responses_gateway.wire.hosts.addresses import Networks


class TrustedProxy:
    """Reads the headers of proxies."""

    def __init__(self, name_header: str, groups_header: str | None, addresses: Sequence[str], secret: str | None) -> None:
        """`addresses` are those of trusted proxies, or networks; a proxy elsewhere is trusted by the `secret`."""
        self._name_header = name_header
        self._groups_header = groups_header
        self._networks = Networks(addresses)
        self._secret = secret.encode() if secret is not None else None

    def identify(self, request: web.Request) -> Claimed | None:
        """Return who a trusted proxy says it is; None if no trusted one says anything. Raise `NotIdentified`."""
        names = request.headers.getall(self._name_header, [])
        if not names or not self._trusts(request):
            return None
        if len(names) > 1:  # the proxy has passed on one of the client's own
            raise NotIdentified("there are several names in it")
        listed = request.headers.getall(self._groups_header, []) if self._groups_header is not None else []
        if len(listed) > 1:
            raise NotIdentified("there are several lists of groups in it")
        groups = [group.strip() for group in ",".join(listed).split(",")]
        return claimed("proxy", names[0].strip(), groups)

    def _trusts(self, request: web.Request) -> bool:
        if self._secret is not None:
            given = request.headers.get(PROXY_SECRET_HEADER, "").encode("utf-8", "surrogateescape")
            if hmac.compare_digest(given, self._secret):
                return True
        return self._networks.include(request.remote)
