"""The base of all sections of the settings, and the types of their values."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Literal
from urllib.parse import urlsplit, urlunsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, SecretStr
from yarl import URL

from responses_gateway.wire.hosts.addresses import is_network

_VERSION_SEGMENT = re.compile(r"v\d+[a-z0-9]*")
# A password in the URL of a database, which may have an `@` in it, or stand among the parameters.
_PASSWORD = re.compile(r"(://[^:/@]*:).*(?=@)|([?&]\w*password=)[^&]*")

# At most some 30 years, because clocks do not count further. A field loses its own `le` to this one: such a field is a `float`.
Seconds = Annotated[float, Field(allow_inf_nan=False, le=1e9)]
# What programs that count in floating point can still count, such as the window in a browser.
Amount = Annotated[int, Field(ge=0, le=2**53 - 1)]
# YAML 1.1 reads an unquoted `yes`, `no`, `on` or `off` as true or false, and `1.44` as a number.
_FROM_YAML = BeforeValidator(
    lambda value: ("no", "yes")[value] if isinstance(value, bool) else value,
    json_schema_input_type=bool | Literal["auto", "yes", "no"],
)
ON = BeforeValidator(lambda value: "on" if value is True else value)
OFF = BeforeValidator(lambda value: "off" if value is False else str(value) if isinstance(value, float) else value)
YesNo = Annotated[Literal["auto", "yes", "no"], _FROM_YAML]


def _split(value: object) -> object:
    if not isinstance(value, str):
        return value
    if value.lstrip().startswith("["):
        try:
            return json.loads(value)
        except json.JSONDecodeError as error:
            raise ValueError(f"not a JSON list: {error.msg}") from None
    return [part.strip() for part in value.split(",") if part.strip()]


# A flag that may be repeated; in the environment a JSON list, or texts separated by commas.
TextList = Annotated[list[str], BeforeValidator(_split, json_schema_input_type=str | list[str])]


def only(valid: Callable[[Any], object], message: str) -> AfterValidator:
    """Return what refuses a value that is not valid. None is."""

    def check(value: object) -> object:
        if value is not None and not valid(value):
            raise ValueError(message)
        return value

    return AfterValidator(check)


def each(valid: Callable[[str], object], message: str) -> AfterValidator:
    """Return what refuses a list, or a mapping by names, with an entry that is not valid."""
    return only(lambda entries: all(map(valid, entries)), message)


# A key that is sent in a header. Files of secrets often end with a line break, which no header can have.
HeaderKey = Annotated[
    SecretStr | None,
    BeforeValidator(lambda value: value.strip() if isinstance(value, str) else value),
    only(lambda key: key.get_secret_value().isprintable(), "expected printable characters on one line"),
]
Networks = Annotated[TextList, each(is_network, "expected an address or a network, like 10.0.0.5 or 10.0.0.0/24")]


class SettingsError(Exception):
    """Settings are invalid. The message names each of them as the user wrote it, one per line, and never repeats a value."""


class Details(BaseModel):
    """What a setting that is a mapping says of one thing."""

    # Deferred because most of these are never validated alone, but with `Settings`, which has their fields.
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, defer_build=True)


class Section(Details):
    """Settings that belong together, with one heading in the documentation: the text below each describes it. `Settings`
    combines all sections."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    title: ClassVar[str]
    optional: ClassVar[bool] = False  # read by a feature alone: unknown where the gateway is without it


# What people copy from a server's page together with its base URL.
_ENDPOINTS = (
    "/chat/completions",
    "/completions",
    "/embeddings",
    "/responses",
    "/messages/count_tokens",
    "/messages",
    "/models",
)


def backend_url(text: str) -> str:
    """Return the base URL of a Chat Completions server, without an endpoint; add `/v1` unless it names a version. Raises
    ValueError for a URL without scheme or host, and for one with credentials, a query or a fragment, which would appear in
    logs. The message does not repeat them."""
    text = text.strip()
    if not text:
        raise ValueError("expected a URL, not an empty text")
    if "://" not in text:
        raise ValueError(f"expected a URL (did you mean http://{text.rpartition('@')[2]}?)")
    try:
        url = urlsplit(text)
        _ = url.port  # parsed on access; raises if it is not a number
        (URL(text).host or "").encode("idna")  # as it is looked up
    except ValueError:
        raise ValueError("not a valid URL") from None
    if url.scheme not in ("http", "https"):
        raise ValueError(f"expected a URL with http or https, not {url.scheme}")
    if "@" in url.netloc or url.query or url.fragment:
        raise ValueError("the URL must have no user, password, query or fragment: a backend's key belongs in backend_api_key")
    if not url.hostname:
        raise ValueError("the URL has no host")
    path = url.path.rstrip("/")
    for endpoint in _ENDPOINTS:
        path = path.removesuffix(endpoint)
    if not _VERSION_SEGMENT.fullmatch(path.rpartition("/")[2]):
        path += "/v1"
    return urlunsplit((url.scheme, url.netloc, path, "", ""))


def http_url(text: str) -> str:
    """Return the URL of a service. Raises ValueError for another scheme, and for a user or a password, which would appear in
    logs. The message does not repeat them."""
    try:
        url = urlsplit(text.strip())
        _ = url.port
        _ = URL(text.strip()).host  # as it is resolved
    except ValueError:
        raise ValueError("not a valid URL") from None
    if url.scheme not in ("http", "https") or not url.hostname:
        raise ValueError("expected a URL like https://host.example/path")
    if "@" in url.netloc:
        raise ValueError("the URL must have no user or password")
    return text.strip()


HttpUrl = Annotated[str, AfterValidator(http_url)]


def without_password(url: str) -> str:
    """Return the URL of a database with its password hidden."""
    return _PASSWORD.sub(r"\1\2**********", url)


def without_user(url: str) -> str:
    """Return the URL of a database without user and password, for logs."""
    return without_password(url).rpartition("@")[2]
