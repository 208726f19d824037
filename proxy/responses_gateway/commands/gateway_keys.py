"""Keys of clients at a gateway that runs: made, listed and revoked with its admin key."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote

import httpx

from responses_gateway.commands import Unusable
from responses_gateway.commands.gateway_offer import ask, error_of, header_key
from responses_gateway.settings import variable

_ADMIN_KEY = variable("admin_key")
_TIMEOUT = 30.0  # seconds for an answer: a gateway waits some for a worker that hangs
# Fields of a key that are no limits.
_NOT_LIMITS = frozenset({"object", "name", "source", "created_at", "problem"})


class GatewayKeys(NamedTuple):
    """`/admin/keys` of a gateway. Every method raises `Unusable`."""

    url: str
    admin_key: str

    @classmethod
    def of_environment(cls, base_url: str, environ: Mapping[str, str]) -> GatewayKeys:
        """Return those of the gateway with this base URL, with the admin key of the environment."""
        admin_key = header_key(_ADMIN_KEY, environ)
        if not admin_key:
            raise Unusable(f"the variable {_ADMIN_KEY} is not set: set it to the gateway's admin key")
        return cls(f"{base_url.removesuffix('/v1')}/admin/keys", admin_key)

    def add(self, name: str, fields: Mapping[str, Any]) -> str:
        """Have a key made, and return it."""
        return str(self._ask("POST", "", {**fields, "name": name}).get("key", ""))

    def remove(self, name: str) -> None:
        """Revoke a key."""
        self._ask("DELETE", f"/{quote(name, safe='')}")

    def lines(self) -> list[str]:
        """Return a line for each key: its name, where it comes from, since when, and its limits."""
        listed = self._ask("GET", "")
        try:
            keys = [(key["name"], _described(key)) for key in listed["data"]]
            width = max((len(name) for name, _ in keys), default=0)
            return [f"{name:<{width}}  {described}" for name, described in keys]
        except (LookupError, TypeError, AttributeError, ValueError, OverflowError):
            raise Unusable(f"{self.url} does not list keys as a gateway does: is this the URL of a gateway?") from None

    def _ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {self.admin_key}"}
        try:
            answer = ask(method, self.url + path, headers=headers, json=body, timeout=_TIMEOUT)
            value = answer.json()
        except httpx.HTTPError:
            raise Unusable(f"no gateway answers at {self.url}: is it running, and is --url right?") from None
        except (ValueError, RecursionError):
            value = None
        if isinstance(value, dict) and answer.is_success:
            return value
        message = error_of(answer).get("message", "is this the URL of a gateway?")
        raise Unusable(f"{self.url} answered HTTP {answer.status_code}: {message}")


def read_fields(texts: Sequence[str]) -> dict[str, Any]:
    """Return the fields of a key, written as `NAME=VALUE`; `models` has several values, between commas. Raise `Unusable`."""
    fields: dict[str, Any] = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not sign:
            raise Unusable(f"--limit {text}: expected FIELD=VALUE")
        if name == "models":
            fields[name] = value.split(",")
        else:
            fields[name] = int(value) if value.isdecimal() else value
    return fields


def _described(key: Mapping[str, Any]) -> str:
    created = key.get("created_at")
    since = "" if created is None else f"since {time.strftime('%Y-%m-%d', time.gmtime(created))}"
    source = "settings" if key["source"] == "settings" else "run time"
    limits = [f"{name}={json.dumps(value)}" for name, value in key.items() if name not in _NOT_LIMITS]
    return "  ".join(part for part in (source, since, *limits, key["problem"]) if part)
