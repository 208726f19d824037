"""The sources of identities that the settings turn on: an issuer of tokens, and proxies that have authenticated a client. The
libraries of those that are off are not needed."""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from typing import Protocol

from aiohttp import web

from responses_gateway.extras import how_to_install
from responses_gateway.server.identity.claimed import Claimed, NotIdentified, claimed
from responses_gateway.settings import Settings
from responses_gateway.settings.identity import PROXY_SECRET_HEADER, TrustedProxy
from responses_gateway.wire.hosts.addresses import Networks


class ProxyReader:
    """Reads who a client is from the headers of a proxy, if it is trusted: at its address, or elsewhere by its secret."""

    def __init__(self, proxy: TrustedProxy) -> None:
        self._name_header = proxy.name_header
        self._groups_header = proxy.groups_header
        self._networks = Networks(proxy.addresses)
        self._secret = None if proxy.secret is None else proxy.secret.get_secret_value().encode()

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
            header = request.headers.get(PROXY_SECRET_HEADER, "").encode("utf-8", "surrogateescape")
            if hmac.compare_digest(header, self._secret):
                return True
        return self._networks.include(request.remote)


class TokenReader(Protocol):
    """Tells from tokens who somebody is (`tokens.py`)."""

    async def identify(self, token: str) -> Claimed:
        """Return whose token it is. Raise `NotIdentified`, and `Sources.unavailable`."""

    async def close(self) -> None:
        """Stop asking the issuer."""


@dataclass(frozen=True, slots=True)
class Sources:
    """The sources; None for those that are off. `unavailable` is raised where the issuer of tokens cannot be asked."""

    tokens: TokenReader | None
    proxy: ProxyReader | None
    unavailable: type[Exception] | tuple[()] = ()


def open_sources(settings: Settings) -> Sources:
    """Return the sources of the settings. Raise `ValueError` for those that cannot be used."""
    proxy = None if settings.trusted_proxy is None else ProxyReader(settings.trusted_proxy)
    if settings.jwt is None:
        return Sources(None, proxy)
    try:
        from responses_gateway.server.identity.key_set import KeysUnavailable  # noqa: PLC0415  (the library is an extra)
        from responses_gateway.server.identity.tokens import Tokens  # noqa: PLC0415
    except ImportError as error:
        raise ValueError(f"jwt needs an extra: {how_to_install('jwt')}") from error
    return Sources(Tokens(settings.jwt), proxy, KeysUnavailable)
