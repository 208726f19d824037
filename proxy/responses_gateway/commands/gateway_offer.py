"""What a gateway offers to the client that is configured for it: its models, their windows, and a web search."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import httpx

from responses_gateway.commands import Unusable, fits_header
from responses_gateway.settings import Settings, backend_url
from responses_gateway.wire.hosts.addresses import is_loopback

DEFAULT_URL = f"http://{Settings().host}:{Settings().port}"
_LISTING_TIMEOUT = 15.0
_SMALLEST_WINDOW = 32_768  # tokens that an agent needs to work a little before it compacts
MAX_BYTES = 64 * 1024 * 1024  # the longest body that is read, unpacked: a server may never end
_MESSAGE_LIMIT = 300  # how much of an error is shown, in characters
# What an error says to those who have not named a model.
_OR_NAMED = ", or give --model"
# Codes of a gateway's errors that are about its URL.
_ABOUT_URL = {"host_not_allowed", "https_required"}


class BackendDown(Unusable):
    """The gateway answers, but its backend does not."""


@dataclass(frozen=True, slots=True)
class Offer:
    """What a gateway offers: the models that a client would list, its default first, the context window of each model in tokens
    where it is known, whether the gateway searches the web, and whether it judges tool calls. `unknown` says why that is not
    known. `served` are all names of models that it takes."""

    models: tuple[str, ...] = ()
    windows: Mapping[str, int] = field(default_factory=dict)
    web_search: bool = False
    judges_calls: bool = False
    unknown: str = ""
    served: frozenset[str] = frozenset()


def read_url(text: str) -> str:
    """Return the base URL of a gateway that the user has named. Raises `Unusable`."""
    try:
        return backend_url(text)
    except ValueError as error:
        raise Unusable(f"--url: {error}", status=2) from None


def offer_of(url: str, env_key: str | None, environ: Mapping[str, str], *, needs_models: bool) -> Offer:
    """Return what the gateway offers: at least one model, if they are needed. Raises `Unusable`; where no models are needed, a
    gateway that cannot be asked offers nothing."""
    try:
        listed = _listed(url, env_key, environ)
        models = _served(url, listed)
    except Unusable as reason:
        if needs_models:
            raise
        return Offer(unknown=str(reason).removesuffix(_OR_NAMED))
    hosted = listed.get("hosted_tools")
    searches = isinstance(hosted, list) and "web_search" in hosted
    judges = listed.get("safeguards") is True
    return Offer(models, _windows(listed), searches, judges, served=_all_served(listed))


def served_model(name: str | None, offer: Offer) -> str | None:
    """Return the model that the user has named, if the gateway serves it or could not be asked. Raises `Unusable`."""
    if name is None or not offer.served or name in offer.served:
        return name
    raise Unusable(f"--model: {name} is not served; choose one of: {', '.join(offer.models)}")


def warn_of_small_window(client: str, first_request: int, model: str, offer: Offer) -> None:
    """Tell the user that a model's context is too small for a client whose first request has so many tokens."""
    window = offer.windows.get(model)
    if window is not None and window < _SMALLEST_WINDOW:
        print(
            f"responses-gateway: warning: the context window of {model} has {window:,} tokens, of which {client}'s first "
            f"request alone takes about {first_request:,}. Serve a model with {_SMALLEST_WINDOW:,} tokens or more.",
            file=sys.stderr,
        )


def key_in(env_key: str | None, environ: Mapping[str, str]) -> str | None:
    """Return the key in the variable, if one is named. Raises `Unusable` where it is not set."""
    key = header_key(env_key, environ) if env_key else ""
    if env_key and not key:
        raise Unusable(f"--env-key: the variable {env_key} is not set: set it to your key for the gateway")
    return key or None


def header_key(name: str, environ: Mapping[str, str]) -> str:
    """Return the key in a variable; empty if it is not set. Files of secrets often end with a line break, which is no part of
    it. Raises `Unusable` for one that no header can have."""
    key = environ.get(name, "").strip()
    if not fits_header(key):
        raise Unusable(f"the key in {name} contains characters that a header may not have")
    return key


