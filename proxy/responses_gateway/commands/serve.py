"""`responses-gateway serve`: the gateway. Its flags are the fields of `Settings`."""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import secrets
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager
from functools import partial
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from types import FrameType
from typing import Any
from urllib.parse import urlsplit

from pydantic import SecretStr

from responses_gateway.commands.help_parser import HelpParser
from responses_gateway.settings import (
    CONFIG_VARIABLE,
    PARSER_SETTINGS,
    SUPERVISED_VARIABLE,
    Settings,
    SettingsError,
    backend_url,
    describe,
    flag,
    variable,
)
from responses_gateway.settings.load import load, origins
from responses_gateway.settings.reference import SettingInfo, reference

_MARKDOWN_LINK = re.compile(r"\[([^]]*)\]\([^)]*\)")  # descriptions are written for docs/configuration.md, too
# Names of this machine, and addresses that stand for all of them.
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_ANY = frozenset({"0.0.0.0", "::", ""})
# What `--help` shows; the rest is for `--help-all`.
_OFTEN_NEEDED = {
    "--config", "--print-config", "--simulator", "--backend", "--backend-api-key", "--max-concurrency", "--store", "--host",
    "--port", "--operations-port", "--workers", "--reasoning-parser", "--tool-call-parser", "--tokenizer", "--log-level",
    "--log-format", "--admin-key", "--record",
}  # fmt: skip
_NO_BACKEND = (
    "no backend is set: give --backend URL (in a container, the variable RESPONSES_GATEWAY_BACKEND; with Docker Compose, "
    "BACKEND), or try --simulator"
)
_SIMULATED_TOKENS_PER_SECOND = 60  # about what one stream of a busy server gets


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add a flag for each setting, and `--no-…` for a switch."""
    parser.usage = "responses-gateway serve --backend URL [OPTION …]"
    parser.epilog = (
        f"Each setting is also an environment variable ({flag('port')} is {variable('port')}) and a key of the YAML "
        "file. Flags override the environment, and the environment overrides the file. --help-all shows all options. "
        "To read a page that is named here: responses-gateway docs configuration, for example."
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help=f"YAML file with settings (or {CONFIG_VARIABLE})")
    parser.add_argument("--print-config", action="store_true", help="print the settings in effect and what sets them, and exit")
    parser.add_argument("--check", action="store_true", help="check that the gateway could start with these settings, and exit")
    parser.add_argument("--simulator", action="store_true", help="also start a simulated backend, and use it")
    # A mapping is for files, not for command lines.
    flagged = (setting for setting in reference() if setting.kind != "MAPPING")
    for title, settings in groupby(flagged, key=lambda setting: setting.section):
        group = parser.add_argument_group(title)
        for setting in settings:
            _add_flag(group, setting)
    if isinstance(parser, HelpParser):
        parser.show_often(_OFTEN_NEEDED)


def _add_flag(group: argparse._ArgumentGroup, setting: SettingInfo) -> None:
    description = _MARKDOWN_LINK.sub(r"\1", setting.description).replace("`", "")
    text = f"{description} (default: {setting.default})".replace("%", "%%")
    if setting.kind == "true|false":
        group.add_argument(flag(setting.name), action=argparse.BooleanOptionalAction, default=None, help=text)
    else:
        action = "append" if setting.repeated else "store"
        group.add_argument(flag(setting.name), action=action, metavar=setting.kind, help=text)


def run(args: argparse.Namespace) -> int:
    """Serve until SIGINT or SIGTERM. Returns the exit status of the server, or 2 for wrong settings."""
    before = {number: signal.signal(number, _end) for number in (signal.SIGINT, signal.SIGTERM)}
    # Without effect, because a rolling restart would start what starts now; by default the signal ends the process.
    before[signal.SIGUSR2] = signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    try:
        if SUPERVISED_VARIABLE in os.environ:
            return _work(args)
        settings = _found_settings(args)
        if args.print_config:
            for name, origin in sorted(origins(_flags(args), args.config, os.environ).items()):
                print(f"# {name} is set by {origin}")
            print("# All other settings have their defaults.", describe(settings), sep="\n", end="")
            _check(settings, _FILE_CHECKS)
            return 0
        if args.check:
            _try(settings)
            print("The settings can be used.")
            return 0
        if not args.simulator:
            return _serve(args, settings, {})
        with _simulator() as url, _simulated_store(settings) as store:
            print(f"The simulated backend is ready at {url}.", file=sys.stderr)
            overrides = {"backend": [backend_url(url)], "store": store}
            if settings.ui == "auto":
                overrides["ui"] = "open"
            return _serve(args, settings.model_copy(update=overrides), overrides)
    except SettingsError as error:
        written = origins(_flags(args), args.config, os.environ)
        print(f"responses-gateway: {_as_written(error, written)}", file=sys.stderr)
        return 2
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _try(settings: Settings) -> None:
    """Try to start with these settings, and print the warnings of that. Raises `SettingsError`."""
    from responses_gateway.server.features.standard import failing_programs
    from responses_gateway.server.process.serve import check
    from responses_gateway.telemetry import logs

    with logs.collected_warnings() as warnings:
        check(settings)
        if problems := asyncio.run(failing_programs(settings)):
            raise SettingsError("\n".join(problems))
    for warning in warnings:
        print(f"responses-gateway: warning: {warning}", file=sys.stderr)


def _end(_number: int, _frame: FrameType | None) -> None:
    """End a process that does not serve yet; from then on it handles signals itself. An exception could be swallowed by a
    module that is being imported, and the gateway would serve on."""
    os._exit(0)


def _flags(args: argparse.Namespace) -> dict[str, Any]:
    return {name: getattr(args, name) for name in Settings.model_fields if getattr(args, name, None) is not None}


def _settings(args: argparse.Namespace, overrides: Mapping[str, Any], simulator: bool) -> Settings:
    """Return the settings of the command line, environment and file, with `overrides`. Raises `SettingsError`."""
    values = {**_flags(args), **overrides}
    try:
        settings = load(values, args.config, os.environ)
    except SettingsError as error:
        complaints = [*str(error).splitlines(), *_complaints_about_parsers(values, args.config)]
        raise SettingsError("\n".join(dict.fromkeys(complaints))) from None
    if not args.print_config:
        try:
            _check(settings, [partial(_require_backend, simulator=simulator), _refuse_own_address, *_FILE_CHECKS])
        except SettingsError as error:
            raise _as_written(error, origins(values, args.config, os.environ)) from None
    return settings


def _check(settings: Settings, checks: Iterable[Callable[[Settings], None]]) -> None:
    """Check what the values of single settings do not tell. Raises one `SettingsError` with all complaints."""
    complaints = []
    for check in checks:
        try:
            check(settings)
        except SettingsError as error:
            complaints.append(str(error))
    if complaints:
        raise SettingsError("\n".join(complaints))


def _as_written(error: SettingsError, written: Mapping[str, str]) -> SettingsError:
    """Return complaints about settings as ones about what sets them (see `origins`): a flag, a variable, a name in a file."""
    lines = []
    for line in str(error).splitlines():
        start, _, rest = line.partition(": ")
        name = start.removeprefix("--").replace("-", "_")
        origin = written.get(name)
        place = origin if origin in (None, flag(name), variable(name)) else f"{origin}: {name}"
        lines.append(f"{place}: {rest}" if place else line)
    return SettingsError("\n".join(lines))


def _complaints_about_parsers(values: Mapping[str, Any], config: Path | None) -> list[str]:
    """Return what is wrong with the parsers, where other settings are wrong, too: users want to hear all of it at once."""
    try:
        _require_parsers(load(values, config, os.environ, only={*PARSER_SETTINGS, "models"}))
    except SettingsError as error:
        return str(error).splitlines()
    return []


def _refuse_own_address(settings: Settings) -> None:
    """Refuse a backend that is the gateway itself, which would pass each request on to itself until it times out."""
    own = _LOOPBACK if settings.host in {*_LOOPBACK, *_ANY} else {settings.host}
    for url in (*settings.backend, *(details.url for details in settings.backends.values())):
        address = urlsplit(url)
        if settings.port and address.port == settings.port and (address.hostname or "") in own:
            raise SettingsError(
                f"the backend {address.netloc} is the address of this gateway itself: give the URL of your Chat Completions "
                f"server, or let the gateway listen on another port ({flag('port')})"
            )


def _serve(args: argparse.Namespace, settings: Settings, overrides: Mapping[str, Any]) -> int:
    """Serve in this process, or with several workers, which get the overrides too."""
    # Without a store there is no place where all, or a successor, could find a generated key.
    generated = {"seal_key": secrets.token_hex(32)} if settings.store == "none" and settings.seal_key is None else {}

    def prepare() -> tuple[dict[str, Any], Settings]:
        today = _settings(args, overrides, simulator=False)  # settings that are wrong by now stop a rolling restart
        return {**generated, **overrides}, today

    if settings.workers == 1:
        from responses_gateway.server.process.serve import serve

        own = {name: SecretStr(value) for name, value in generated.items()}
        return serve(settings.model_copy(update=own), _reload(args, {**generated, **overrides}), prepare=prepare)
    from responses_gateway.server.process.supervisor import supervise

    return supervise(settings, prepare, _reload(args, overrides))


def _work(args: argparse.Namespace) -> int:
    """Serve as one of several workers."""
    from responses_gateway.server.process.serve import serve
    from responses_gateway.server.process.worker_link import WorkerLink

    link = WorkerLink.of_environment(os.environ)
    overrides = link.config.settings
    return serve(_settings(args, overrides, simulator=False), _reload(args, overrides), link)


def _require_backend(settings: Settings, simulator: bool) -> None:
    has_backend = bool(settings.backend or settings.backends or settings.pools)
    if simulator and has_backend:
        raise SettingsError("--simulator starts a simulated backend: leave out --backend, or --simulator")
    if not simulator and not has_backend:
        raise SettingsError(_NO_BACKEND)


def _found_settings(args: argparse.Namespace) -> Settings:
    """Return the settings; where nothing but the backend is missing, with one of this machine that the user wants. Raises
    `SettingsError`."""
    try:
        return _settings(args, {}, args.simulator)
    except SettingsError as error:
        if str(error) != _NO_BACKEND or args.check:
            raise
    args.backend = [_found_backend()]
    return _settings(args, {}, args.simulator)


def _found_backend() -> str:
    """Return the URL of a server on this machine that the user wants to have served. Raises `SettingsError`."""
    # Not at the top, because a gateway that has a backend needs no HTTP client for it.
    from responses_gateway.commands.local_servers import choose_server, find_servers, suggested

    servers = find_servers()
    url = choose_server(servers)
    if url is None:
        raise SettingsError(f"{_NO_BACKEND}{suggested(servers)}")
    return url


def _reload(args: argparse.Namespace, overrides: Mapping[str, Any]) -> Callable[[], Settings] | None:
    """Return what reads the settings again; None without a file."""
    if args.config is None and not os.environ.get(CONFIG_VARIABLE):
        return None
    return lambda: _settings(args, overrides, simulator=False)


def _require_a_store_for_all(settings: Settings) -> None:
    if settings.workers > 1 and settings.store == "memory":
        raise SettingsError(f"{flag('store')} memory works with one worker only: give a file or a database, or `none`")


def _require_folder(settings: Settings) -> None:
    try:
        if settings.record is not None:
            settings.record.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise SettingsError(f"{flag('record')}: {settings.record}: {error.strerror}") from None


def _require_parsers(settings: Settings) -> None:
    from responses_gateway.request import Policy
    from responses_gateway.server.generation.parser_choice.choice import ParserChoice

    try:
        ParserChoice(settings, Policy())
    except ValueError as error:
        raise SettingsError(str(error)) from None


def _require_certificate(settings: Settings) -> None:
    if settings.tls_cert is None and settings.tls_key is None:
        return
    from responses_gateway.server.process.sockets import tls_context

    tls_context(settings)


def _require_tokenizer(settings: Settings) -> None:
    if not settings.tokenizer:
        return
    from responses_gateway.backend.tokenizer.conversion import TokenizerError
    from responses_gateway.backend.tokenizer.tokenizers import locate

    try:
        locate(settings.tokenizer, os.environ)
    except TokenizerError as error:
        raise SettingsError(str(error)) from None


def _require_model_table(settings: Settings) -> None:
    if settings.model_table is None:
        return
    from responses_gateway.server.resources.codex_catalog import load_model_table

    load_model_table(settings.model_table)


# What examines the files that the settings name, and what depends on them.
_FILE_CHECKS = (
    _require_folder, _require_parsers, _require_model_table, _require_a_store_for_all, _require_certificate, _require_tokenizer,
)  # fmt: skip


@contextmanager
def _simulated_store(settings: Settings) -> Iterator[str]:
    """Give the store of simulated answers: the one that the settings name, never the user's own, which is `auto`."""
    if settings.store != "auto":
        yield settings.store
    elif settings.workers == 1:
        yield "memory"
    else:
        with TemporaryDirectory(prefix="responses-gateway-") as folder:
            yield str(Path(folder) / "simulated.sqlite3")


@contextmanager
def _simulator() -> Iterator[str]:
    """Give the URL of a simulated backend. It has a thread of its own, so that it still answers while the gateway stops."""
    from responses_gateway.simulator import SimulatorOptions, create_app, serving

    loop = asyncio.new_event_loop()
    thread = Thread(target=loop.run_forever, name="simulator", daemon=True)
    thread.start()
    stack = AsyncExitStack()
    application = create_app(SimulatorOptions(tokens_per_second=_SIMULATED_TOKENS_PER_SECOND))
    try:
        yield asyncio.run_coroutine_threadsafe(stack.enter_async_context(serving(application)), loop).result()
    finally:
        asyncio.run_coroutine_threadsafe(stack.aclose(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
