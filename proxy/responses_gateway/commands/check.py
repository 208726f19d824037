"""`responses-gateway check`: check the stream of any server of the Responses or the Messages API, or a saved one, against the
rules of the API."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import httpx
from rich.console import Console
from rich.table import Table
from rich.text import Text

from responses_gateway.commands import Unusable, fits_header, printable
from responses_gateway.commands.argument_types import positive
from responses_gateway.conformance.checker import check_stream, frames
from responses_gateway.conformance.levels import LEVELS, Level, Violation, counts_at
from responses_gateway.conformance.messages import check_message_stream

# Exit statuses.
VALID = 0
INVALID = 1
UNUSABLE = 2

_SHOWN_PER_RULE = 5  # violations of one rule that the table shows; `--json` has them all
# What a level says of its rules, above their violations.
_HEADINGS: dict[Level, str] = {
    "breaks": "breaks clients",
    "spec": "against the specification",
    "stricter": "stricter than OpenAI",
}
_MOST_TOKENS = 2048  # the answer to a small request is far shorter

_WEATHER_TOOL: dict[str, Any] = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather in a city.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    },
    "strict": True,
}


class CheckedProtocol(NamedTuple):
    """How a protocol is asked for a stream: its name, the path behind `/v1`, the environment variable with the key, the request
    (of a model, a question, and whether it offers a tool), further headers, and what checks a body."""

    name: str
    path: str
    key: str
    request: Callable[[str, str, bool], dict[str, Any]]
    headers: dict[str, str]
    check: Callable[[bytes], list[Violation]]


class CheckedStream(NamedTuple):
    """A stream with the rules that it violates. `terminal` is the type of its last event, None if there is none. `level`: which
    violations count, those of this level and of worse ones."""

    target: str
    events: int
    terminal: str | None
    violations: list[Violation]
    level: Level

    @property
    def errors(self) -> list[Violation]:
        """The violations that count."""
        return [violation for violation in self.violations if counts_at(violation.level, self.level)]

    def of_level(self, level: Level) -> list[Violation]:
        """Return the violations of one level."""
        return [violation for violation in self.violations if violation.level == level]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the target, the request to send, and how to report."""
    parser.epilog = (
        "Exit status: 0 for a valid stream (at the chosen level), 1 for an invalid one, 2 if there was no stream to check."
    )
    parser.add_argument("target", metavar="URL|FILE", help="base URL of a server, or a saved stream (- is standard input)")
    request = parser.add_argument_group("request (if a URL is checked)")
    request.add_argument("--model", help="model to ask (default: the first that the server lists)")
    request.add_argument("--api-key", metavar="KEY", help="key (default: the variable OPENAI_API_KEY or ANTHROPIC_API_KEY)")
    request.add_argument("--input", metavar="TEXT", help="what to ask (default: a suitable question)")
    request.add_argument("--tools", action="store_true", help="offer a function tool, and ask the model to use it")
    request.add_argument("--timeout", type=positive, default=120, metavar="SECONDS", help="longest silence (default: 120)")
    parser.add_argument(
        "--protocol",
        choices=PROTOCOLS,
        default="responses",
        help="the API of the stream: OpenAI's Responses (the default), or Anthropic's Messages",
    )
    parser.add_argument(
        "--level",
        choices=LEVELS,
        default="spec",
        help="rules that a valid stream must keep: `breaks`, those that today's clients depend on; `spec` (the default), also "
        "those of the Open Responses specification that OpenAI keeps; `stricter`, all of them, as this gateway does. "
        "Violations of other rules are listed, but not counted",
    )
    parser.add_argument("--client", choices=["codex"], help="also check that no call that was cut short is reported as done")
    parser.add_argument("--json", action="store_true", help="report as JSON")


