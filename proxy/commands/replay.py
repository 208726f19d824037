"""`responses-gateway replay`: run recorded exchanges through this version, and show the differences."""

from __future__ import annotations

import argparse
import base64
import difflib
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console
from rich.text import Text

from proxy.commands.check import Unusable, printable
from proxy.conformance.checker import frames
from proxy.request import ChatRequest, translate
from proxy.request.tools.hosted_tools import NO_HOSTED_TOOLS, HostedTools
from proxy.server.generation.codex_sessions import REVIEW_MODEL
from proxy.server.generation.live_settings import InForce, translation_policy
from proxy.server.generation.parser_choice import AnswerStart, ParserChoice
from proxy.server.generation.prepare import client_of, stream_options
from proxy.server.recording.recorder import FORMAT, PATTERN, error_fields
from proxy.server.resources.websocket import parse_message
from proxy.settings import Settings
from proxy.stream.items.hosted import CallOutcome
from proxy.stream.markup import Markup
from proxy.stream.options import StreamOptions
from proxy.stream.thought_watch import ThoughtWatch
from proxy.stream.translator import ApprovedCall, ToolListing, Translator
from proxy.wire.errors import ApiError, gateway_key_refused, in_client_terms, read_error
from proxy.wire.requests import ResponsesRequest, parse_request

# Exit statuses.
IDENTICAL = 0
DIFFERENT = 1
UNUSABLE = 2

# Lines of one difference that the terminal shows; `--json` has them all.
_SHOWN_LINES = 60
# Characters of one line, around the place where it differs.
_SHOWN_WIDTH = 160

_CUT = "the record is cut: the exchange was longer than a record may be"
_TERMINALS = ("response.completed", "response.incomplete", "response.failed")


# Returns what reads an answer that begins like this.
MarkupOf = Callable[[AnswerStart], Markup | ThoughtWatch | None]


@dataclass(frozen=True)
class Difference:
    """`place`: `request`, `error`, or `events`; the lines are what a diff compares."""

    place: str
    recorded: list[str]
    replayed: list[str]


@dataclass
class Replay:
    """The result for one record. `ending` is the terminal event's type, `HTTP 400`, or `no terminal event`; `notes` say what
    could not be compared."""

    path: str
    events: int = 0
    ending: str = "no terminal event"
    differences: list[Difference] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass
