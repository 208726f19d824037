"""`responses-proxy serve`: the gateway. Its flags are the fields of `Settings`."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from itertools import groupby
from pathlib import Path
from threading import Thread

from proxy.reference import Knob, reference
from proxy.settings import CONFIG_VARIABLE, Settings, SettingsError, backend_url, describe, flag, variable
from proxy.sources import load

_SIMULATED_TOKENS_PER_SECOND = 60  # about what one stream of a busy server gets


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """One flag for each setting; a switch also has its `--no-…`."""
    parser.usage = "responses-proxy serve --backend URL [OPTION …]"
    parser.epilog = (
        f"Each setting is also an environment variable ({flag('port')} is {variable('port')}) and a key of the YAML "
        "file. Flags go before the environment, the environment goes before the file."
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help=f"YAML file of settings (or {CONFIG_VARIABLE})")
    parser.add_argument("--print-config", action="store_true", help="print the settings in force, and end")
    parser.add_argument("--simulator", action="store_true", help="start a simulated backend as well, and serve that")
    flagged = (knob for knob in reference() if knob.kind != "MAPPING")  # a mapping is for files, not for command lines
    for title, knobs in groupby(flagged, key=lambda knob: knob.section):
        group = parser.add_argument_group(title)
        for knob in knobs:
            _add_flag(group, knob)


def _add_flag(group: argparse._ArgumentGroup, knob: Knob) -> None:
    text = f"{knob.description} (default: {knob.default})".replace("`", "").replace("%", "%%")
    if knob.kind == "true|false":
        group.add_argument(flag(knob.name), action=argparse.BooleanOptionalAction, default=None, help=text)
    else:
        action = "append" if knob.repeated else "store"
        group.add_argument(flag(knob.name), action=action, metavar=knob.kind, help=text)


def run(args: argparse.Namespace) -> int:
    """Serve until SIGINT or SIGTERM; the exit status is the server's, or 2 for settings that are wrong."""
    flags = {name: getattr(args, name) for name in Settings.model_fields if getattr(args, name, None) is not None}
    try:
        settings = load(flags, args.config, os.environ)
        if not args.print_config:
            _require_one_backend(settings, args.simulator)
            _require_folder(settings.record)
            _require_parsers(settings)
            _require_model_table(settings.model_table)
    except SettingsError as error:
        print(f"responses-proxy: {error}", file=sys.stderr)
        return 2
    if args.print_config:
        print(describe(settings), end="")
        return 0
    from proxy.server import serve

    if not args.simulator:
        return serve(_adapted(settings))
    with _simulator() as url:
        print(f"simulated backend at {url}", file=sys.stderr)
        return serve(_adapted(settings.model_copy(update={"backend": [backend_url(url)]})))


def _adapted(settings: Settings) -> Settings:
    """The settings with what fits the backend, where nothing was said; as they are if nobody answers there."""
    if not settings.adapt:
        return settings
    from proxy.backend.probing import probe
    from proxy.server.adaptation import fitting_settings
    from proxy.wire.errors import ApiError

    key = settings.backend_api_key
    try:
        profile = asyncio.run(probe(settings.backend[0], api_key=key.get_secret_value() if key else None))
    except ApiError as error:
        print(f"the backend cannot be examined: {error.message}", file=sys.stderr)
        return settings
    fitting = {name: value for name, value in fitting_settings(profile).items() if name not in settings.model_fields_set}
    for name, value in fitting.items():
        print(f"fits the backend: {name}: {value}", file=sys.stderr)
    return settings.model_copy(update=fitting)


def _require_one_backend(settings: Settings, simulator: bool) -> None:
    if simulator and settings.backend:
        raise SettingsError("--simulator brings a backend of its own: leave --backend out")
    if not simulator and not settings.backend:
        raise SettingsError("no backend: give --backend URL, or try --simulator")
    if len(settings.backend) > 1:
        raise SettingsError("several backends: the gateway serves one, for now")


def _require_folder(record: Path | None) -> None:
    try:
        if record is not None:
            record.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise SettingsError(f"{flag('record')}: {error.strerror}") from None


def _require_parsers(settings: Settings) -> None:
    from proxy.request import Policy
    from proxy.server.parsers import Parsers

    try:
        Parsers(settings, Policy())
    except ValueError as error:
        raise SettingsError(str(error)) from None


def _require_model_table(path: Path | None) -> None:
    from proxy.server.model_table import load_model_table

    load_model_table(path)


@contextmanager
def _simulator() -> Iterator[str]:
    """A simulated backend in a thread of its own, so that it outlives the draining of the gateway; gives its URL."""
    from proxy.simulator import SimulatorOptions, create_app, serving

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
