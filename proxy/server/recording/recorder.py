"""Recording exchanges, one file each: what a bug report needs, and what `responses-proxy replay` runs again.

The translator is the place to listen: it is sans I/O, so the calls that it got (with the bytes of each read, and when)
together with the request are the whole exchange, and the same calls give the same events. While a recording is off,
nothing of this file runs.

A record is a file of JSON lines:

    {"record": 1, "began", "versions", "settings", "headers", "tokenizer"}    the head; whether tokens were counted here
    {"request": …}                                                the client's body, secrets redacted
    {"footing": {"history", "references", "input", …}}            what else the translation was made of
    {"chat": …, "response_id", "created", "thinking_open", "sealed"}   its translation, and when the translator began
    {"compacted": …}                                              what was sent instead, if the context was summarised first
    {"backend": {"status", "body", "retry_after"}}                only if the backend refused
    {"call", "at", "data", "sent"}                                one call of the translator, seconds after `created`
    {"end": {"outcome", "error", "truncated", "beyond"}}

The head has `"websocket": true` where the request came as a message. `sealed` are the sealed texts in the order in which they
were made: no two are alike, and the key is not in a record. `beyond`: the request was refused for something that is not in one
either (the store, a limit).

Bytes are a text, or `{"base64": …}` where they are no UTF-8 (a read may end inside a character).
"""

from __future__ import annotations

import json
import os
import platform
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from proxy import __version__
from proxy.request import Policy
from proxy.server.access.api_keys import KEY_HEADERS
from proxy.server.recording.redaction import SHORTEST_SECRET, Redaction, as_text
from proxy.settings import Settings
from proxy.stream.compactor import Compactor, SealText
from proxy.stream.deferred_calls import JudgedTranslator
from proxy.stream.options import StreamOptions
from proxy.stream.translator import Translator
from proxy.telemetry import logs
from proxy.wire.errors import ApiError
from proxy.wire.requests import ResponsesRequest

FORMAT = 1
PATTERN = "exchange-*.jsonl"
#: What one exchange may hold in memory while it runs, in bytes; the rest of a longer one is not recorded.
EXCHANGE_LIMIT = 16 * 1024 * 1024
#: About what a call costs besides its bytes.
_CALL_COST = 100
#: Records that may wait for the disk; more are dropped, and that is logged.
_WAITING = 16
#: The only headers that are kept.
_HEADERS = frozenset({"content-type", "originator", "user-agent", "x-request-id"})
#: Settings that say where things are, or how to get in, and nothing about the translation.
_PRIVATE = frozenset(
    {
        "admin_key",
        "api_keys",
        "backend",
        "backends",
        "backend_api_key",
        "cors_origins",
        "host",
        "port",
        "record",
        "record_limit",
        "tokenizer",
    }
    | {"model_table", "seal_key"}
)


