"""Who may use the gateway, and how much."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from typing import Annotated, Literal

from pydantic import Field

from responses_gateway.settings.keys import ApiKeys, Limited, Teams
from responses_gateway.settings.section import Amount, Networks, Seconds, Section, TextList, each
from responses_gateway.wire.hosts.allowed_hosts import is_entry

# As browsers send it; a trailing slash is tolerated. Extensions have schemes of their own.
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^/?#@\s*]+/?", re.IGNORECASE)
_Origins = Annotated[
    TextList,
    each(
        lambda origin: origin == "*" or _ORIGIN.fullmatch(origin),
        "an origin consists of a scheme, a host and optionally a port: https://chat.example.com",
    ),
]
_Hosts = Annotated[
    TextList,
    each(
        partial(is_entry, ports=False, patterns=True),
        "a host is a name without scheme and port: llm.example.com, or *.example.com",
    ),
]


class AccessSettings(Section):
    """Who may use the gateway, and how much."""

    title = "Access"

    api_keys: ApiKeys = Field(default={})
    """Keys that clients must send, by name, each with the `hash` that `responses-gateway key new` prints, and optionally with
    limits. The variable also accepts `alice=KEY,bob=KEY`. Without keys, everybody may use the gateway. With an `admin_key`,
    more can be made while the gateway runs. See [docs/security.md](security.md)."""
    teams: Teams = Field(default={})
    """Teams by name, to which keys belong (`team` of a key), with the limits, quotas and models of all members together: the
    same fields as those of a key. The stricter of key and team counts."""
    tokens_per_day: Amount = Field(default=0)
    """Maximum tokens per day (UTC), input and output together, for each key without its own `tokens_per_day`. A response that
    exceeds this quota is completed; the next request gets 429 `insufficient_quota`. Counted in Redis (`events`) or else in the
    store, by all replicas together. 0 for no quota."""
    tokens_per_month: Amount = Field(default=0)
    """The same for each month (UTC)."""
    requests_per_minute: Amount = Field(default=0)
    """Maximum requests per minute for each key, or without keys for each client address. 0 for no limit. All workers count
    together, and with Redis (`events`) all replicas."""
    tokens_per_minute: Amount = Field(default=0)
    """Maximum input and output tokens per minute for each key or client address, counted when a response has ended. 0 for no
    limit."""
    concurrent_requests: Amount = Field(default=0)
    """Maximum simultaneous requests for each key or client address. 0 for no limit."""
    cors_origins: _Origins = Field(default=[])
    """Origins of web pages that may use the gateway from a browser, such as `https://chat.example.com`; `*` for all. None by
    default."""
    allowed_hosts: _Hosts = Field(default=[])
    """Names by which clients may address the gateway (the header `Host`), such as `llm.example.com`; `*.example.com` for all
    subdomains, `*` for any name. By default, a gateway without keys accepts on loopback connections only IP addresses, names
    without a dot, and names below `.localhost` and `.internal`. See [docs/security.md](security.md#requests-from-web-pages)."""
    forwarded_by: Networks = Field(default=[])
    """Addresses and networks of the reverse proxies whose `X-Forwarded-For` is trusted: limits and logs use the address in that
    header instead of the proxy's. See [docs/security.md](security.md#limits)."""
    relay: bool = True
    """Forward other paths below `/v1/`, `/tokenize` and `/detokenize` to the backend unchanged. If disabled, they return
    404."""
    url_inputs: Literal["pass", "public", "refuse"] = "pass"
    """How to treat URLs of images, videos and files, which the backend fetches: `pass` forwards them, `public` refuses private,
    local and metadata addresses (names are not resolved), `refuse` accepts only `data:` URLs."""
    file_inputs: Literal["text", "pass"] = "text"
    """PDFs (extra `pdf`) and texts are sent as `text`, or as files (`pass`), which few servers read."""
    body_timeout: Seconds = Field(default=120, ge=0)
    """Maximum time for a client to send the body of a request. 0 for no limit."""


# The settings of limits, which each key and team can have of its own.
LIMIT_SETTINGS = ("requests_per_minute", "tokens_per_minute", "concurrent_requests")
# Those of quotas: the hard one of each period, with the soft one that only warns.
QUOTA_SETTINGS = {"tokens_per_day": "soft_tokens_per_day", "tokens_per_month": "soft_tokens_per_month"}


def has_limits(settings: AccessSettings) -> bool:
    """Tell whether any client has a limit."""
    entries = (settings, *settings.api_keys.values(), *settings.teams.values())
    return any(getattr(entry, name) for entry in entries for name in LIMIT_SETTINGS)


def has_quotas(settings: AccessSettings) -> bool:
    """Tell whether any client has a quota, hard or soft."""
    entries = (*settings.api_keys.values(), *settings.teams.values())
    names = (*QUOTA_SETTINGS, *QUOTA_SETTINGS.values())
    of_all = settings.tokens_per_day or settings.tokens_per_month
    return bool(of_all) or any(getattr(entry, name) for entry in entries for name in names)


def unreachable_limits(entry: Limited) -> Iterator[tuple[str, str]]:
    """Yield the quotas of a key or a team that could never have an effect, and why."""
    for hard, soft in QUOTA_SETTINGS.items():
        most = getattr(entry, hard)
        if most and (getattr(entry, soft) or 0) > most:
            yield soft, f"is more than {hard}: it would never warn"
    if entry.tokens_per_month and (entry.tokens_per_day or 0) > entry.tokens_per_month:
        yield "tokens_per_day", "is more than tokens_per_month"
