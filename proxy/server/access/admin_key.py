"""The admin key, required of operators for changes to the gateway and for the contents of requests."""

from __future__ import annotations

import hmac
from collections.abc import Mapping

from pydantic import SecretStr

from proxy.settings import Settings
from proxy.wire.errors import ApiError


def require_admin_key(settings: Settings, headers: Mapping[str, str]) -> None:
    """Raise `ApiError` 401 unless the headers have the admin key."""
    scheme, _, given = headers.get("Authorization", "").partition(" ")
    wanted = (settings.admin_key or SecretStr("")).get_secret_value().encode()
    right = hmac.compare_digest(given.strip().encode("utf-8", "surrogateescape"), wanted)
    if not wanted or scheme.lower() != "bearer" or not right:
        message = "This needs the gateway's admin key: send it as `Authorization: Bearer …`."
        raise ApiError(401, message, type="authentication_error", code="invalid_api_key")
