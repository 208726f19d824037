"""The sources of identities that the settings turn on: an issuer of tokens, and proxies that have authenticated a client. The
libraries of those that are off are not needed."""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from aiohttp import web

from responses_gateway.extras import how_to_install
from responses_gateway.server.identity.claimed import Claimed, NotIdentified, claimed
from responses_gateway.settings import Settings
from responses_gateway.settings.identity import PROXY_SECRET_HEADER
from responses_gateway.wire.hosts.addresses import Networks


class TrustedProxy:
    """Reads who a client is from the headers of proxies, if they are trusted."""

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


class TokenReader(Protocol):
    """Tells from tokens who somebody is (`tokens.py`)."""

    async def identify(self, token: str) -> Claimed:
        """Return whose token it is. Raise `NotIdentified`, and `Sources.unavailable`."""

    async def close(self) -> None:
        """Stop asking the issuer."""


@dataclass(frozen=True, slots=True)
class Sources:
    """The sources; None for those that are off. `unavailable` is raised where the issuer of tokens cannot be asked."""

    tokens: TokenReader | None = None
    proxy: TrustedProxy | None = None
    unavailable: type[Exception] | tuple[()] = ()


def open_sources(settings: Settings) -> Sources:
    """Return the sources of the settings. Raise `ValueError` for those that cannot be used."""
    proxy = None
    if settings.proxy_name_header is not None:
        secret = settings.proxy_secret.get_secret_value() if settings.proxy_secret is not None else None
        proxy = TrustedProxy(settings.proxy_name_header, settings.proxy_groups_header, settings.proxy_addresses, secret)
    if settings.jwt_issuer is None:
        return Sources(None, proxy)
    try:
        from responses_gateway.server.identity.key_set import KeysUnavailable  # noqa: PLC0415  (the library is an extra)
        from responses_gateway.server.identity.tokens import Tokens  # noqa: PLC0415
    except ImportError as error:
        raise ValueError(f"jwt_issuer needs an extra: {how_to_install('jwt')}") from error
    tokens = Tokens(settings.jwt_issuer, settings.jwt_audience, settings.jwt_name_claim, settings.jwt_groups_claim)
    return Sources(tokens, proxy, KeysUnavailable)
