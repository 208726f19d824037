"""Recorded exchanges, run again through this version: what it would send to the backend and to the client, and what differs."""

from __future__ import annotations

import base64
import difflib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from proxy.conformance.checker import frames
from proxy.request import ChatRequest, translate
from proxy.request.tools.hosted_tools import NO_HOSTED_TOOLS, HostedTools
from proxy.server.generation.parser_choice.choice import AnswerStart, ParserChoice
from proxy.server.generation.preparation.codex_sessions import REVIEW_MODEL
from proxy.server.generation.preparation.live_settings import InForce, translation_policy
from proxy.server.generation.preparation.prepare import client_of, stream_options
from proxy.server.recording.recorder import FORMAT, error_fields
from proxy.settings import Settings
from proxy.stream.items.hosted import CallOutcome
from proxy.stream.markup import Markup
from proxy.stream.options import StreamOptions
from proxy.stream.thought_watch import ThoughtWatch
from proxy.stream.translator import ApprovedCall, ToolListing, Translator
from proxy.wire.errors import ApiError, gateway_key_refused, in_client_terms, read_error
from proxy.wire.hosted import KeptResult
from proxy.wire.requests import ResponsesRequest, parse_message, parse_request

_CUT = "the record is truncated: the exchange was longer than a record may be"
_NO_RECORD = "not a record: not a file of JSON lines"
_TERMINALS = ("response.completed", "response.incomplete", "response.failed")


# Returns what reads an answer that begins like this.
MarkupOf = Callable[[AnswerStart], Markup | ThoughtWatch | None]
# Is told of each recorded call, once this version has performed it: the call, the translator, the events that came of it.
Watch = Callable[[Mapping[str, Any], Translator, bytes], None]


class UnusableRecord(Exception):
    """There is no record that this version can read; the text says why."""


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


# ---- reading a record -------------------------------------------------------------------------------------------------