@dataclass
class Recording:
    """One exchange while it runs. Bytes are kept as they are and written down when it is over."""

    recorder: Recorder
    secrets: tuple[str, ...]  #: texts that may not be written down
    settings: dict[str, Any]
    headers: dict[str, str]
    websocket: bool
    began: float = field(default_factory=time.time)
    size: int = 0
    truncated: bool = False
    request: bytes | None = None
    footing: bytes | None = None
    chat: bytes | None = None
    response_id: str | None = None
    created: float = 0.0
    thinking_open: bool | None = None
    sealed: list[str] = field(default_factory=list)
    compacted: bytes | None = None
    refusal: dict[str, Any] | None = None
    calls: list[tuple[str, float, bytes | ApiError | None, bytes]] = field(default_factory=list)
    outcome: str = "failed"
    error: ApiError | None = None
    beyond: bool = False
    _parsed: bool = False
    _ended: bool = False

    def asked(self, body: bytes) -> None:
        """The client's request body."""
        if self._fits(len(body)):
            self.request = body

    def parsed(self) -> None:
        """The request is one."""
        self._parsed = True

    def stands_on(self, request: ResponsesRequest, policy: Policy, served_as: str, **found: Any) -> None:
        """What the translation is made of besides the request as it came. `request` and `policy` are as the translation gets
        them, `served_as` is the backend's name of the model; of `found` is kept what there is."""
        footing = {name: value for name, value in found.items() if value}
        footing |= {"store": request.store, "stores_responses": policy.stores_responses, "served_as": served_as}
        data = msgspec.json.encode(footing)
        if self._fits(len(data)):
            self.footing = data

    def noted(self, seal: SealText) -> SealText:
        """The same, its results written down."""

        def noting(text: str) -> str:
            sealed = seal(text)
            self.sealed.append(sealed)
            return sealed

        return noting

    def translator(
        self, options: StreamOptions, chat: bytes, thinking_open: bool | None, compaction: SealText | None
    ) -> Translator:
        """A translator that writes down what is asked of it; `chat` is the body of the chat request. `compaction` seals what
        comes of one, if that is what was asked for."""
        if self._fits(len(chat)):
            self.chat = chat
        self.response_id, self.thinking_open = options.response_id, thinking_open
        if compaction is not None:
            compactor = _RecordedCompactor(self, options, compaction)
            self.created = compactor.created
            return compactor
        translator = _RecordedTranslator(self, options)
        self.created = translator.created
        return translator

    def summarised(self, chat: bytes) -> None:
        """The context was summarised first: this is the body of the chat request now."""
        if self._fits(len(chat)):
            self.compacted = chat

    def refused(self, status: int, body: bytes, retry_after: float | None) -> None:
        """The backend refused."""
        if self._fits(len(body)):
            self.refusal = {"status": status, "body": as_text(body), "retry_after": retry_after}

    def failed(self, error: ApiError) -> None:
        """The answer is an error instead of a response."""
        if self._ended:
            return
        self.outcome = "rejected" if error.status < 500 else "failed"
        self.beyond = self._parsed and self.footing is None and not self.truncated
        self.error = ApiError(
            error.status,
            error.message,
            type=error.type,
            code=error.code,
            param=error.param,
            retry_after=error.retry_after,
        )

    def note(self, call: str, at: float, data: bytes | ApiError | None, sent: bytes) -> None:
        """One call of the translator."""
        if self._fits(_CALL_COST + len(sent) + (len(data) if isinstance(data, bytes) else 0)):
            self.calls.append((call, at, data, sent))

    def end(self, outcome: str) -> None:
        """It is over, and written down; what comes later changes nothing."""
        if not self._ended:
            self._ended, self.outcome = True, outcome
            self.recorder.keep(self)

    def _fits(self, size: int) -> bool:
        """Count bytes; once they are too many nothing more is taken, so that a record never has holes."""
        self.size += size
        self.truncated = self.truncated or self.size > EXCHANGE_LIMIT
        return not self.truncated


class _Noted(Translator):
    """A translator whose calls are noted. Its clock stands still during a call, so that a replay reads the same time."""

    def __init__(self, recording: Recording, options: StreamOptions, *more: Any) -> None:
        self._recording = recording
        self.created = self._moment = time.time()
        self._busy = False  # inside a call: what it calls in turn is part of it
        super().__init__(options, lambda: self._moment, *more)

    def queue(self) -> bytes:
        return self._noted("queue", None, super().queue)

    def insert(self, kind: str, item: str) -> bytes:
        return self._noted("insert", item.encode(), lambda: super(_Noted, self).insert(kind, item))

    def start(self) -> bytes:
        return self._noted("start", None, super().start)

    def feed(self, data: bytes) -> bytes:
        return self._noted("feed", data, lambda: super(_Noted, self).feed(data))

    def feed_completion(self, body: bytes) -> bytes:
        return self._noted("feed_completion", body, lambda: super(_Noted, self).feed_completion(body))

    def finish(self) -> bytes:
        return self._noted("finish", None, super().finish)

    def fail(self, error: ApiError) -> bytes:
        return self._noted("fail", error, lambda: super(_Noted, self).fail(error))

    def keep_alive(self) -> bytes:
        return self._noted("keep_alive", None, super().keep_alive)

    def _noted(self, call: str, data: bytes | ApiError | None, perform: Callable[[], bytes]) -> bytes:
        if self._busy:
            return perform()
        at = round(time.time() - self.created, 6)
        self._moment = self.created + at
        self._busy = True
        try:
            sent = perform()
        finally:
            self._busy = False
        self._recording.note(call, at, data, sent)
        return sent


class _RecordedTranslator(_Noted, JudgedTranslator):
    """That of a response."""

    def judge(self, replacement: str | None) -> bytes:
        data = None if replacement is None else replacement.encode("utf-8", "replace")
        return self._noted("judge", data, lambda: super(_RecordedTranslator, self).judge(replacement))


class _RecordedCompactor(_Noted, Compactor):
    """That of a compaction."""


