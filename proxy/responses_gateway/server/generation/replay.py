"""Recorded exchanges, run again through this version: what it would send to the backend and to the client, and what differs."""

from __future__ import annotations

import base64
import difflib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from responses_gateway.conformance.checker import frames
from responses_gateway.request import ChatRequest, translate
from responses_gateway.request.input.call_matching import without_repeated
from responses_gateway.request.tools.hosted_tools import NO_HOSTED_TOOLS, HostedTools
from responses_gateway.server.generation.parser_choice.choice import AnswerStart, ParserChoice
from responses_gateway.server.generation.preparation.codex_sessions import REVIEW_MODEL
from responses_gateway.server.generation.preparation.live_settings import InForce, translation_policy
from responses_gateway.server.generation.preparation.prepare import stream_options, with_call_rules
from responses_gateway.server.protocols.interface import ClientProtocol, Reading, ReadingScope
from responses_gateway.server.protocols.responses import RESPONSES
from responses_gateway.server.protocols.standard import PROTOCOLS
from responses_gateway.server.recording.recorder import FORMAT, error_fields
from responses_gateway.settings import Settings
from responses_gateway.stream.options import StreamOptions, recognise
from responses_gateway.stream.outcomes import EarlyEnds
from responses_gateway.stream.reading.leading_thought import MarkupOf
from responses_gateway.stream.tape import METHODS, Call, Tape
from responses_gateway.stream.translator import Translator
from responses_gateway.wire.errors import ApiError, chat_refused, gateway_key_refused, in_client_terms
from responses_gateway.wire.hosted import KeptResult
from responses_gateway.wire.requests import ResponsesRequest, parse_message, parse_request

_CUT = "the record is truncated: the exchange was longer than a record may be"
_NO_RECORD = "not a record: not a file of JSON lines"


class RecordedCall(NamedTuple):
    """A call of the recorded translator, and the events that it returned."""

    call: Call
    sent: bytes


# Takes each recorded call once this version has made it: the call, the translator, the events that it returned now.
Watch = Callable[[RecordedCall, Translator, bytes], None]


class UnusableRecord(Exception):
    """There is no record that this version can read; the text says why."""


@dataclass(frozen=True)
class Difference:
    """`place`: `request`, `error`, `calls`, `events` or `bytes`; the lines are what a diff compares."""

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
    chat: dict[str, Any] | None
    backend: dict[str, Any] | None
    context: dict[str, Any]
    calls: list[RecordedCall]


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
    except (ValueError, RecursionError):
        raise UnusableRecord(_NO_RECORD) from None
    if not lines or not isinstance(lines[0], dict) or "record" not in lines[0]:
        raise UnusableRecord("not a record of an exchange")
    if lines[0]["record"] != FORMAT:
        raise UnusableRecord(f"a record of format {lines[0]['record']}; this version reads format {FORMAT}")
    named = {key: line for line in lines for key in ("request", "context", "chat", "backend", "end") if key in line}
    if "request" not in named:
        raise UnusableRecord("the request was too large to be recorded")
    body = named["request"]["request"]
    is_text = isinstance(body, dict) and set(body) == {"not_json"}
    return Record(
        head=lines[0],
        request=bytes_of(body["not_json"]) if is_text else json.dumps(body).encode(),
        chat=named.get("chat"),
        backend=named.get("backend", {}).get("backend"),
        context=named.get("context", {}).get("context", {}),
        calls=[_recorded_call(line) for line in lines if "call" in line],
        end=named.get("end", {}).get("end", {}),
    )


def _recorded_call(line: Mapping[str, Any]) -> RecordedCall:
    """Return a call as its line has it. Raise `UnusableRecord`."""
    if line["call"] not in METHODS:
        raise UnusableRecord(f"a call that this version does not know: {line['call']}")
    argument = bytes_of(line["data"]) if "data" in line else None
    return RecordedCall(Call(line["call"], argument, line["at"], tuple(line.get("sealed", ()))), bytes_of(line["sent"]))


def bytes_of(value: str | dict[str, str]) -> bytes:
    """Return bytes that a record has as a text, or in base64."""
    return value.encode() if isinstance(value, str) else base64.b64decode(value["base64"])


# ---- replaying it -----------------------------------------------------------------------------------------------------


def replay(path: Path) -> Replay:
    """Run the record in a file through this version. Raise `UnusableRecord`."""
    return replay_record(read_record(path), str(path))


