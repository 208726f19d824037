"""`responses-proxy codex`: the real Codex on the model behind a gateway, in a home of its own."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from urllib.parse import urlsplit

import httpx

from proxy.commands.codex_config import (
    DEFAULT_URL,
    Unusable,
    configuration,
    gateway_url,
    is_loopback,
    preferred,
    served_models,
    write,
)
from proxy.commands.gateway_lifetime import shared_gateway

_NO_CODEX = 127
_START_TIMEOUT, _EXAMINED_WITHIN, _INTERVAL = 30.0, 10.0, 0.05
_LOG_LINES = 10
_VALUED = ("--url", "--backend", "--config", "--model", "--env-key", "--codex-home")
_SWITCHES = ("--simulator", "-h", "--help")
_INSTALLED_HERE = Path(".cache") / "codex" / "node_modules" / ".bin" / "codex"


def split_arguments(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """Ours and those of Codex: from the first one on that is not ours, all are Codex's. A `--` in between is dropped."""
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
    """Ours; what follows them is for Codex."""
    parser.usage = "responses-proxy codex [--backend URL] [OPTION …] [ARGUMENT OF CODEX …]"
    parser.epilog = (
        "The first argument that is not one of these, and all behind it, go to Codex: responses-proxy codex exec 'fix the "
        "tests'. The exit status is that of Codex."
    )
    parser.add_argument(
        "--url", default=DEFAULT_URL, help="the gateway; one is started there if none answers (default: %(default)s)"
    )
    parser.add_argument("--backend", metavar="URL", help="Chat Completions server for a gateway that is started")
    parser.add_argument("--simulator", action="store_true", help="start the gateway in front of a simulated backend")
    parser.add_argument("--config", metavar="FILE", help="settings of a gateway that is started, as for serve")
    parser.add_argument(
        "--model", help="model to start with (default: the last one picked if it is served, else the first that is)"
    )
    parser.add_argument("--env-key", metavar="NAME", help="environment variable with the key, if one is wanted")
    parser.add_argument(
        "--codex-home", type=Path, metavar="DIR", help="Codex's settings and sessions (default: one of our own)"
    )


def run(args: argparse.Namespace) -> int:
    """The exit status of Codex, 127 if there is none, 1 if there is no gateway, 2 for a wrong URL."""
    try:
        url = gateway_url(args.url)
    except ValueError as error:
        print(f"responses-proxy: --url: {error}", file=sys.stderr)
        return 2
    binary = find_codex()
    if binary is None:
        print("responses-proxy: Codex is not installed: npm install -g @openai/codex", file=sys.stderr)
        return _NO_CODEX
    home = (args.codex_home or default_home(os.environ)).absolute()
    try:
        home.mkdir(parents=True, exist_ok=True)
        with _gateway(url, args, home):
            path = home / "config.toml"
            model = args.model or preferred(served_models(url, args.env_key, os.environ), path)
            write(path, configuration(url, model, args.env_key))
            return _run_codex([binary, *args.passed_on], _environment(url, home))
    except KeyboardInterrupt:  # while the gateway starts
        return 128 + signal.SIGINT
    except (Unusable, OSError) as error:
        print(f"responses-proxy: {error}", file=sys.stderr)
        return 1


def find_codex() -> str | None:
    """The program: on the search path, else where `scripts/install-codex` puts it."""
    here = (folder / _INSTALLED_HERE for folder in (Path.cwd(), Path(__file__).parents[2]))
    return shutil.which("codex") or next((str(path) for path in here if path.exists()), None)


def default_home(environ: Mapping[str, str]) -> Path:
    """Kept from run to run, so that Codex can resume its sessions, and apart from the user's own."""
    state = environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "responses-proxy" / "codex"