class Record:
    """A record as its file has it; `chat` and what follows are absent where the exchange ended before."""

    head: dict[str, Any]
    request: bytes
    end: dict[str, Any]
    chat: dict[str, Any] | None = None
    backend: dict[str, Any] | None = None
    footing: dict[str, Any] = field(default_factory=dict)
    calls: list[dict[str, Any]] = field(default_factory=list)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the records, and how to report."""
    parser.epilog = (
        "Exit status: 0 if all are identical, 1 if some differ, 2 if there was nothing to replay or some could not be read."
    )
    parser.add_argument(
        "paths", nargs="+", type=Path, metavar="FILE|FOLDER", help="records, as `serve --record FOLDER` keeps them"
    )
    parser.add_argument("--json", action="store_true", help="report as JSON")


def run(args: argparse.Namespace) -> int:
    """Replay and report. Returns 0 if all are identical, 1 if some differ, 2 if some cannot be read."""
    replays: list[Replay] = []
    failed = False
    for path in _files(args.paths):
        try:
            replays.append(replay(path))
        except Unusable as error:
            print(f"responses-gateway replay: {path}: {error}", file=sys.stderr)
            failed = True
    if not replays and not failed:
        print("responses-gateway replay: no records there", file=sys.stderr)
    if args.json:
        print(json.dumps([_as_json(done) for done in replays], indent=2))
    else:
        console = Console(highlight=False, soft_wrap=True)
        for done in replays:
            _print(done, console)
    if any(done.differences for done in replays):
        return DIFFERENT
    return UNUSABLE if failed or not replays else IDENTICAL


def _files(paths: list[Path]) -> Iterator[Path]:
    for path in paths:
        yield from sorted(path.glob(PATTERN)) if path.is_dir() else [path]


# ---- reading a record -------------------------------------------------------------------------------------------------


def read_record(path: Path) -> Record:
    """Read a record from its file. Raises `Unusable`."""
    try:
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    except OSError as error:
        raise Unusable(str(error.strerror)) from None
    except ValueError:
        raise Unusable("no record: not a file of JSON lines") from None
    if not lines or not isinstance(lines[0], dict) or "record" not in lines[0]:
        raise Unusable("no record of an exchange")
    if lines[0]["record"] != FORMAT:
        raise Unusable(f"a record of format {lines[0]['record']}; this version reads format {FORMAT}")
    named = {key: line for line in lines for key in ("request", "footing", "chat", "backend", "end") if key in line}
    if "request" not in named:
        raise Unusable("the request was too large to be recorded")
    body = named["request"]["request"]
    is_text = isinstance(body, dict) and set(body) == {"not_json"}
    return Record(
        head=lines[0],
        request=_bytes(body["not_json"]) if is_text else json.dumps(body).encode(),
        chat=named.get("chat"),
        backend=named.get("backend", {}).get("backend"),
        footing=named.get("footing", {}).get("footing", {}),
        calls=[line for line in lines if "call" in line],
        end=named.get("end", {}).get("end", {}),
    )


def _bytes(value: str | dict[str, str]) -> bytes:
    return value.encode() if isinstance(value, str) else base64.b64decode(value["base64"])


# ---- replaying it -----------------------------------------------------------------------------------------------------


def replay(path: Path) -> Replay:
    """Run one record through this version. Raises `Unusable`."""
    record = read_record(path)
    done = Replay(str(path))
    if record.chat is None and record.end.get("truncated"):
        done.notes.append(_CUT)
        return done
    in_force = _in_force(record, _settings(record, done))
    chat = record.chat or {"response_id": "resp_0"}
    headers = record.head["headers"]
    try:
        websocket = record.head.get("websocket")
        request = parse_message(record.request) if websocket else parse_request(record.request)
        if record.end.get("beyond"):
            done.ending = f"HTTP {record.end['error']['status']}"
            done.notes.append(f"not compared: refused for what is not in the record: {record.end['error']['message']}")
            return done
        if request.model == REVIEW_MODEL and record.chat is not None:
            request = request.model_copy(update={"model": record.chat["chat"]["model"]})
        request, chat_request = _translated(record, in_force, request)
        client = client_of(in_force.settings, headers)
        start = _start(in_force, chat, chat_request)
        options = stream_options(in_force, request, chat_request, client, chat["response_id"], start)
        if websocket:
            options = replace(options, stream_id=request.stream_id)
    except ApiError as error:
        _compare(done, "error", [_pretty(record.end.get("error"))], [_pretty(error_fields(error))])
        done.ending = f"HTTP {error.status}"
        return done
    except Exception as defect:  # this is what records are for: this version fails
        _compare(done, "error", [_pretty(record.end.get("error"))], [f"{type(defect).__name__}: {defect}"])
        return done
    if record.chat is None:
        _compare(done, "error", [_pretty(record.end.get("error"))], ["null (the request is accepted)"])
        return done
    if "return_token_ids" in record.chat["chat"]:  # asked for where the gateway found out that the backend is a vLLM
        chat_request.body.setdefault("return_token_ids", True)
    _compare(done, "request", _lines(record.chat["chat"]), _lines(json.loads(json.dumps(chat_request.body))))
    if record.backend is not None:
        answer = record.backend
        if answer.get("gateway_key"):
            refusal = gateway_key_refused(answer["status"])
        else:
            refusal = in_client_terms(read_error(answer["status"], _bytes(answer["body"]), answer["retry_after"]))
        if record.end.get("error") is not None:
            _compare(done, "error", [_pretty(record.end["error"])], [_pretty(error_fields(refusal))])
    markup_of = partial(in_force.parsers.markup, chat_request.body)
    _replay_calls(record, done, _translator(options, chat_request, record.chat), markup_of)
    return done


def _translated(record: Record, in_force: InForce, request: ResponsesRequest) -> tuple[ResponsesRequest, ChatRequest]:
    """Return the request as the translation got it, and the chat request that this version makes of it. Raises `ApiError`."""
    footing = record.footing
    policy = in_force.parsers.policy(request.model)
    if footing:
        policy = replace(policy, stores_responses=footing["stores_responses"])
        request = request.model_copy(update={name: footing[name] for name in ("input", "store") if name in footing})
    references = footing.get("references", {})
    replaced = frozenset(footing.get("replaced", ()))
    hosted = msgspec.convert(footing["hosted"], HostedTools) if "hosted" in footing else NO_HOSTED_TOOLS
    return request, translate(request, policy, references.get, footing.get("history", ()), replaced, hosted)


def _start(in_force: InForce, chat: Mapping[str, Any], chat_request: ChatRequest) -> AnswerStart:
    """Return how the answer was read. Records of earlier versions tell only whether the template had opened the reasoning."""
    if chat.get("start") is not None:
        return msgspec.convert(chat["start"], AnswerStart)
    start = in_force.parsers.start_without_template(chat_request.body)
    opened = chat.get("thinking_open")
    return start if opened is None else msgspec.structs.replace(start, opened=opened, decided_by="prompt")


def _in_force(record: Record, settings: Settings) -> InForce:
    """Return the settings with the choice of parsers, by the backend's name of the model where the record has it."""
    served_as = record.footing.get("served_as") if record.footing else None
    own_name = (lambda _: str(served_as)) if served_as is not None else str
    return InForce(settings, ParserChoice(settings, translation_policy(settings), own_name=own_name))