def replay_record(record: Record, path: str, watch: Watch | None = None) -> Replay:
    """Run a record from `path`, through this version. `watch` sees each call of the translator. Raise `UnusableRecord`."""
    done = Replay(path)
    if record.chat is None and record.end.get("truncated"):
        done.notes.append(_CUT)
        return done
    in_force = _in_force(record, _settings(record, done))
    try:
        request, reading = _asked(record, in_force)
        if record.end.get("beyond"):
            done.ending = f"HTTP {record.end['error']['status']}"
            done.notes.append(
                f"not compared: it was refused for a reason that is not in the record: {record.end['error']['message']}"
            )
            return done
        if request.model == REVIEW_MODEL and record.chat is not None:
            request = request.model_copy(update={"model": record.chat["chat"]["model"]})
        request, chat_request = _translated(record, in_force, request, reading)
        options = _options(record, in_force, request, chat_request, reading)
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
            refusal = in_client_terms(chat_refused(answer["status"], bytes_of(answer["body"]), answer["retry_after"]))
        if record.end.get("error") is not None:
            _compare(done, "error", [_pretty(record.end["error"])], [_pretty(error_fields(refusal))])
    tape, translator = _translator(options, chat_request, record.chat["created"])
    _replay_calls(record, done, tape, translator, in_force.parsers.markup_of(chat_request.body), watch)
    return done


def _options(
    record: Record, in_force: InForce, request: ResponsesRequest, chat_request: ChatRequest, reading: Reading | None
) -> StreamOptions:
    """Return the options of the translator of the answer."""
    chat = record.chat or {}
    options = stream_options(
        in_force,
        request,
        chat_request,
        recognise(record.head["headers"]),
        chat.get("response_id", "resp_0"),
        msgspec.convert(chat.get("start", {}), AnswerStart),
        reading,
        stream_id=request.stream_id if record.head.get("websocket") else None,
        continuable=chat.get("continuable", False),
        holds_text=chat.get("holds_text", False),
        early_ends=msgspec.convert(chat.get("early_ends"), EarlyEnds | None),
    )
    tools = chat_request.body.get("tools")
    if not tools:
        return options
    return with_call_rules(options, tools, record.head["headers"], in_force.settings)


def _asked(record: Record, in_force: InForce) -> tuple[ResponsesRequest, Reading | None]:
    """Return the request as it came; one of another protocol as it was read, too. Raises `ApiError`."""
    protocol = protocol_of(record)
    if protocol.reader is None:
        return (parse_message(record.request) if record.head.get("websocket") else parse_request(record.request)), None
    body = protocol.body.parse(record.request)
    chat = record.chat or {}
    model = chat["chat"]["model"] if chat else body.model
    hosted = msgspec.convert(record.context.get("hosted") or {}, HostedTools)
    served_as = str(record.context.get("served_as", ""))
    reading = protocol.reader.read(body, ReadingScope(model, in_force.parsers.policy(model), hosted.kinds, served_as), None)
    assert reading is not None
    form = msgspec.convert(chat.get("form", {}), protocol.reader.form)
    return reading.request, msgspec.structs.replace(reading, form=form)


def protocol_of(record: Record) -> ClientProtocol:
    """Return the protocol that the client of a recorded exchange spoke."""
    return PROTOCOLS[record.head.get("api", RESPONSES.name)]


def _translated(
    record: Record, in_force: InForce, request: ResponsesRequest, reading: Reading | None
) -> tuple[ResponsesRequest, ChatRequest]:
    """Return the request as the translation got it, and the chat request that this version makes of it. Raises `ApiError`."""
    if reading is not None:
        return request, _translated_reading(record, reading)
    context = record.context
    policy = in_force.parsers.policy(request.model)
    if context:
        policy = msgspec.structs.replace(policy, stores_responses=context["stores_responses"])
        request = request.model_copy(update={name: context[name] for name in ("input", "store") if name in context})
        request = without_repeated(request, context.get("history", ()))
    references = context.get("references", {})
    replaced = frozenset(context.get("replaced", ()))
    hosted = msgspec.convert(context["hosted"], HostedTools) if "hosted" in context else NO_HOSTED_TOOLS
    results = msgspec.convert(context.get("results", {}), dict[str, KeptResult])
    return request, translate(request, policy, references.get, context.get("history", ()), replaced, hosted, results)


