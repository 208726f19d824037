"""Announce a gateway that has just started: its log line, and in a terminal commands that can be copied as they stand."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
import time
from threading import Thread
from typing import TextIO

from responses_gateway.backend.served_models import BackendSpec, Listing, ModelCatalogue
from responses_gateway.server.process.sockets import Listeners, url_of
from responses_gateway.server.setup.backend_specs import specs_of
from responses_gateway.settings import CLIENT_KEY_VARIABLE, Settings
from responses_gateway.telemetry import logs
from responses_gateway.version import version_line

_COMMAND = "responses-gateway"
_TIMEOUT = 5.0  # seconds for a backend to list its models
_RETRY_INTERVAL = 1.0  # seconds, while no backend answers
# Addresses that a server listens on but no client can connect to, and what they connect to instead.
_CONNECTABLE = {"//0.0.0.0:": "//127.0.0.1:", "//[::]:": "//[::1]:"}


def announce(settings: Settings, listeners: Listeners, **more: int) -> None:
    """Log the URLs at which requests are answered. In a terminal, show the next steps."""
    tls = settings.tls_cert is not None
    urls = [url_of(listener, tls) for listener in listeners.clients]
    operations = url_of(listeners.operators[0], tls) if listeners.operators else None
    backends = " ".join([*(spec.url for spec in specs_of(settings)), *(f"pool:{name}" for name in settings.pools)])
    fields = logs.fields(
        url=",".join(urls), backend=backends, operations=operations, version=version_line(), pid=os.getpid(), **more
    )
    logs.logger().info("listening", extra=fields)
    if urls[0].startswith("http") and sys.stderr.isatty():  # a Unix socket has no URL
        args = (settings, urls[0], operations, sys.stderr)
        Thread(target=_show_next_steps, args=args, name="next steps", daemon=True).start()


def next_steps(url: str, model: str | None, *, keys: bool = False, page: str | None = None, command: str = _COMMAND) -> str:
    """Return the text. `model` is None if none is known, `keys`: clients need one, `page` is the URL of the live
    page, and `command` is how the user can run this program."""
    header = f" -H 'authorization: Bearer '\"${CLIENT_KEY_VARIABLE}\"" if keys else ""
    body = json.dumps({"model": model or "MODEL", "input": "Why is the sky blue?", "stream": True})
    steps = [
        ("curl", f"curl -N {url}/v1/responses{header} -H 'content-type: application/json' -d {shlex.quote(body)}"),
        ("Codex", f"{command} codex --url {url}{f' --env-key {CLIENT_KEY_VARIABLE}' if keys else ''}"),
        ("Claude", f"{command} claude --url {url}{f' --env-key {CLIENT_KEY_VARIABLE}' if keys else ''}"),
        ("SDK", f'OpenAI(base_url="{url}/v1", api_key={f"os.environ[{CLIENT_KEY_VARIABLE!r}]" if keys else repr("none")})'),
    ]
    if page is not None:
        steps.append(("live", page))
    if model is None:
        steps.insert(0, ("models", f"curl {url}/v1/models{header}"))
    lines = "".join(f"  {name:8}{text}\n" for name, text in steps)
    return f"\nThe gateway is ready at {url}/v1. Ctrl-C stops it. Try:\n\n{lines}\n"


def show_waiting(responses: int, seconds: float) -> None:
    """Say on standard error, if it is a terminal, what a gateway that was stopped waits for, `seconds` at most."""
    if responses and sys.stderr.isatty():
        some, them = ("1 response", "it") if responses == 1 else (f"{responses} responses", "them")
        sys.stderr.write(f"\nWaiting for {some} to end, {seconds:g} s at most. Ctrl-C again ends {them} at once.\n\n")
        sys.stderr.flush()


def _show_next_steps(settings: Settings, url: str, operations: str | None, stream: TextIO) -> None:
    """Print the next steps as soon as a backend answers; until then, what is missing. The backends are asked directly, since
    the log has a line for each request to the gateway."""
    reachable = _connectable(url)
    specs = specs_of(settings)
    models = _models(specs)
    if models is None and not specs:
        models = []  # of pools nothing is known here
    if models is None:
        urls = " ".join(spec.url for spec in specs)
        stream.write(
            f"\nThe gateway listens at {reachable}/v1, but no backend answers yet: {urls}\n"
            "Is the server running, and is its URL right? The next steps follow when it answers. Ctrl-C stops the gateway.\n\n"
        )
        stream.flush()
    while models is None:
        time.sleep(_RETRY_INTERVAL)
        models = _models(specs)
    # Others are refused there, or asked for a key that the gateway does not have.
    has_page = settings.ui != "off" and (
        operations is not None or settings.admin_key is not None or not settings.identifies_clients
    )
    page = f"{_connectable(operations or url)}/ui" if has_page else None
    model = models[0] if models else None
    stream.write(next_steps(reachable, model, keys=settings.identifies_clients, page=page, command=_own_command()))
    stream.flush()


def _connectable(url: str) -> str:
    for listening, connecting in _CONNECTABLE.items():
        url = url.replace(listening, connecting)
    return url


def _models(specs: list[BackendSpec]) -> list[str] | None:
    """Return the models that clients can name, as the first backend lists them that answers; None if none answers."""
    return next((models for spec in specs if (models := _models_of(spec)) is not None), None)


def _models_of(spec: BackendSpec) -> list[str] | None:
    """Return the models of a backend, none if it lists them only for the key of a client; None if it does not answer."""
    import httpx  # noqa: PLC0415  (for terminals alone)

    headers = {} if spec.api_key is None else {"Authorization": f"Bearer {spec.api_key}"}
    catalogue = ModelCatalogue(spec.models, spec.aliases)
    try:
        answer = httpx.get(f"{spec.url}/models", headers=headers, timeout=_TIMEOUT, trust_env=False)
        if answer.status_code >= 500:
            return None
        catalogue.listed = Listing({str(model["id"]): None for model in answer.json()["data"]})
    except httpx.HTTPError:
        return None
    except (ValueError, LookupError, TypeError):  # not a list of models
        pass
    return catalogue.names()


def _own_command() -> str:
    """Return how the user can run this program from the current folder."""
    if shutil.which(_COMMAND):
        return _COMMAND
    beside_python = os.path.join(os.path.dirname(sys.executable), _COMMAND)
    if os.path.exists(beside_python):
        return shlex.quote(os.path.relpath(beside_python))
    return f"{shlex.quote(sys.executable)} -m responses_gateway"