def _listed(url: str, env_key: str | None, environ: Mapping[str, str]) -> dict[str, Any]:
    """Return the gateway's answer about its models. Raises `Unusable`."""
    key = key_in(env_key, environ)
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    try:
        answer = ask("GET", f"{url}/models", headers=headers, timeout=_LISTING_TIMEOUT)
    except httpx.HTTPError:
        raise Unusable(f"no gateway answers at {url}: start one (responses-gateway serve --backend URL){_OR_NAMED}") from None
    if answer.status_code in (401, 403):
        if key:
            raise Unusable(f"the gateway at {url} refused the key in {env_key}")
        raise Unusable(f"the gateway at {url} needs a key: put it into an environment variable, and name that with --env-key")
    if answer.status_code >= 500 and answer.headers.get("server") == "responses-gateway":
        raise BackendDown(f"the gateway at {url} answers, but its backend does not: {_message_of(answer)}")
    try:
        listed = answer.json()
    except (ValueError, RecursionError):
        listed = None
    if not isinstance(listed, dict) or not isinstance(listed.get("models"), list):
        raise Unusable(
            f"{url} does not list models as a gateway does (HTTP {answer.status_code}): is this the URL of a gateway?"
        )
    return listed


def _served(url: str, listed: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the models that a client would list. Raises `Unusable`."""
    try:
        catalog = [model for model in listed["models"] if model["visibility"] == "list"]
        models = tuple(str(model["slug"]) for model in sorted(catalog, key=lambda model: model["priority"]))
    except (KeyError, TypeError):
        raise Unusable(f"{url} does not list models as a gateway does: is this the URL of a gateway?") from None
    if not models:
        raise Unusable(f"the gateway at {url} lists no model: start its backend, or give --model")
    return models


def _all_served(listed: Mapping[str, Any]) -> frozenset[str]:
    entries = [*listed["models"], *(listed["data"] if isinstance(listed.get("data"), list) else ())]
    names = [entry.get("slug", entry.get("id")) for entry in entries if isinstance(entry, dict)]
    return frozenset(name for name in names if isinstance(name, str))


def _windows(listed: Mapping[str, Any]) -> dict[str, int]:
    entries = [(model.get("slug"), model.get("context_window")) for model in listed["models"] if isinstance(model, dict)]
    return {name: size for name, size in entries if isinstance(name, str) and type(size) is int and size > 0}


def ask(method: str, url: str, **more: Any) -> httpx.Response:
    """Return a gateway's answer. Raises `httpx.HTTPError`, and `Unusable` where another URL or certificate is needed."""
    try:
        with client_of(url) as client:
            answer = client.request(method, url, **more)
    except httpx.ConnectError as error:
        _, untrusted, reason = str(error).partition("certificate verify failed: ")
        if not untrusted:
            raise
        reason = reason.partition(" (_ssl")[0].rstrip(".")
        raise Unusable(f"no trusted connection to {url}: {reason}; SSL_CERT_FILE names a file of your own authority") from None
    if answer.is_client_error and error_of(answer).get("code") in _ABOUT_URL:
        raise Unusable(f"{url}: {_message_of(answer)}")
    return answer


def _message_of(answer: httpx.Response) -> str:
    """Return what the gateway says of the failure, else the status."""
    return str(error_of(answer).get("message", f"status {answer.status_code}"))[:_MESSAGE_LIMIT]


def error_of(answer: httpx.Response) -> Mapping[str, Any]:
    """Return the error in an answer; empty if there is none."""
    try:
        error = answer.json()["error"]
    except (ValueError, RecursionError, LookupError, TypeError):
        return {}
    return error if isinstance(error, dict) else {}


def client_of(url: str, **more: Any) -> httpx.Client:
    """Return a client for a server: on this machine without a proxy. It trusts the authorities of the machine, or those that
    SSL_CERT_FILE names, as the gateway does, and those it comes with, because not every Python finds the machine's. Raises
    `Unusable` for a proxy of the environment that it cannot use, and where it reads a body that is longer than any."""
    trusted = httpx.create_ssl_context(trust_env=False)
    trusted.load_default_certs()
    try:
        hooks = {"response": [_bound]}
        return httpx.Client(trust_env=not is_on_this_machine(url), verify=trusted, event_hooks=hooks, **more)
    except (ImportError, ValueError) as error:  # SOCKS needs a package of its own
        raise Unusable(f"the proxy that the environment names for {url} cannot be used: {error}", status=2) from None


def _bound(answer: httpx.Response) -> None:
    pieces = answer.iter_bytes

    def bounded(chunk_size: int | None = None) -> Iterator[bytes]:
        size = 0
        for piece in pieces(chunk_size):
            size += len(piece)
            if size > MAX_BYTES:
                raise Unusable(f"{answer.url} sent more than {MAX_BYTES} bytes")
            yield piece

    answer.iter_bytes = bounded  # type: ignore[method-assign]  # by which a body is read, whole or in pieces


def is_on_this_machine(url: str) -> bool:
    """Tell whether a URL is on this machine, where no HTTP proxy is used, whatever the environment says. Raises `Unusable`."""
    try:
        return is_loopback(urlsplit(url).hostname or "")
    except ValueError as error:
        raise Unusable(f"{url} is not a valid URL: {error}", status=2) from None
