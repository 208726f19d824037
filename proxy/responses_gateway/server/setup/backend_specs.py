"""The backends of the settings, as the pool takes them."""

from __future__ import annotations

from dataclasses import replace
from urllib.parse import urlsplit

from responses_gateway.backend.discovery.interface import Target
from responses_gateway.backend.served_models import BackendSpec
from responses_gateway.settings import BackendDetails, BackendPool, Settings
from responses_gateway.settings.backend import BackendOptions


def specs_of(settings: Settings) -> list[BackendSpec]:
    """Return all backends of the settings: first those with a URL alone, named by host and port, then those with details."""
    plain: dict[str, BackendDetails] = {}
    for url in settings.backend:
        name = name_of(url)
        number = 2
        # The same host and port with http and https, for example; or the name of another one in `backends`.
        while name in plain or (name in settings.backends and settings.backends[name].url != url):
            name = f"{name_of(url)}-{number}"
            number += 1
        plain[name] = BackendDetails(url=url)
    return [spec_of(name, details, settings) for name, details in {**plain, **settings.backends}.items()]


def spec_of(name: str, details: BackendDetails, settings: Settings, source: str = "settings") -> BackendSpec:
    """Return a backend with its details; for what they leave out, the settings for all backends apply."""
    return replace(_spec(name, details.url, details, settings), source=source)


def member_of(pool: str, details: BackendPool, target: Target, settings: Settings, source: str) -> BackendSpec:
    """Return a member of a pool: the backend at a target."""
    url = f"{target.scheme or details.scheme}://{target.address}{details.path}"
    weight = details.weight if target.weight is None else target.weight
    spec = _spec(f"{pool}:{target.address}", url, details, settings)
    return replace(spec, weight=weight, source=source, pool=pool, pod=target.pod, draining=target.draining)


def _spec(name: str, url: str, details: BackendOptions, settings: Settings) -> BackendSpec:
    key = details.api_key or settings.backend_api_key
    continued = settings.continue_answers if details.continue_answers is None else details.continue_answers
    return BackendSpec(
        name=name,
        url=url,
        api_key=key.get_secret_value() if key is not None else None,
        models=tuple(details.models),
        aliases=details.aliases,
        max_concurrency=details.max_concurrency or settings.max_concurrency,
        weight=details.weight,
        session_hints=details.session_hints,
        router=None if details.router == "auto" else details.router,
        continue_answers=None if continued == "auto" else continued,
        # A key for the gateway is not for the backend.
        forward_authorization=details.forward_authorization
        and settings.forward_authorization
        and not settings.identifies_clients,
        # Said explicitly: a developer's own key must not reach a model server because a client found it in the environment.
        forward_provider_keys=bool({*settings.model_fields_set, *details.model_fields_set} & {"forward_authorization"}),
    )


def name_of(url: str) -> str:
    """Name a backend by host and port, and by its path if that is not the usual one."""
    parts = urlsplit(url)
    path = parts.path.strip("/").removesuffix("v1").strip("/")
    return parts.netloc + (":" + path.replace("/", "-") if path else "")
