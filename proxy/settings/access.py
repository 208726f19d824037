"""Who may use the gateway, and how much of it."""

from __future__ import annotations

import re
from typing import Literal

from pydantic import Field, field_validator

from proxy.settings.keys import ApiKeys
from proxy.settings.section import Seconds, Section, TextList

#: What a browser sends; a slash at the end does no harm. Extensions have schemes of their own.
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^/?#@\s*]+/?", re.IGNORECASE)


class AccessSettings(Section):
    """Who may use the gateway, and how much of it."""

    title = "Access"

    api_keys: ApiKeys = Field(
        default={},
        description="Keys that clients must send: names, each with the `hash` that `responses-proxy key new` prints, and "
        "limits of its own if wanted. In the variable also plain keys: `alice=KEY,bob=KEY`. Without any, everybody may use the "
        "gateway. See [docs/security.md](security.md).",
    )
    metrics_need_key: bool = Field(
        default=False, description="Ask for a key at `/metrics` as well. `/health` and `/ready` stay open."
    )
    requests_per_minute: int = Field(
        default=0,
        ge=0,
        description="Most requests per minute of each key, or without keys of each client address. 0 for any number. "
        "Counted by all workers of a gateway together, by each replica on its own.",
    )
    tokens_per_minute: int = Field(
        default=0,
        ge=0,
        description="Most tokens per minute, input and output together, of each key or client address. They are counted when "
        "a response has ended, so the last one may go beyond. 0 for any number.",
    )
    concurrent_requests: int = Field(
        default=0, ge=0, description="Most requests of each key or client address at the same time. 0 for any number."
    )
    cors_origins: TextList = Field(
        default=[],
        description="Origins of web pages that may use the gateway from a browser, such as `https://chat.example.com`; `*` for "
        "all. Without any, browsers keep pages from reading its answers, and pages cannot open its WebSocket.",
    )
    relay: bool = Field(
        default=True,
        description="Pass other paths below `/v1/`, `/tokenize` and `/detokenize` on to the backend as they are. Off, "
        "they are not found.",
    )
    url_inputs: Literal["pass", "public", "refuse"] = Field(
        default="pass",
        description="What becomes of URLs of images, videos and files, which the backend fetches, never the gateway: `pass` "
        "sends them on, `public` refuses those that name a private, local or metadata address (names are not resolved), "
        "`refuse` takes content as `data:` URLs only.",
    )
    max_input_items: int = Field(
        default=10_000, gt=0, description="Most items in the input of a request, with the history that it continues."
    )
    max_tools: int = Field(default=1_000, gt=0, description="Most tools in a request, those in namespaces included.")
    body_timeout: Seconds = Field(
        default=120,
        ge=0,
        description="Longest time, in seconds, that a client may take to send the body of a request. 0 for any time.",
    )

    @field_validator("cors_origins")
    @classmethod
    def _as_browsers_write_them(cls, value: list[str]) -> list[str]:
        for origin in value:
            if origin != "*" and not _ORIGIN.fullmatch(origin):
                raise ValueError("an origin is a scheme, a host and perhaps a port: https://chat.example.com")
        return value
