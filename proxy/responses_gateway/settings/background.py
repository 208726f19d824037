"""Background responses: who is told that one has ended, and when those begin that wait for their completion window."""

from __future__ import annotations

import base64
import binascii
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator
from yarl import URL

from responses_gateway.settings.section import Section

# In bytes.
_SHORTEST_KEY = 16


class WebhookEndpoint(BaseModel):
    """One endpoint: where events are sent, and the secret that signs them (`whsec_` and base64, or any text). `private`: its
    host may have a private address."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    url: str
    secret: SecretStr
    private: bool = False

    @field_validator("url")
    @classmethod
    def _check_url(cls, value: str) -> str:
        try:
            url = urlsplit(value.strip())
            _ = url.port
            _ = URL(value.strip()).host  # as it is resolved
        except ValueError:
            raise ValueError("not a valid URL") from None
        if url.scheme not in ("http", "https") or not url.hostname or "@" in url.netloc:
            raise ValueError("a URL like https://example.com/hooks is expected, without user and password")
        return value.strip()

    @field_validator("secret")
    @classmethod
    def _check_secret(cls, value: SecretStr) -> SecretStr:
        text = value.get_secret_value()
        try:
            key = base64.b64decode(text.removeprefix("whsec_"), validate=True) if text.startswith("whsec_") else text.encode()
        except (binascii.Error, ValueError):
            raise ValueError("behind whsec_, a secret is base64") from None
        if len(key) < _SHORTEST_KEY:
            raise ValueError("a secret has at least 16 bytes")
        return value


class WebhookSettings(Section):
    """The endpoints."""

    title = "Webhooks"
    optional = True

    webhooks: dict[str, WebhookEndpoint] = Field(
        default={},
        description="Endpoints that are told when a background response has ended, by name, each with `url`, `secret` and "
        "optionally `private`. See [docs/state.md](state.md).",
    )


class CompletionWindowSettings(Section):
    """When they begin."""

    title = "Completion windows"
    optional = True

    idle_requests: int = Field(
        default=4,
        ge=1,
        description="With how many requests, or half of `max_concurrency` if that is less, a backend still counts as idle, so "
        "that responses with a `completion_window` begin. Divided among the workers, at least 1 each.",
    )