@contextmanager
def _gateway(url: str, args: argparse.Namespace, home: Path) -> Iterator[None]:
    """A gateway that answers at the URL: the one that does already, or one that lives as long as this block, and as those of
    others with the same home who came meanwhile."""

    def answers() -> bool:
        found = _answers(url)
        if found and (args.backend or args.simulator or args.config):
            print(f"responses-proxy: a gateway answers at {url} already: using that one as it is", file=sys.stderr)
        return found

    def start(inherited: tuple[int, ...]) -> subprocess.Popen[bytes]:
        return _start(url, args, home / "gateway.log", inherited)

    with shared_gateway(home / f"gateway-{urlsplit(url).netloc}", answers, start):
        yield


def _start(url: str, args: argparse.Namespace, log: Path, inherited: tuple[int, ...]) -> subprocess.Popen[bytes]:
    """A gateway that answers at the URL. Raises `Unusable`."""
    if not is_loopback(url):
        raise Unusable(f"no gateway answers at {url}")
    with log.open("wb") as output:
        # A session of its own: Ctrl-C is meant for Codex.
        process = subprocess.Popen(
            _serve_command(url, args),
            env=_finding_us(),
            stdout=output,
            stderr=output,
            start_new_session=True,
            pass_fds=inherited,
        )
    try:
        _wait_for(url, process, log)
    except BaseException:
        process.kill()
        process.wait()
        raise
    return process


def _serve_command(url: str, args: argparse.Namespace) -> list[str]:
    address = urlsplit(url)
    # -P: a folder `proxy` in the user's project is not ours.
    command = [
        sys.executable,
        "-P",
        "-m",
        "proxy",
        "serve",
        "--host",
        address.hostname or "",
        "--port",
        str(address.port or 80),
    ]
    for name, value in (("--backend", args.backend), ("--config", args.config)):
        command += [name, value] if value else []
    return [*command, "--simulator"] if args.simulator else command


def _finding_us() -> dict[str, str]:
    places = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, places))}


def _answers(url: str) -> bool:
    """A gateway is there. Raises `Unusable` for another kind of server."""
    try:
        answer = httpx.get(f"{url.removesuffix('/v1')}/health", timeout=_INTERVAL * 100, trust_env=not is_loopback(url))
    except httpx.ConnectError:
        return False
    except httpx.HTTPError as error:
        raise Unusable(f"what listens at {url} does not answer as a gateway does ({type(error).__name__})") from None
    if answer.headers.get("server") != "responses-proxy":
        raise Unusable(f"another server listens at {url}: give --url another port, for example http://127.0.0.1:9001")
    return True


def _wait_for(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _START_TIMEOUT
    while not _answers(url):
        if process.poll() is not None or time.monotonic() > deadline:
            said = "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-_LOG_LINES:])
            raise Unusable(f"the gateway did not start:\n{said}")
        time.sleep(_INTERVAL)
    # Codex asks at once, and should be answered as the backend wants it.
    deadline = time.monotonic() + _EXAMINED_WITHIN
    while _is_examining(url) and time.monotonic() < deadline:
        time.sleep(_INTERVAL)


def _is_examining(url: str) -> bool:
    """The gateway is still finding out what its backend wants."""
    try:
        answer = httpx.get(f"{url.removesuffix('/v1')}/health", timeout=_INTERVAL * 100, trust_env=not is_loopback(url))
        return answer.json().get("examining") is True
    except (httpx.HTTPError, ValueError):
        return False


def _environment(url: str, home: Path) -> dict[str, str]:
    environment = {**os.environ, "CODEX_HOME": str(home)}
    if is_loopback(url):
        for name in ("NO_PROXY", "no_proxy"):
            environment[name] = ",".join(filter(None, [os.environ.get(name), urlsplit(url).hostname]))
    return environment


def _run_codex(command: list[str], environment: dict[str, str]) -> int:
    """Codex in the foreground: it gets the terminal and its signals, we wait."""
    process = subprocess.Popen(command, env=environment)

    def pass_on(number: int, frame: FrameType | None) -> None:
        process.send_signal(number)

    before = {
        signal.SIGTERM: signal.signal(signal.SIGTERM, pass_on),
        signal.SIGINT: signal.signal(signal.SIGINT, signal.SIG_IGN),
    }
    try:
        status = process.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return 128 - status if status < 0 else status  # killed by a signal: as a shell reports it