def run(args: argparse.Namespace) -> int:
    """Check one stream and report. Returns 0 for a valid stream, 1 for an invalid one, 2 if there is none."""
    try:
        protocol = PROTOCOLS[args.protocol]
        if args.client == "codex" and protocol.name != "Responses":
            raise Unusable("--client codex needs --protocol responses: Codex reads no other streams")
        data = _fetch(args, protocol) if args.target.lower().startswith(("http://", "https://")) else _read(args.target)
        checked = _check(args.target, data, protocol, args.level, codex=args.client == "codex")
    except Unusable as error:
        print(f"responses-gateway check: {printable(str(error))}", file=sys.stderr)
        return UNUSABLE
    if args.json:
        print(json.dumps(_as_json(checked), indent=2))
    else:
        _print(checked, Console(highlight=False))
    return INVALID if checked.errors else VALID


def _check(target: str, data: bytes, protocol: CheckedProtocol, level: Level, *, codex: bool) -> CheckedStream:
    texts = [frame.data for frame in frames(data) if frame.data != "[DONE]"]
    if not texts:
        raise Unusable(f"{target} contains no server-sent events")
    if '"chat.completion.chunk"' in texts[0]:
        raise Unusable(f"{target} is a stream of Chat Completions, not of the {protocol.name} API")
    violations = check_stream(data, unfinished_allowed=True) if codex else protocol.check(data)
    return CheckedStream(target, len(texts), _event_type(texts[-1]), violations, level)


def _event_type(text: str) -> str | None:
    try:
        event = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return str(event["type"]) if isinstance(event, dict) and "type" in event else None


# ---- the source of the stream --------------------------------------------------------------------------------------


def _read(target: str) -> bytes:
    try:
        return sys.stdin.buffer.read() if target == "-" else Path(target).read_bytes()
    except OSError as error:
        raise Unusable(f"cannot read {target}: {error.strerror}") from None


def _fetch(args: argparse.Namespace, protocol: CheckedProtocol) -> bytes:
    # Not at the top, because a saved stream needs no settings.
    from responses_gateway.commands.gateway_offer import client_of

    base = _base_url(args.target, protocol.path)
    headers = {"accept": "text/event-stream", **protocol.headers}
    api_key = (args.api_key or os.environ.get(protocol.key, "")).strip()
    if api_key:
        headers["authorization"] = f"Bearer {api_key}"
    if args.client == "codex":
        headers["originator"] = "codex_exec"  # by this header a server knows Codex
    if not all(map(fits_header, headers.values())):
        raise Unusable("the API key contains characters that a header may not have")
    try:
        with client_of(base, headers=headers, timeout=args.timeout) as client:
            model = args.model or _first_model(client, base)
            question = args.input or (
                "What is the weather in Paris? Use the tool." if args.tools else "Say hello in five words."
            )
            return _stream(client, base + protocol.path, protocol.request(model, question, args.tools))
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        advice = "SSL_CERT_FILE names a file of your own authority" if "certificate" in str(error) else "is it running?"
        raise Unusable(f"cannot reach {base}: {str(error) or type(error).__name__}: {advice}") from None


def _base_url(url: str, path: str) -> str:
    """Return the URL with its `/v1`, which may be missing, and without the path of the protocol."""
    base = url.rstrip("/")
    if base.endswith(path):
        return base.removesuffix(path)
    return base if base.endswith("/v1") else f"{base}/v1"


def _responses_request(model: str, question: str, tools: bool) -> dict[str, Any]:
    request: dict[str, Any] = {"model": model, "input": question, "stream": True, "max_output_tokens": _MOST_TOKENS}
    return {**request, "tools": [_WEATHER_TOOL]} if tools else request


def _messages_request(model: str, question: str, tools: bool) -> dict[str, Any]:
    messages = [{"role": "user", "content": question}]
    request: dict[str, Any] = {"model": model, "messages": messages, "stream": True, "max_tokens": _MOST_TOKENS}
    tool = {name: _WEATHER_TOOL[name] for name in ("name", "description")}
    return {**request, "tools": [{**tool, "input_schema": _WEATHER_TOOL["parameters"]}]} if tools else request


_VERSION = {"anthropic-version": "2023-06-01"}
PROTOCOLS = {
    "responses": CheckedProtocol("Responses", "/responses", "OPENAI_API_KEY", _responses_request, {}, check_stream),
    "messages": CheckedProtocol(
        "Messages", "/messages", "ANTHROPIC_API_KEY", _messages_request, _VERSION, check_message_stream
    ),
}


