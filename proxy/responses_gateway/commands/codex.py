"""`responses-gateway codex`: run Codex on the model behind a gateway, with settings and sessions of its own."""

from __future__ import annotations

import argparse
import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any
from urllib.parse import urlsplit

import httpx

from responses_gateway.commands.codex_config import (
    DEFAULT_URL,
    PROVIDER,
    BackendDown,
    Offer,
    Unusable,
    configuration,
    is_on_this_machine,
    offer_of,
    preferred,
    write,
)
from responses_gateway.settings import backend_url

_NO_CODEX = 127
# Codex's background server would outlive it, with the address of a gateway that has ended, and copy itself into the home.
_NO_DAEMON = "--no-daemon"
# Times in seconds. Autoconfiguration has so long before Codex is started.
_START_TIMEOUT = 30.0
_AUTOCONFIGURE_TIMEOUT = 10.0
_STOP_TIMEOUT = 10.0
_HELP_TIMEOUT = 10.0
_REQUEST_TIMEOUT = 5.0
_POLL_INTERVAL = 0.05
_LOG_LINES = 10  # of a gateway that did not start
_PR_SET_PDEATHSIG = 1  # of Linux's prctl
_VALUED = ("--url", "--backend", "--config", "--model", "--env-key", "--codex-home")
_SWITCHES = ("--simulator", "-h", "--help")
_INSTALLED_HERE = Path(".cache") / "codex" / "node_modules" / ".bin" / "codex"


