"""`responses-gateway simulate`: run the embedded Chat Completions server."""

from __future__ import annotations

import argparse
import asyncio
import errno
import signal
import sys
from collections.abc import Coroutine, Mapping
from dataclasses import replace
from typing import Any, get_args

from responses_gateway.commands.argument_types import count, not_negative, port
from responses_gateway.simulator import DIALECTS, SimulatorOptions, WeakModel, create_app, serving
from responses_gateway.simulator.strict_tools import StrictTools
from responses_gateway.simulator.weak import DEFAULT_RATES, parse_rates


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    parser.add_argument("--port", type=port, default=8000, help="port; 0 chooses a free one (default: %(default)s)")
    parser.add_argument("--model", action="append", metavar="NAME", help="a model to list; may be repeated")
    parser.add_argument("--strict-models", action="store_true", help="answer 404 to models that are not listed")
    parser.add_argument(
        "--dialect",
        choices=sorted(DIALECTS),
        default="vllm",
        metavar="NAME",
        help=f"server to behave like: {', '.join(DIALECTS)} (default: %(default)s)",
    )
    parser.add_argument("--tokens-per-second", type=not_negative, default=0.0, metavar="N", help="speed; 0 is no limit")
    parser.add_argument("--first-token-seconds", type=not_negative, default=0.0, metavar="S", help="simulated prefill time")
    parser.add_argument("--tokens-per-delta", type=count, metavar="N", help="tokens in each chunk")
    parser.add_argument("--max-model-len", type=count, default=131072, metavar="N", help="context (default: %(default)s)")
    parser.add_argument(
        "--strict-tools",
        choices=get_args(StrictTools),
        default="renders",
        help="what `strict` in tools does: `enforces` their schemas, `renders` them in the prompt and enforces them, or "
        "`ignores` it (default: %(default)s)",
    )
    parser.add_argument("--api-key", metavar="KEY", help="answer 401 to requests without this key")
    _add_weakness(parser)


def _add_weakness(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--weak", type=int, metavar="SEED", help="make mistakes with tools, like a weak model")
    rates = ",".join(f"{name}={rate:g}" for name, rate in DEFAULT_RATES.items())
    parser.add_argument(
        "--weak-rates",
        type=_rates,
        metavar="NAME=PERCENT,…",
        help="with --weak: how many answers have which mistake, in percent; mistakes that are not named do not occur "
        f"(default: {rates})",
    )


def _rates(text: str) -> Mapping[str, float]:
    try:
        return parse_rates(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def options_from(args: argparse.Namespace) -> SimulatorOptions:
    """Return the options that the arguments give."""
    dialect = DIALECTS[args.dialect]
    if args.tokens_per_delta:
        dialect = replace(dialect, tokens_per_delta=args.tokens_per_delta)
    return SimulatorOptions(
        models=tuple(args.model or ("simulator",)),
        dialect=dialect,
        tokens_per_second=args.tokens_per_second,
        first_token_seconds=args.first_token_seconds,
        max_model_len=args.max_model_len,
        strict_models=args.strict_models,
        api_key=args.api_key,
        strict_tools=args.strict_tools,
        weak=None if args.weak is None else WeakModel(args.weak, args.weak_rates or DEFAULT_RATES),
    )


def run(args: argparse.Namespace) -> int:
    """Serve until SIGINT or SIGTERM. Returns 0 after a clean stop, 1 if it cannot listen, 2 for arguments that do not fit."""
    if args.weak_rates is not None and args.weak is None:
        print("responses-gateway simulate: --weak-rates needs --weak SEED", file=sys.stderr)
        return 2
    try:
        _run(_serve(options_from(args), args.host, args.port))
    except OSError as error:
        way_out = ": choose another port with --port" if error.errno == errno.EADDRINUSE else ""
        problem = f"cannot listen on {args.host}:{args.port}: {error.strerror or error}{way_out}"
        print(f"responses-gateway simulate: {problem}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:  # only where the loop has no signal handlers
        return 0
    return 0


def _run(main: Coroutine[Any, Any, None]) -> None:
    try:
        import uvloop
    except ImportError:  # not available on every platform
        asyncio.run(main)
    else:
        uvloop.run(main)


async def _serve(options: SimulatorOptions, host: str, port: int) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        try:
            loop.add_signal_handler(number, stop.set)
        except NotImplementedError:  # Windows: Ctrl-C raises KeyboardInterrupt instead
            break
    async with serving(create_app(options), host, port) as url:
        print(f"simulator listening on {url}/v1 (model {', '.join(options.models)})", flush=True)
        await stop.wait()