def _first_model(client: httpx.Client, base: str) -> str:
    answer = client.get(f"{base}/models", headers={"accept": "application/json"})
    if answer.is_error:
        advice = "give the server's key with --api-key" if answer.status_code == 401 else "name a model with --model"
        raise Unusable(f"{base}/models answered {_http_error(answer).rstrip('.')}; {advice}")
    try:
        return str(answer.json()["data"][0]["id"])
    except (ValueError, RecursionError, LookupError, TypeError):
        raise Unusable(f"{base}/models lists no model; name one with --model") from None


def _stream(client: httpx.Client, url: str, request: dict[str, Any]) -> bytes:
    with client.stream("POST", url, json=request) as answer:
        if not answer.is_success:
            answer.read()
            raise Unusable(f"{url} answered {_http_error(answer)}")
        kind = answer.headers.get("content-type", "")
        if not kind.startswith("text/event-stream"):
            raise Unusable(f"{url} answered with {kind or 'no content type'}, not with a stream")
        return _received(answer.iter_bytes())


def _received(pieces: Iterable[bytes]) -> bytes:
    data = bytearray()
    try:
        for piece in pieces:
            data += piece
    except httpx.HTTPError as error:
        # What came before is checked: that its end is missing is the result.
        print(f"responses-gateway check: the stream broke off: {str(error) or type(error).__name__}", file=sys.stderr)
        if not data:
            raise
    return bytes(data)


def _http_error(answer: httpx.Response) -> str:
    """Return the status, with the message of an error body if there is one."""
    status = f"HTTP {answer.status_code}"
    try:
        body = answer.json()
    except (ValueError, RecursionError):
        text = " ".join(answer.text.split())  # of a page of a proxy, for example, on one line
        return f"{status}: {text[:200]}" if text else status
    error = body.get("error", body) if isinstance(body, dict) else body
    message = error.get("message", error) if isinstance(error, dict) else error
    return f"{status}: {message if isinstance(message, str) else json.dumps(message)[:200]}"


# ---- the report -------------------------------------------------------------------------------------------------------


def _as_json(checked: CheckedStream) -> dict[str, Any]:
    return {
        "target": checked.target,
        "events": checked.events,
        "terminal": checked.terminal,
        "level": checked.level,
        "valid": not checked.errors,
        "counts": {level: len(checked.of_level(level)) for level in LEVELS},
        "violations": [{**violation._asdict(), "level": violation.level} for violation in checked.violations],
    }


def _print(checked: CheckedStream, console: Console) -> None:
    for level in LEVELS:
        if violations := checked.of_level(level):
            counted = counts_at(level, checked.level)
            heading = _HEADINGS[level] if counted else f"{_HEADINGS[level]} (not counted)"
            console.print(Text(heading, style="bold red" if counted else "bold yellow"))
            console.print(_table(violations, "red" if counted else "yellow"))
            console.print()
    console.print(Text(_summary(checked), style="bold red" if checked.errors else "bold green"))


def _table(violations: list[Violation], style: str) -> Table:
    table = Table("event", "rule", "what was seen", box=None, pad_edge=False, header_style="dim")
    counts: dict[str, int] = {}
    for violation in violations:
        counts[violation.rule] = count = counts.get(violation.rule, 0) + 1
        if count <= _SHOWN_PER_RULE:
            table.add_row(str(violation.event), Text(violation.rule, style=style), Text(printable(violation.detail)))
    for rule, count in counts.items():
        if count > _SHOWN_PER_RULE:
            table.add_row("…", Text(rule, style=style), Text(f"and {count - _SHOWN_PER_RULE} more"))
    return table


def _summary(checked: CheckedStream) -> str:
    errors = len(checked.errors)
    others = len(checked.violations) - errors
    rules = len({violation.rule for violation in checked.errors})
    result = f"{_count(errors, 'violation')} of {_count(rules, 'rule')}" if errors else "valid"
    if others:
        result += f", {others} not counted"
    ending = f"{_count(checked.events, 'event')}, the last {printable(checked.terminal or 'unreadable')}"
    return f"{ending}: {result} at level {checked.level}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