def _settings(record: Record, done: Replay) -> Settings:
    recorded = record.head["settings"]
    known = {name: value for name, value in recorded.items() if name in Settings.model_fields}
    if len(known) < len(recorded):
        done.notes.append(f"settings that this version does not have: {', '.join(sorted(recorded.keys() - known.keys()))}")
    try:
        return Settings(**known)
    except ValueError as error:  # pydantic's
        raise Unusable(f"its settings do not fit this version: {error}") from None


@dataclass
class _Clock:
    """Returns the time that the recorded translator read."""

    now: float

    def __call__(self) -> float:
        return self.now


def _translator(options: StreamOptions, chat_request: ChatRequest, chat: dict[str, Any]) -> tuple[Translator, _Clock]:
    clock = _Clock(chat["created"])
    sealed = iter(chat.get("sealed", ()))

    def seal(_text: str) -> str:
        return next(sealed, "(sealed by no recorded call)")

    if chat_request.encrypted_reasoning and "sealed" in chat:
        options = replace(options, seal=seal)
    if chat_request.compacting:
        options = replace(options, compaction=seal)
    return Translator(options, clock), clock


def _replay_calls(record: Record, done: Replay, playing: tuple[Translator, _Clock], markup_of: MarkupOf) -> None:
    translator, clock = playing
    assert record.chat is not None
    recorded = bytearray()
    replayed = bytearray()
    for call in record.calls:
        clock.now = record.chat["created"] + call["at"]
        recorded += _bytes(call["sent"])
        ended = translator.ended
        replayed += _perform(translator, call, markup_of)
        if translator.ended and not ended:
            replayed += translator.terminal()
    usage = not record.head.get("tokenizer")
    if not usage:
        done.notes.append("usage is not compared: the gateway counted tokens with a tokenizer, which is not in the record")
    _compare(done, "events", _event_lines(bytes(recorded), usage), _event_lines(bytes(replayed), usage))
    if usage and recorded != replayed and not any(found.place == "events" for found in done.differences):
        done.differences.append(Difference("bytes", [repr(bytes(recorded))], [repr(bytes(replayed))]))
    if translator.defect is not None:
        done.notes.append(f"the translator failed: {type(translator.defect).__name__}: {translator.defect}")
    if record.end.get("truncated"):
        done.notes.append(_CUT)
    events = [frame.data for frame in frames(bytes(replayed)) if frame.data != "[DONE]"]
    done.events = len(events)
    last = json.loads(events[-1])["type"] if events else None
    if last in _TERMINALS:
        done.ending = last
    if record.backend is not None and record.end.get("error") is not None:
        done.ending = f"HTTP {record.end['error']['status']}"


def _perform(translator: Translator, call: dict[str, Any], markup_of: MarkupOf) -> bytes:
    name = call["call"]
    data = call.get("data", "")
    if name == "feed":
        return translator.feed(_bytes(data))
    if name == "feed_completion":
        return translator.feed_completion(_bytes(data))
    if name == "fail":
        fields = dict(data)
        return translator.fail(ApiError(fields.pop("status"), fields.pop("message"), **fields))
    if name == "next_turn":
        turn = json.loads(_bytes(data))
        start = msgspec.convert(turn["start"], AnswerStart)
        return translator.next_turn(markup_of(start), may_call=turn["may_call"])
    if name == "list_tools":
        return translator.list_tools(msgspec.json.decode(_bytes(data), type=ToolListing))
    if name == "approved_call":
        return translator.approved_call(msgspec.json.decode(_bytes(data), type=ApprovedCall))
    if name == "finish_call":
        return translator.finish_call(msgspec.json.decode(_bytes(data), type=CallOutcome))
    if name == "insert":
        item = _bytes(data).decode()
        return translator.insert(json.loads(item)["type"], item)
    if name == "judge":
        return translator.judge(_bytes(data).decode() if "data" in call else None)
    if name in ("queue", "start", "finish", "refuse", "keep_alive"):
        played: bytes = getattr(translator, name)()
        return played
    raise Unusable(f"a call that this version does not know: {name}")


