"""What a recording shows: the request, the answer, and the timeline of the stream, that is, what the backend sent, what became
of it, and what was held or repaired.

Chunks and events are those of the recording. A recording has no reasons: its calls are repeated with the code of this version,
and the state of the translator is read after each of them."""

from __future__ import annotations

import json
from typing import Any

from responses_gateway.conformance.checker import frames
from responses_gateway.server.generation import replay
from responses_gateway.stream.translator import Translator
from responses_gateway.wire.sse import SSEDecoder, SSETooLong

_LONGEST = 200_000  # most characters of a body that are shown; the recording has all of them


def contents(text: str) -> dict[str, Any]:
    """Return a recorded request as received and as sent to the backend, and how it ended. Raise `UnusableRecord`."""
    record = replay.parse_record(text)
    chat = record.chat or {}
    return {
        "headers": record.head.get("headers", {}),
        "versions": record.head.get("versions", {}),
        "websocket": bool(record.head.get("websocket")),
        "request": _shown(_readable(record.request)),
        "chat": _shown(chat.get("chat")),
        "refusal": record.backend,
        "end": record.end,
    }


def timeline(text: str, after: int, limit: int) -> dict[str, Any]:
    """Return at most `limit` calls of a recording behind number `after`, and the number of all. Raise `UnusableRecord`."""
    record = replay.parse_record(text)
    observed = _Observed()
    try:
        replay.replay_record(record, "", observed.observe)
    except replay.UnusableRecord:
        observed.steps.clear()  # of a version that this one does not know: the reasons are not known
    decoder = SSEDecoder()
    steps = [_step(number, made, decoder, observed.steps.get(number, {})) for number, made in enumerate(record.calls, start=1)]
    return {"total": len(steps), "steps": steps[after : after + limit]}


def replayed(text: str, name: str) -> dict[str, Any]:
    """Repeat the translation with this version and return the differences. Raise `UnusableRecord`."""
    return replay.as_json(replay.replay_record(replay.parse_record(text), name))


def answer(text: str) -> dict[str, Any]:
    """Return what a recorded request was answered so far: its items and the error. Raise `UnusableRecord`."""
    record = replay.parse_record(text)
    items: dict[int, dict[str, Any]] = {}
    error = record.end.get("error")
    show = replay.protocol_of(record).show
    for made in record.calls:
        for frame in frames(made.sent):
            event = _value(frame.data)
            if not isinstance(event, dict):
                continue
            name = frame.name or ""
            show(items, name, event)
            if name == "error":
                error = event["error"]
            elif "response" in event:
                error = event["response"].get("error") or error
    return {"items": [_shortened(items[place]) for place in sorted(items)], "error": error}


class _Observed:
    """The state of the translator after each call, by the number of the call."""

    def __init__(self) -> None:
        self.steps: dict[int, dict[str, Any]] = {}
        self._repairs: dict[str, int] = {}

    def observe(self, made: replay.RecordedCall, translator: Translator, sent: bytes) -> None:
        """Note the state of the translator after a call."""
        repairs = translator.repairs
        new = {kind: count - self._repairs.get(kind, 0) for kind, count in repairs.items()}
        self._repairs = dict(repairs)
        step: dict[str, Any] = {"held": translator.held, "repairs": {kind: count for kind, count in new.items() if count}}
        step["differs"] = made.sent != sent
        self.steps[len(self.steps) + 1] = step


def _step(number: int, made: replay.RecordedCall, decoder: SSEDecoder, seen: dict[str, Any]) -> dict[str, Any]:
    call = made.call
    received = call.argument or b""
    step: dict[str, Any] = {"number": number, "call": call.method, "time": call.at, "bytes": len(received)}
    if call.method == "feed":
        step["chunks"] = _chunks(decoder, received)
    else:
        step["chunks"] = [_readable(received)] if received else []
    events = [frame for frame in frames(made.sent) if frame.data != "[DONE]"]
    step["events"] = [{"type": frame.name, "data": _value(frame.data)} for frame in events]
    return {**step, "held": [], "repairs": {}, "differs": False, **seen}


def _chunks(decoder: SSEDecoder, received: bytes) -> list[Any]:
    """Return the chunks that a read completed."""
    try:
        return [_readable(payload) for payload in decoder.feed(received)]
    except SSETooLong:
        return []


def _readable(payload: bytes) -> Any:
    return _value(payload.decode("utf-8", "replace"))


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _shortened(value: Any) -> Any:
    """Return a value with its long texts cut."""
    if isinstance(value, dict):
        return {name: _shortened(entry) for name, entry in value.items()}
    if isinstance(value, list):
        return [_shortened(entry) for entry in value]
    return f"{value[:_LONGEST]}…" if isinstance(value, str) and len(value) > _LONGEST else value


def _shown(value: Any) -> dict[str, Any] | None:
    """Return a body as indented text, cut where it is very long."""
    if value is None:
        return None
    text = value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)
    return {"text": text[:_LONGEST], "cut": len(text) > _LONGEST}