class Recorder:
    """Keeps recordings in a folder. Raises `OSError` if it cannot be made.

    `limit` is in bytes, for all records together: the oldest are deleted. Files are written by a thread, and can be read by
    the owner alone.
    """

    def __init__(self, folder: Path, limit: int, settings: Settings) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._folder = folder
        self._limit = limit
        self.use_settings(settings)
        self._tokenizer = settings.tokenizer is not None
        keys = (settings.backend_api_key, *(details.api_key for details in settings.backends.values()))
        self._keys = {key.get_secret_value() for key in keys if key is not None}
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="recorder")
        self._room = threading.BoundedSemaphore(_WAITING)

    def use_settings(self, settings: Settings) -> None:
        """The settings in force from now on, which go into each recording that begins."""
        self._settings = settings.model_dump(mode="json", exclude=set(_PRIVATE))
        # Whether there is one shows in a response; where it is may tell a password.
        self._settings["store"] = "none" if settings.store == "none" else "memory"

    def begin(self, headers: Mapping[str, str], *, websocket: bool = False) -> Recording:
        """A recording for a request with these headers, or a message of a connection that began with them."""
        given = (headers.get(name, "").rpartition(" ")[2] for name in KEY_HEADERS)
        found = {*self._keys, *given, headers.get("Cookie", "")}
        return Recording(
            self,
            secrets=tuple(secret for secret in found if len(secret) >= SHORTEST_SECRET),  # "none" is no key
            settings=self._settings,
            headers={name.lower(): value for name, value in headers.items() if name.lower() in _HEADERS},
            websocket=websocket,
        )

    def keep(self, recording: Recording) -> None:
        """Write a finished recording down, in the thread."""
        if not self._room.acquire(blocking=False):
            logs.logger().warning("exchange not recorded: the disk is too slow")
            return
        try:
            self._thread.submit(self._write, recording)
        except RuntimeError:  # closed already: this exchange ended after the gateway
            self._room.release()
            logs.logger().warning("exchange not recorded: the gateway has stopped")

    def close(self) -> None:
        """Wait for what is being written."""
        self._thread.shutdown()

    def _write(self, recording: Recording) -> None:
        try:
            redaction = Redaction(recording.secrets)
            text = "".join(json.dumps(line) + "\n" for line in self._lines(recording, redaction))
            data = redaction.text(text).encode()
            if len(data) > self._limit:
                logs.logger().warning(
                    "exchange not recorded: it is larger than record_limit", extra=logs.fields(size=len(data))
                )
                return
            self._make_room(len(data))
            moment = datetime.fromtimestamp(recording.began, UTC)
            name = f"exchange-{moment:%Y%m%dT%H%M%S.%f}-{recording.response_id or secrets.token_hex(8)}.jsonl"
            part = self._folder / f".{name}.part"
            with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(data)
            part.rename(self._folder / name)
        except Exception:
            logs.logger().exception("exchange not recorded")
        finally:
            self._room.release()

    def _make_room(self, size: int) -> None:
        """Delete the oldest records until `size` bytes more are within the limit. Their names sort by age."""
        records = [(path, path.stat().st_size) for path in sorted(self._folder.glob(PATTERN))]
        total = size + sum(known for _, known in records)
        for path, known in records:
            if total <= self._limit:
                return
            path.unlink(missing_ok=True)
            total -= known

    def _lines(self, recording: Recording, redaction: Redaction) -> list[dict[str, Any]]:
        versions = {
            "responses-proxy": __version__,
            "python": platform.python_version(),
            "aiohttp": aiohttp.__version__,
            "msgspec": msgspec.__version__,
        }
        began = datetime.fromtimestamp(recording.began, UTC).isoformat()
        head = {"record": FORMAT, "began": began, "versions": versions, "settings": recording.settings}
        head |= {"headers": recording.headers, "tokenizer": self._tokenizer}
        if recording.websocket:
            head["websocket"] = True
        lines: list[dict[str, Any]] = [head]
        if recording.request is not None:
            lines.append({"request": redaction.value(recording.request)})
        if recording.footing is not None:
            lines.append({"footing": redaction.value(recording.footing)})
        if recording.chat is not None:
            began_with = {"thinking_open": recording.thinking_open, "sealed": recording.sealed}
            ids = {"response_id": recording.response_id, "created": recording.created}
            lines.append({"chat": redaction.value(recording.chat), **ids, **began_with})
        if recording.compacted is not None:
            lines.append({"compacted": redaction.value(recording.compacted)})
        if recording.refusal is not None:
            lines.append({"backend": recording.refusal})
        lines.extend(_call_line(*call) for call in recording.calls)
        error = error_fields(recording.error)
        end = {"outcome": recording.outcome, "error": error, "truncated": recording.truncated}
        lines.append({"end": end | {"beyond": True} if recording.beyond else end})
        return lines


def error_fields(error: ApiError | None) -> dict[str, Any] | None:
    """An error as a record has it."""
    if error is None:
        return None
    return {"status": error.status, **error.body()["error"], "retry_after": error.retry_after}


def _call_line(call: str, at: float, data: bytes | ApiError | None, sent: bytes) -> dict[str, Any]:
    line: dict[str, Any] = {"call": call, "at": at}
    if data is not None:
        line["data"] = as_text(data) if isinstance(data, bytes) else error_fields(data)
    return {**line, "sent": as_text(sent)}
