"""The sources of identities that the settings turn on. The libraries of those that they do not are not needed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from responses_gateway.extras import how_to_install
from responses_gateway.server.identity.claimed import Claimed
from responses_gateway.server.identity.trusted_proxy import TrustedProxy
from responses_gateway.settings import Settings


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