# ---- comparing --------------------------------------------------------------------------------------------------------


def _compare(done: Replay, place: str, recorded: list[str], replayed: list[str]) -> None:
    if recorded != replayed:
        done.differences.append(Difference(place, recorded, replayed))


def _event_lines(data: bytes, usage: bool) -> list[str]:
    """Return a line for each event: its data, which has its type. The `event:` name is put in front where it differs."""
    lines = []
    for frame in frames(data):
        agrees = frame.name is None or f'"type":"{frame.name}"' in frame.data
        text = frame.data if usage or '"usage"' not in frame.data else _without_usage(frame.data)
        lines.append(text if agrees else f"{frame.name}: {text}")
    return lines


def _without_usage(data: str) -> str:
    event = json.loads(data)
    if isinstance(event.get("response"), dict):
        event["response"].pop("usage", None)
    return json.dumps(event, ensure_ascii=False, separators=(",", ":"))


def _lines(value: Any) -> list[str]:
    return json.dumps(value, indent=1, ensure_ascii=False).splitlines()


def _pretty(error: Any) -> str:
    return json.dumps(error, ensure_ascii=False)


def _as_json(done: Replay) -> dict[str, Any]:
    return {
        "path": done.path,
        "identical": not done.differences,
        "events": done.events,
        "ending": done.ending,
        "notes": done.notes,
        "differences": [
            {"place": found.place, "diff": [f"{sign}{line}" for sign, line in _diff(found)]} for found in done.differences
        ],
    }


def _diff(found: Difference) -> Iterator[tuple[str, str]]:
    """Yield the lines of a diff, each with its sign: `-` recorded, `+` replayed, blank for both, `@` for a jump."""
    for line in list(difflib.unified_diff(found.recorded, found.replayed, lineterm="", n=1))[2:]:
        yield line[0], line[1:]


def _print(done: Replay, console: Console) -> None:
    name = Path(done.path).name
    if done.differences:
        places = ", ".join(found.place for found in done.differences)
        console.print(Text(f"{name}: different ({places})", style="bold red"))
    else:
        console.print(Text(f"{name}: identical, {done.events} events, {done.ending}", style="green"))
    for note in done.notes:
        console.print(Text(f"  {note}", style="yellow"))
    for found in done.differences:
        console.print(Text(f"  {found.place}:  - recorded  + replayed", style="dim"))
        lines = list(_diff(found))
        for sign, line in _abridged(lines[:_SHOWN_LINES]):
            if sign == "@":
                console.print(Text("  …", style="dim"))
                continue
            console.print(Text(f"  {sign} {printable(line)}", style={"-": "red", "+": "green"}.get(sign, "")))
        if len(lines) > _SHOWN_LINES:
            console.print(Text(f"  … and {len(lines) - _SHOWN_LINES} lines more (--json has them)", style="dim"))


def _abridged(lines: list[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Cut long lines: a removed and an added one that belong together where they differ, others at their end."""
    starts = _parting_places(lines)
    for number, (sign, line) in enumerate(lines):
        start = max(0, starts.get(number, 0) - _SHOWN_WIDTH // 2)
        shown = line[start : start + _SHOWN_WIDTH]
        yield sign, ("…" if start else "") + shown + ("…" if start + _SHOWN_WIDTH < len(line) else "")


def _parting_places(lines: list[tuple[str, str]]) -> dict[int, int]:
    """Return for the lines of a changed block at which character the nth recorded and the nth replayed one differ."""
    places: dict[int, int] = {}
    removed: list[int] = []
    for number, (sign, line) in enumerate(lines):
        if sign == "-":
            removed.append(number)
        elif sign == "+" and removed:
            other = removed.pop(0)
            pairs = enumerate(zip(lines[other][1], line, strict=False))
            places[number] = places[other] = next((index for index, (a, b) in pairs if a != b), 0)
        else:
            removed.clear()
    return places