def split_arguments(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return our arguments, and those of Codex from the first one on that is not ours. A `--` in between is dropped."""
    place = 0
    while place < len(argv):
        argument = argv[place]
        if argument in _VALUED:
            place += 2
        elif argument in _SWITCHES or argument.partition("=")[0] in _VALUED:
            place += 1
        else:
            break
    rest = list(argv[place:])
    return list(argv[:place]), rest[1:] if rest[:1] == ["--"] else rest


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add our arguments; what follows them is for Codex."""
    parser.usage = "responses-gateway codex [--backend URL] [OPTION …] [ARGUMENT OF CODEX …]"
    parser.epilog = (
        "The first argument that is not one of these, and all after it, go to Codex: responses-gateway codex exec 'fix the "
        "tests'. The exit status is that of Codex."
    )
    parser.add_argument(
        "--url",
        help=f"gateway to use; if none answers there, one is started (default: {DEFAULT_URL}, or a gateway of its own with "
        "--backend, --simulator or --config)",
    )
    parser.add_argument("--backend", metavar="URL", help="start a gateway in front of this Chat Completions server")
    parser.add_argument("--simulator", action="store_true", help="start a gateway in front of a simulated backend")
    parser.add_argument("--config", metavar="FILE", help="start a gateway with this settings file")
    parser.add_argument(
        "--model", help="model to start with (default: the last one picked if it is served, else the first one served)"
    )
    parser.add_argument("--env-key", metavar="NAME", help="environment variable with the key, if one is needed")
    parser.add_argument(
        "--codex-home",
        type=Path,
        metavar="DIR",
        help="folder of Codex's settings and sessions (default: separate from ~/.codex)",
    )


def run(args: argparse.Namespace) -> int:
    """Run Codex. Returns its exit status, 127 if it is not installed, 1 without a gateway, 2 for a wrong URL."""
    try:
        url = backend_url(args.url or DEFAULT_URL)
    except ValueError as error:
        print(f"responses-gateway: --url: {error}", file=sys.stderr)
        return 2
    binary = find_codex()
    if binary is None:
        print("responses-gateway: Codex is not installed: npm install -g @openai/codex", file=sys.stderr)
        return _NO_CODEX
    home = (args.codex_home or default_home(os.environ)).absolute()
    try:
        home.mkdir(parents=True, exist_ok=True)
        with _gateway(url, args, home / "gateway.log") as found:
            path = home / "config.toml"
            offer = _offer_of(found, args)
            model = args.model or preferred(offer.models, path)
            config = configuration(found, model, args.env_key, web_search=offer.web_search)
            offer.warn()
            write(path, config)
            command = [binary, *_without_daemon(binary), *_overrides(config), *args.passed_on]
            return _run_codex(command, _environment(found, home))
    except KeyboardInterrupt:  # while the gateway starts
        return 128 + signal.SIGINT
    except (Unusable, OSError) as error:
        print(f"responses-gateway: {error}", file=sys.stderr)
        return 1


def _offer_of(url: str, args: argparse.Namespace) -> Offer:
    """Return what the gateway offers. Raises `Unusable`, which names the backend if that is what does not answer."""
    try:
        return offer_of(url, args.env_key, os.environ, needs_models=args.model is None)
    except BackendDown as error:
        if not args.backend:
            raise
        raise Unusable(f"the backend {args.backend} does not answer: is it running, and is the URL right?") from error


def find_codex() -> str | None:
    """Return the path of Codex: from the search path, else where `scripts/install-codex` puts it."""
    here = (folder / _INSTALLED_HERE for folder in (Path.cwd(), Path(__file__).parents[3]))
    return shutil.which("codex") or next((str(path) for path in here if path.exists()), None)


def default_home(environ: Mapping[str, str]) -> Path:
    """Return the folder of Codex's settings: kept, so that Codex can resume its sessions, and apart from the user's own."""
    state = environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "responses-gateway" / "codex"


@contextmanager
def _gateway(url: str, args: argparse.Namespace, log: Path) -> Iterator[str]:
    """Give the URL of a gateway: the one that answers at `url`, or one that runs as long as the block. Raises `Unusable`."""
    wants_own = args.backend or args.simulator or args.config
    if args.url and wants_own and _answers(url):
        raise Unusable(f"a gateway answers at {url} already: leave out --url, or --backend, --simulator and --config")
    if not wants_own and _answers(url):
        yield url
        return
    if not is_on_this_machine(url):
        raise Unusable(f"no gateway answers at {url}")
    own = _with_free_port(url)  # so that it is nobody else's, and may end with this Codex
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
            start_new_session=True,  # Ctrl-C is meant for Codex
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
        raise Unusable(f"another server listens at {url}: give --url another port, for example http://127.0.0.1:9001")
    return True


def _health(url: str) -> httpx.Response:
    return httpx.get(f"{url.removesuffix('/v1')}/health", timeout=_REQUEST_TIMEOUT, trust_env=not is_on_this_machine(url))


def _wait_until_ready(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until the gateway answers and is configured for its backend. Raises `Unusable`."""
    deadline = time.monotonic() + _START_TIMEOUT
    while not _answers(url):
        if process.poll() is not None or time.monotonic() > deadline:
            last_lines = "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-_LOG_LINES:])
            raise Unusable(f"the gateway did not start:\n{last_lines}")
        time.sleep(_POLL_INTERVAL)
    deadline = time.monotonic() + _AUTOCONFIGURE_TIMEOUT
    while _is_autoconfiguring(url) and time.monotonic() < deadline:  # the first request of Codex comes at once
        time.sleep(_POLL_INTERVAL)


def _is_autoconfiguring(url: str) -> bool:
    try:
        return _health(url).json().get("examining") is True
    except (httpx.HTTPError, ValueError):
        return False


def _overrides(config: Mapping[str, Any]) -> list[str]:
    """Return arguments that keep Codex with its gateway, since another one may write its own into the file meanwhile."""
    provider = config["model_providers"][PROVIDER]
    keys = ("base_url", "model_catalog_url")
    return [word for key in keys for word in ("-c", f'model_providers.{PROVIDER}.{key}="{provider[key]}"')]


def _without_daemon(binary: str) -> list[str]:
    """Return the flag that keeps Codex from starting its background server, if this version has it."""
    try:
        done = subprocess.run([binary, "--help"], capture_output=True, text=True, timeout=_HELP_TIMEOUT, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [_NO_DAEMON] if _NO_DAEMON in done.stdout else []


def _environment(url: str, home: Path) -> dict[str, str]:
    environment = {**os.environ, "CODEX_HOME": str(home)}
    if is_on_this_machine(url):
        for name in ("NO_PROXY", "no_proxy"):
            environment[name] = ",".join(filter(None, [os.environ.get(name), urlsplit(url).hostname]))
    return environment


def _run_codex(command: list[str], environment: dict[str, str]) -> int:
    """Run Codex in the foreground, where it gets the terminal and its signals. Returns its exit status."""
    process = subprocess.Popen(command, env=environment)

    def pass_on(number: int, frame: FrameType | None) -> None:
        process.send_signal(number)

    before = {
        signal.SIGTERM: signal.signal(signal.SIGTERM, pass_on),
        signal.SIGHUP: signal.signal(signal.SIGHUP, pass_on),
        signal.SIGINT: signal.signal(signal.SIGINT, signal.SIG_IGN),
    }
    try:
        status = process.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return 128 - status if status < 0 else status  # killed by a signal: as a shell reports it
