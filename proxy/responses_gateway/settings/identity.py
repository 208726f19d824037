"""Who clients are that have no key of the settings."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from responses_gateway.settings.section import Details, HeaderKey, Networks, Section, TextList, only

# The header in which a trusted proxy sends the shared secret.
PROXY_SECRET_HEADER = "X-Responses-Gateway-Proxy-Secret"


class TokenIssuer(Details):
    """An issuer of tokens (OpenID Connect). A token must have one of the audiences: otherwise one for any other service of the
    issuer would be accepted."""

    issuer: str
    audience: Annotated[TextList, only(len, "expected at least one audience")]
    name_claim: str = Field(default="sub", min_length=1)  # the claim with the name of the client
    # the claim with its groups: the first that is one of `teams` is its team
    groups_claim: str = Field(default="groups", min_length=1)

    @field_validator("issuer")
    @classmethod
    def _check_issuer(cls, value: str) -> str:
        parts = urlsplit(value)
        local = parts.scheme == "http" and parts.hostname in ("localhost", "127.0.0.1", "::1")
        if not (parts.scheme == "https" or local) or not parts.hostname or parts.query or parts.fragment:
            raise ValueError("expected a URL like https://login.example.com")
        return value


class TrustedProxy(Details):
    """A proxy that authenticates clients: the headers in which it tells who they are, and how it is known, by its address or
    by a secret: otherwise any client could send the headers."""

    name_header: str = Field(min_length=1)
    groups_header: str | None = Field(default=None, min_length=1)  # separated by commas
    addresses: Networks = Field(default=[])
    secret: HeaderKey = Field(default=None, min_length=16)

    @model_validator(mode="after")
    def _check_trust(self) -> TrustedProxy:
        if not self.addresses and self.secret is None:
            raise ValueError("expected addresses or secret, because without them any client could send the header")
        return self


class IdentitySettings(Section):
    """Who clients are that have no key of the settings."""

    title = "Identity"

    jwt: TokenIssuer | None = None
    """Accept tokens of an `issuer` (OpenID Connect, such as `https://login.example.com`) in place of keys, if one of their
    audiences is in `audience`. The client's name is in `name_claim` (`sub`), its groups are in `groups_claim` (`groups`); the
    first group that is one of `teams` is its team. Requires the extra `jwt`. See
    [docs/security.md](security.md#clients-without-a-key)."""
    trusted_proxy: TrustedProxy | None = None
    """A proxy that authenticates clients: it sends their name in `name_header`, such as `X-Forwarded-User`, and their groups,
    separated by commas, in `groups_header`. It is trusted by its `addresses` (or networks), or by the `secret` of at least 16
    characters that it sends in `X-Responses-Gateway-Proxy-Secret`."""