def read_record(path: Path) -> Record:
    """Read a record from its file. Raise `UnusableRecord`."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UnusableRecord(str(error.strerror)) from None
    except ValueError:
        raise UnusableRecord(_NO_RECORD) from None
    return parse_record(text)


def parse_record(text: str) -> Record:
    """Return the record in a text of JSON lines. Raise `UnusableRecord`."""
    try:
        lines = [json.loads(line) for line in text.splitlines()]
    except ValueError:
        raise UnusableRecord(_NO_RECORD) from None
    if not lines or not isinstance(lines[0], dict) or "record" not in lines[0]:
        raise UnusableRecord("not a record of an exchange")
    if lines[0]["record"] != FORMAT:
        raise UnusableRecord(f"a record of format {lines[0]['record']}; this version reads format {FORMAT}")
    named = {key: line for line in lines for key in ("request", "footing", "chat", "backend", "end") if key in line}
    if "request" not in named:
        raise UnusableRecord("the request was too large to be recorded")
    body = named["request"]["request"]
    is_text = isinstance(body, dict) and set(body) == {"not_json"}
    return Record(
        head=lines[0],
        request=bytes_of(body["not_json"]) if is_text else json.dumps(body).encode(),
        chat=named.get("chat"),
        backend=named.get("backend", {}).get("backend"),
        footing=named.get("footing", {}).get("footing", {}),
        calls=[line for line in lines if "call" in line],
        end=named.get("end", {}).get("end", {}),
    )


def bytes_of(value: str | dict[str, str]) -> bytes:
    """Return bytes that a record has as a text, or in base64."""
    return value.encode() if isinstance(value, str) else base64.b64decode(value["base64"])


# ---- replaying it -----------------------------------------------------------------------------------------------------


def replay(path: Path) -> Replay:
    """Run the record in a file through this version. Raise `UnusableRecord`."""
    return replay_record(read_record(path), str(path))


def replay_record(record: Record, path: str, watch: Watch | None = None) -> Replay:
    """Run a record, which came from `path`, through this version. `watch` sees each call of the translator. Raise
    `UnusableRecord`."""
    done = Replay(path)
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
            done.notes.append(
                f"not compared: it was refused for a reason that is not in the record: {record.end['error']['message']}"
            )
            return done
        if request.model == REVIEW_MODEL and record.chat is not None:
            request = request.model_copy(update={"model": record.chat["chat"]["model"]})
        request, chat_request = _translated(record, in_force, request)
        client = client_of(in_force.settings, headers)
        start = _start(in_force, chat, chat_request)
        options = stream_options(in_force, request, chat_request, client, chat["response_id"], start)
        if websocket:
            options = msgspec.structs.replace(options, stream_id=request.stream_id)
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
            refusal = in_client_terms(read_error(answer["status"], bytes_of(answer["body"]), answer["retry_after"]))
        if record.end.get("error") is not None:
            _compare(done, "error", [_pretty(record.end["error"])], [_pretty(error_fields(refusal))])
    markup_of = partial(in_force.parsers.markup, chat_request.body)
    _replay_calls(record, done, _translator(options, chat_request, record.chat), markup_of, watch)
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
    results = msgspec.convert(footing.get("results", {}), dict[str, KeptResult])
    return request, translate(request, policy, references.get, footing.get("history", ()), replaced, hosted, results)


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
        raise UnusableRecord(f"its settings do not fit this version: {error}") from None


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
        options = msgspec.structs.replace(options, seal=seal)
    if chat_request.compacting:
        options = msgspec.structs.replace(options, compaction=seal)
    return Translator(options, clock), clock


def _replay_calls(
    record: Record, done: Replay, playing: tuple[Translator, _Clock], markup_of: MarkupOf, watch: Watch | None
) -> None:
    translator, clock = playing
    assert record.chat is not None
    recorded = bytearray()
    replayed = bytearray()
    for call in record.calls:
        clock.now = record.chat["created"] + call["at"]
        recorded += bytes_of(call["sent"])
        ended = translator.ended
        sent = _perform(translator, call, markup_of)
        if translator.ended and not ended:
            sent += translator.terminal()
        replayed += sent
        if watch is not None:
            watch(call, translator, sent)
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
        return translator.feed(bytes_of(data))
    if name == "feed_completion":
        return translator.feed_completion(bytes_of(data))
    if name == "fail":
        fields = dict(data)
        return translator.fail(ApiError(fields.pop("status"), fields.pop("message"), **fields))
    if name == "next_turn":
        turn = json.loads(bytes_of(data))
        start = msgspec.convert(turn["start"], AnswerStart)
        return translator.next_turn(markup_of(start), may_call=turn["may_call"])
    if name == "list_tools":
        return translator.list_tools(msgspec.json.decode(bytes_of(data), type=ToolListing))
    if name == "approved_call":
        return translator.approved_call(msgspec.json.decode(bytes_of(data), type=ApprovedCall))
    if name == "finish_call":
        return translator.finish_call(msgspec.json.decode(bytes_of(data), type=CallOutcome))
    if name == "insert":
        item = bytes_of(data).decode()
        return translator.insert(json.loads(item)["type"], item)
    if name == "judge":
        return translator.judge(bytes_of(data).decode() if "data" in call else None)
    if name in ("queue", "start", "finish", "refuse", "keep_alive"):
        played: bytes = getattr(translator, name)()
        return played
    raise UnusableRecord(f"a call that this version does not know: {name}")


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


def as_json(done: Replay) -> dict[str, Any]:
    """Return a result as plain data, with the differences as lines of a diff."""
    return {
        "path": done.path,
        "identical": not done.differences,
        "events": done.events,
        "ending": done.ending,
        "notes": done.notes,
        "differences": [
            {"place": found.place, "diff": [f"{sign}{line}" for sign, line in diff(found)]} for found in done.differences
        ],
    }


def diff(found: Difference) -> Iterator[tuple[str, str]]:
    """Yield the lines of a diff, each with its sign: `-` recorded, `+` replayed, blank for both, `@` for a jump."""
    for line in list(difflib.unified_diff(found.recorded, found.replayed, lineterm="", n=1))[2:]:
        yield line[0], line[1:]
