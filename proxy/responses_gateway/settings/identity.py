"""Who clients are that have no key of the settings."""

from __future__ import annotations

from urllib.parse import urlsplit

from pydantic import Field, SecretStr, field_validator

from responses_gateway.extras import install_command
from responses_gateway.settings.section import Section, TextList
from responses_gateway.wire.hosts.addresses import Networks

# The header in which a trusted proxy sends the shared secret.
PROXY_SECRET_HEADER = "X-Responses-Gateway-Proxy-Secret"


class IdentitySettings(Section):
    """Who clients are that have no key of the settings."""

    title = "Identity"

    jwt_issuer: str | None = Field(
        default=None,
        description="Accept tokens of this issuer (OpenID Connect) in place of keys, such as "
        f"`https://login.example.com`. Requires `{install_command('jwt')}` and `jwt_audience`. See docs/security.md.",
    )
    jwt_audience: TextList = Field(default=[], description="Audiences (`aud`) of which a token must have one.")
    jwt_name_claim: str = Field(default="sub", min_length=1, description="Claim of a token with the name of the client.")
    jwt_groups_claim: str = Field(
        default="groups",
        min_length=1,
        description="Claim with the groups of the client: the first of them that is one of `teams` is its team.",
    )
    proxy_name_header: str | None = Field(
        default=None,
        min_length=1,
        description="Header in which a proxy that authenticates clients sends their name, such as `X-Forwarded-User`. "
        "Trusted only from `proxy_addresses`, or with `proxy_secret`.",
    )
    proxy_groups_header: str | None = Field(
        default=None, min_length=1, description="Header with the groups of the client, separated by commas."
    )
    proxy_addresses: TextList = Field(
        default=[], description="Addresses or networks of trusted proxies, such as `10.0.0.0/24`."
    )
    proxy_secret: SecretStr | None = Field(
        default=None,
        min_length=16,
        description="Secret that a trusted proxy sends in `X-Responses-Gateway-Proxy-Secret`. At least 16 characters.",
    )

    @field_validator("jwt_issuer")
    @classmethod
    def _check_issuer(cls, value: str | None) -> str | None:
        if value is not None:
            parts = urlsplit(value)
            local = parts.scheme == "http" and parts.hostname in ("localhost", "127.0.0.1", "::1")
            if not (parts.scheme == "https" or local) or not parts.hostname or parts.query or parts.fragment:
                raise ValueError("a URL like https://login.example.com is expected")
        return value

    @field_validator("proxy_addresses")
    @classmethod
    def _check_addresses(cls, value: list[str]) -> list[str]:
        for address in value:
            try:
                Networks([address])
            except ValueError:
                raise ValueError("an address or a network is expected: 10.0.0.5, 10.0.0.0/24") from None
        return value