def _translated_reading(record: Record, reading: Reading) -> ChatRequest:
    """Return the chat request for a request of another protocol, with the limit that its context had room for."""
    policy = reading.policy
    hosted = msgspec.convert(record.context["hosted"], HostedTools) if "hosted" in record.context else NO_HOSTED_TOOLS
    request = reading.request
    if "input" in record.context:  # with the texts of its documents
        request = request.model_copy(update={"input": record.context["input"]})
    try:
        translated = translate(request, policy, hosted=hosted)
    except ApiError as error:
        raise reading.error(error) from None
    limit = policy.max_tokens_field
    sent = record.chat["chat"].get(limit) if record.chat is not None else None
    if sent is not None and translated.body[limit] > sent:
        translated.body[limit] = sent
    return translated


def _in_force(record: Record, settings: Settings) -> InForce:
    """Return the settings with the choice of parsers, by the backend's name of the model where the record has it."""
    served_as = record.context.get("served_as")
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


def _translator(options: StreamOptions, chat_request: ChatRequest, created: float) -> tuple[Tape, Translator]:
    tape = Tape(time.time, created)
    seal = tape.sealing(lambda _: "(sealed by no recorded call)")
    if chat_request.encrypted_reasoning or options.client.needs_sealed_thoughts:
        options = msgspec.structs.replace(options, seal=seal)
    if chat_request.compacting:
        options = msgspec.structs.replace(options, compaction=seal)
    return tape, Translator(options, tape.clock)


def _replay_calls(
    record: Record, done: Replay, tape: Tape, translator: Translator, markup_of: MarkupOf, watch: Watch | None
) -> None:
    recorded = b"".join(sent for _, sent in record.calls)
    replayed = bytearray()
    played = tape.play(translator, [call for call, _ in record.calls], markup_of)
    ended = False
    for recorded_call in record.calls:
        try:
            sent = next(played)
        except Exception as defect:  # this version cannot make a call that the recorded one made: a difference, too
            method = recorded_call.call.method
            _compare(done, "calls", [method], [f"{method} failed: {type(defect).__name__}: {defect}"])
            break
        if translator.ended and not ended:
            ended = True
            sent += translator.terminal()
        replayed += sent
        if watch is not None:
            watch(recorded_call, translator, sent)
    _compare_events(record, done, recorded, bytes(replayed))
    if translator.defect is not None:
        done.notes.append(f"the translator failed: {type(translator.defect).__name__}: {translator.defect}")
    if record.end.get("truncated"):
        done.notes.append(_CUT)
    events = [frame.data for frame in frames(bytes(replayed)) if frame.data != "[DONE]"]
    done.events = len(events)
    last = json.loads(events[-1])["type"] if events else None
    if last in protocol_of(record).terminals:
        done.ending = last
    if record.backend is not None and record.end.get("error") is not None:
        done.ending = f"HTTP {record.end['error']['status']}"


# ---- comparing --------------------------------------------------------------------------------------------------------


def _compare(done: Replay, place: str, recorded: list[str], replayed: list[str]) -> None:
    if recorded != replayed:
        done.differences.append(Difference(place, recorded, replayed))


def _compare_events(record: Record, done: Replay, recorded: bytes, replayed: bytes) -> None:
    usage = not record.head.get("tokenizer")
    if not usage:
        done.notes.append("usage is not compared: the gateway counted tokens with a tokenizer, which is not in the record")
    _compare(done, "events", _event_lines(recorded, usage), _event_lines(replayed, usage))
    if usage and recorded != replayed and not any(difference.place == "events" for difference in done.differences):
        done.differences.append(Difference("bytes", [repr(recorded)], [repr(replayed)]))


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
    for owner in (event.get("response"), event.get("message"), event):  # where the two protocols have it
        if isinstance(owner, dict):
            owner.pop("usage", None)
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
            {"place": difference.place, "diff": [f"{sign}{line}" for sign, line in diff(difference)]}
            for difference in done.differences
        ],
    }


def diff(difference: Difference) -> Iterator[tuple[str, str]]:
    """Yield the lines of a diff, each with its sign: `-` recorded, `+` replayed, blank for both, `@` for a jump."""
    for line in list(difflib.unified_diff(difference.recorded, difference.replayed, lineterm="", n=1))[2:]:
        yield line[0], line[1:]
