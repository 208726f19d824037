"""Background responses: who is told that one has ended, and when those begin that wait for their completion window."""

from __future__ import annotations

import base64
import binascii

from pydantic import Field, SecretStr, field_validator

from responses_gateway.settings.section import Details, HttpUrl, Section

_SHORTEST_KEY = 16  # in bytes


class WebhookEndpoint(Details):
    """One endpoint: where events are sent, and the secret that signs them (`whsec_` and base64, or any text). `private`: its
    host may have a private address."""

    url: HttpUrl
    secret: SecretStr
    private: bool = False

    @field_validator("secret")
    @classmethod
    def _check_secret(cls, value: SecretStr) -> SecretStr:
        text = value.get_secret_value()
        try:
            key = base64.b64decode(text.removeprefix("whsec_"), validate=True) if text.startswith("whsec_") else text.encode()
        except (binascii.Error, ValueError):
            raise ValueError("the secret must be base64 after whsec_") from None
        if len(key) < _SHORTEST_KEY:
            raise ValueError("the secret must have at least 16 bytes")
        return value


class WebhookSettings(Section):
    """The endpoints."""

    title = "Webhooks"
    optional = True

    webhooks: dict[str, WebhookEndpoint] = Field(default={})
    """Endpoints that get an event when a background response has ended, by name, each with `url`, `secret` and optionally
    `private`. See [docs/state.md](state.md)."""


class CompletionWindowSettings(Section):
    """When they begin."""

    title = "Completion windows"
    optional = True

    idle_requests: int = Field(default=4, ge=1)
    """Responses with a `completion_window` begin while a backend has fewer requests than this, or than half of
    `max_concurrency` if that is less. Divided among the workers, at least 1 each."""
