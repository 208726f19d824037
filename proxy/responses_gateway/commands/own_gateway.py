"""The gateway that a client is run with: one that answers already, or one of its own, which ends with it."""

from __future__ import annotations

import argparse
import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from responses_gateway.commands import Unusable, gateway_offer
from responses_gateway.commands.local_servers import choose_server, find_servers, suggested
from responses_gateway.settings import CONFIG_VARIABLE, variable

# Variables by which a gateway that is started here gets its backends.
_WITH_BACKEND = (variable("backend"), variable("backends"), variable("pools"), CONFIG_VARIABLE)
# The flags of `add_gateway_arguments` that have a value.
VALUED = ("--url", "--backend", "--config", "--model", "--env-key")
SWITCHES = ("--simulator", "-h", "--help")
# Times in seconds. Autoconfiguration has so long before the client is started.
_START_TIMEOUT = 30.0
_AUTOCONFIGURE_TIMEOUT = 10.0
_STOP_TIMEOUT = 10.0
_REQUEST_TIMEOUT = 5.0
_POLL_INTERVAL = 0.05
_LOG_LINES = 10  # of a gateway that did not start
_PR_SET_PDEATHSIG = 1  # of Linux's prctl


def add_gateway_arguments(parser: argparse.ArgumentParser, default_model: str) -> None:
    """Add which gateway is used, or how one is started; `default_model` says which model is used if none is named."""
    parser.add_argument(
        "--url",
        help=f"gateway to use (default: {gateway_offer.DEFAULT_URL}, unless --backend, --simulator or --config is given); "
        "if none answers there, you are asked whether to start one in front of a model server on this machine",
    )
    parser.add_argument("--backend", metavar="URL", help="start a gateway in front of this Chat Completions server")
    parser.add_argument("--simulator", action="store_true", help="start a gateway in front of a simulated backend")
    parser.add_argument("--config", metavar="FILE", help="start a gateway with this settings file")
    parser.add_argument("--model", help=f"model to start with (default: {default_model})")
    parser.add_argument("--env-key", metavar="NAME", help="environment variable with the gateway's key, if it needs one")


def run_with_gateway(args: argparse.Namespace, home: Path, start: Callable[[str], int]) -> int:
    """Run `start` with the URL of a gateway, whose log is in `home` if it is started here. Returns what that returns. Raises
    `Unusable`."""
    url = gateway_offer.read_url(args.url or gateway_offer.DEFAULT_URL)
    try:
        home.mkdir(parents=True, exist_ok=True)
        with _gateway(url, args, home / "gateway.log") as address:
            return start(address)
    except KeyboardInterrupt:  # while the gateway starts
        return 128 + signal.SIGINT
    except OSError as error:
        raise Unusable(str(error)) from None


def offer_at(url: str, args: argparse.Namespace) -> gateway_offer.Offer:
    """Return what the gateway offers. Raises `Unusable`, which names the backend if that is what does not answer."""
    try:
        return gateway_offer.offer_of(url, args.env_key, os.environ, needs_models=args.model is None)
    except gateway_offer.BackendDown as error:
        if not args.backend:
            raise
        raise Unusable(f"the backend {args.backend} does not answer: is it running, and is --backend right?") from error


@contextmanager
def _gateway(url: str, args: argparse.Namespace, log: Path) -> Iterator[str]:
    """Give the URL of a gateway: the one that answers at `url`, or one that runs as long as the block. Raises `Unusable`."""
    wants_own = args.backend or args.simulator or args.config
    if args.url and wants_own and _answers(url):
        raise Unusable(f"a gateway already answers at {url}: leave out --url, or --backend, --simulator and --config")
    if not wants_own and _answers(url):
        yield url
        return
    if not gateway_offer.is_on_this_machine(url):
        raise Unusable(f"no gateway answers at {url}: is it running, and is --url right?")
    if not wants_own and not any(os.environ.get(name) for name in _WITH_BACKEND):
        servers = find_servers()
        args.backend = choose_server(servers)
        if args.backend is None:
            raise Unusable(f"no gateway answers at {url}: give --backend URL, or try --simulator{suggested(servers)}")
    own = _with_free_port(url)  # so that it is nobody else's, and may end with this client
    process = _start(own, args, log)
    try:
        _wait_until_ready(own, process, log)
        yield own
    finally:
        _stop(process)


def _with_free_port(url: str) -> str:
    host = urlsplit(url).hostname or ""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.bind((host, 0))
        port = probe.getsockname()[1]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/v1"


def _start(url: str, args: argparse.Namespace, log: Path) -> subprocess.Popen[bytes]:
    log.unlink(missing_ok=True)  # another gateway may be writing to the one that is there
    with log.open("wb") as output:
        return subprocess.Popen(
            _serve_command(url, args),
            env=_environment_of_gateway(),
            stdout=output,
            stderr=output,
            start_new_session=True,  # Ctrl-C is meant for the client
            preexec_fn=_end_with_parent,  # noqa: PLW1509 (there are no other threads)
        )


def _end_with_parent() -> None:
    """Let the gateway get SIGTERM when this process is killed, where the system can do that."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_STOP_TIMEOUT)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _serve_command(url: str, args: argparse.Namespace) -> list[str]:
    address = urlsplit(url)
    # -P: a folder of the user's project is not this package.
    command = [sys.executable, "-P", "-m", "responses_gateway", "serve"]
    command += ["--host", address.hostname or "", "--port", str(address.port)]
    for name, value in (("--backend", args.backend), ("--config", args.config)):
        command += [name, value] if value else []
    return [*command, "--simulator"] if args.simulator else command


def _environment_of_gateway() -> dict[str, str]:
    """Return the environment in which Python finds this package."""
    places = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, places))}


def _answers(url: str) -> bool:
    """Tell whether a gateway answers. Raises `Unusable` for another kind of server."""
    try:
        answer = _health(url)
    except httpx.ConnectError:
        return False
    except httpx.HTTPError as error:
        raise Unusable(f"the server at {url} does not answer like a gateway ({type(error).__name__})") from None
    if answer.headers.get("server") != "responses-gateway":
        raise Unusable(f"the server at {url} is no gateway: give another URL with --url, for example http://127.0.0.1:9001")
    return True


def _health(url: str) -> httpx.Response:
    return gateway_offer.ask("GET", f"{url.removesuffix('/v1')}/health", timeout=_REQUEST_TIMEOUT)


def _wait_until_ready(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until the gateway answers and is configured for its backend. Raises `Unusable`."""
    deadline = time.monotonic() + _START_TIMEOUT
    while not _answers(url):
        if process.poll() is not None or time.monotonic() > deadline:
            last_lines = "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-_LOG_LINES:])
            raise Unusable(f"the gateway did not start:\n{last_lines}")
        time.sleep(_POLL_INTERVAL)
    deadline = time.monotonic() + _AUTOCONFIGURE_TIMEOUT
    while _is_autoconfiguring(url) and time.monotonic() < deadline:  # the client's first request comes at once
        time.sleep(_POLL_INTERVAL)


def _is_autoconfiguring(url: str) -> bool:
    try:
        return _health(url).json().get("examining") is True
    except (httpx.HTTPError, ValueError, RecursionError):
        return False
