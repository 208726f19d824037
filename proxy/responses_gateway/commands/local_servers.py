"""The model servers that listen on the usual ports of this machine, for a user who has named none."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import httpx

# Of Ollama, llama.cpp, vLLM, LM Studio and SGLang.
PORTS = (11434, 8080, 8000, 1234, 30000)
_TIMEOUT = 1.0  # seconds for an answer, and for each part of it: these servers are on this machine
# Bytes of a list of models. What streams at this port, a camera for one, does not end.
_LONGEST = 8 * 1024 * 1024
# What servers call the owner of their models -> their names.
_NAMES = {"library": "Ollama", "llamacpp": "llama.cpp", "vllm": "vLLM", "organization_owner": "LM Studio", "sglang": "SGLang"}


class LocalServer(NamedTuple):
    """A server that lists models: its name as far as it tells, and its URL."""

    name: str
    url: str
    models: int

    def __str__(self) -> str:
        return f"{self.name} at {self.url} ({self.models} model{'' if self.models == 1 else 's'})"


def find_servers(ports: Sequence[int] = PORTS) -> list[LocalServer]:
    """Return the servers that answer."""
    with httpx.Client(timeout=_TIMEOUT, trust_env=False) as client:
        answers = (_ask(client, f"http://127.0.0.1:{port}") for port in ports)
        return [server for server in answers if server is not None]


def choose_server(servers: Sequence[LocalServer]) -> str | None:
    """Ask the user which server to use; None without a terminal, or for none of them."""
    if not servers or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return None
    for number, server in enumerate(servers, start=1):
        print(f"responses-gateway: found server {number}: {server}", file=sys.stderr)
    which = "Use it" if len(servers) == 1 else f"Use which one, 1 to {len(servers)}"
    print(f"{which}? [{'Y/n' if len(servers) == 1 else '1'}] ", end="", file=sys.stderr, flush=True)
    answer = sys.stdin.readline().strip().lower()
    if answer in ("", "y", "yes"):
        return servers[0].url
    return servers[int(answer) - 1].url if answer.isdecimal() and 0 < int(answer) <= len(servers) else None


def suggested(servers: Sequence[LocalServer]) -> str:
    """Return what an error says of the servers that are there."""
    return "".join(f"\nFound {server}. To use it: --backend {server.url}" for server in servers)


def _body(answer: httpx.Response) -> bytes:
    """Return the body. Raise `ValueError` for one that does not end."""
    body = bytearray()
    deadline = time.monotonic() + _TIMEOUT
    for piece in answer.iter_bytes():
        body += piece
        if len(body) > _LONGEST or time.monotonic() > deadline:
            raise ValueError("the body does not end")
    return bytes(body)


def _ask(client: httpx.Client, url: str) -> LocalServer | None:
    try:
        with client.stream("GET", f"{url}/v1/models") as answer:
            listed: Any = json.loads(_body(answer))
        models = [model for model in listed["data"] if isinstance(model["id"], str)]
    except (httpx.HTTPError, ValueError, RecursionError, LookupError, TypeError):
        return None
    if answer.headers.get("server") == "responses-gateway" or not models:
        return None
    return LocalServer(_NAMES.get(str(models[0].get("owned_by")), "a model server"), url, len(models))
