"""Announce a gateway that has just started: its log line, and in a terminal commands that can be copied as they stand."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
from threading import Thread
from typing import TextIO
from urllib.error import URLError
from urllib.request import ProxyHandler, build_opener

from responses_gateway.server.process.sockets import Listeners, url_of
from responses_gateway.server.setup.backend_specs import specs_of
from responses_gateway.settings import Settings
from responses_gateway.telemetry import logs
from responses_gateway.version import version_line

_COMMAND = "responses-gateway"
_TIMEOUT = 5.0  # seconds for each of the gateway's own answers
_KEY = "RESPONSES_GATEWAY_KEY"  # the variable that stands for a key in the commands shown
# Addresses that a server listens on but no client can connect to, and what they connect to instead.
_CONNECTABLE = {"//0.0.0.0:": "//127.0.0.1:", "//[::]:": "//[::1]:"}


def announce(settings: Settings, listeners: Listeners, **more: int) -> None:
    """Log the URLs at which requests are answered. In a terminal, show the next steps."""
    tls = settings.tls_cert is not None
    urls = [url_of(listener, tls) for listener in listeners.clients]
    operations = url_of(listeners.operators[0], tls) if listeners.operators else None
    backends = " ".join(spec.url for spec in specs_of(settings))
    fields = logs.fields(
        url=",".join(urls), backend=backends, operations=operations, version=version_line(), pid=os.getpid(), **more
    )
    logs.logger().info("listening", extra=fields)
    show_next_steps(settings, urls[0], operations)


def show_next_steps(settings: Settings, url: str, operations: str | None, stream: TextIO | None = None) -> None:
    """Print the next steps on standard error, if it is a terminal, as soon as the gateway itself has listed the models that
    it serves. A Unix socket has no URL that could be copied."""
    stream = stream or sys.stderr
    if not url.startswith("http") or not stream.isatty():
        return
    Thread(target=_print, args=(settings, url, operations, stream), name="next steps", daemon=True).start()


def next_steps(url: str, model: str | None, *, keys: bool = False, page: str | None = None, command: str = _COMMAND) -> str:
    """Return the text. `model` is None if none is known, `keys`: clients need one, `page` is the URL of the live
    page, and `command` is how the user can run this program."""
    header = f" -H 'authorization: Bearer '\"${_KEY}\"" if keys else ""
    body = json.dumps({"model": model or "MODEL", "input": "Why is the sky blue?", "stream": True})
    steps = [
        ("curl", f"curl -N {url}/v1/responses{header} -H 'content-type: application/json' -d {shlex.quote(body)}"),
        ("Codex", f"{command} codex --url {url}{f' --env-key {_KEY}' if keys else ''}"),
        ("SDK", f'OpenAI(base_url="{url}/v1", api_key={f"os.environ[{_KEY!r}]" if keys else repr("none")})'),
    ]
    if page is not None:
        steps.append(("live", page))
    if model is None:
        steps.insert(0, ("models", f"curl {url}/v1/models{header}"))
    lines = "".join(f"  {name:7}{text}\n" for name, text in steps)
    return f"\nThe gateway is ready at {url}/v1. Ctrl-C stops it. Try:\n\n{lines}\n"


def _print(settings: Settings, url: str, operations: str | None, stream: TextIO) -> None:
    reachable = _connectable(url)
    page = f"{_connectable(operations or url)}/ui"
    stream.write(
        next_steps(
            reachable,
            None if settings.api_keys else _first_model(reachable),
            keys=bool(settings.api_keys),
            page=page if _fetched(page) is not None else None,
            command=_own_command(),
        )
    )
    stream.flush()


def _connectable(url: str) -> str:
    for listening, connecting in _CONNECTABLE.items():
        url = url.replace(listening, connecting)
    return url


def _first_model(url: str) -> str | None:
    """Return the first model that the gateway lists; None if its backend does not answer."""
    try:
        return str(json.loads(_fetched(f"{url}/v1/models") or "")["data"][0]["id"])
    except (ValueError, LookupError, TypeError):
        return None


def _fetched(url: str) -> bytes | None:
    """Return the body of a successful answer, else None (as for a certificate that this machine does not trust)."""
    try:
        with build_opener(ProxyHandler({})).open(url, timeout=_TIMEOUT) as answer:
            return bytes(answer.read())
    except (URLError, OSError, ValueError):
        return None


def _own_command() -> str:
    """Return how the user can run this program from the current folder."""
    if shutil.which(_COMMAND):
        return _COMMAND
    beside_python = os.path.join(os.path.dirname(sys.executable), _COMMAND)
    if os.path.exists(beside_python):
        return shlex.quote(os.path.relpath(beside_python))
    return f"{shlex.quote(sys.executable)} -m responses_gateway"
