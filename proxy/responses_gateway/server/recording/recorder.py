"""Records of exchanges, a file each, in a folder. Secrets are taken out.

A record is a file of JSON lines:

    {"record": 2, "began", "versions", "settings", "headers", "tokenizer"}    the head; whether tokens were counted here
    {"request": …}                                                the client's body, secrets redacted
    {"context": {"history", "references", "input", …}}            what else the translation was made of
    {"chat": …, "response_id", "created", "start", …}             its translation; when and how its answer began to be read
    {"asked_again": …}                                            the chat request of each further turn of the model
    {"compacted": …}                                              what was sent instead, if the context was summarised first
    {"backend": {"status", "body", "retry_after"}}                only if the backend refused
    {"call", "at", "data", "sealed", "sent"}                      one call of the translator, as `stream/tape.py` has it
    {"end": {"outcome", "error", "truncated", "beyond"}}

The head has `"websocket": true` where the request came as a message, and `"api": "messages"` where it came through that
API. `sealed` are the texts that were sealed during a call: no two seals are alike, and the key is not in a record. `beyond`:
the request was refused for something that is not in the record either (the store, a limit).

Bytes are a text, or `{"base64": …}` where they are not valid UTF-8 (a read may end inside a character)."""

from __future__ import annotations

import json
import math
import os
import platform
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from responses_gateway.own_folder import OwnFolder, remove_abandoned
from responses_gateway.server.recording.recording import SHORTEST_SECRET, Recording, Redaction, as_text
from responses_gateway.settings import Settings
from responses_gateway.settings.keys import KEY_HEADERS
from responses_gateway.stream.options import CLIENT_HEADERS
from responses_gateway.stream.tape import Call
from responses_gateway.telemetry import logs
from responses_gateway.version import __version__
from responses_gateway.wire.errors import ApiError

FORMAT = 2
PATTERN = "exchange-*.jsonl"
MAX_WAITING = 16  # records that may wait for the disk; more are dropped, which is logged
# The only headers that are kept.
_HEADERS = frozenset({"content-type", "user-agent", "x-request-id", *CLIENT_HEADERS})
# Settings that say where things are, or how to get in, and nothing about the translation.
_PRIVATE = frozenset({
    "admin_key", "api_keys", "backend", "backend_api_key", "backend_headers", "backends", "cors_origins", "events", "host",
    "jwt", "model_table", "pools", "port", "record", "seal_key", "teams", "tokenizer", "trusted_proxy", "webhooks",
})  # fmt: skip
# Bytes of all records in the folder `record`, because they are made to look into a case, and not to be kept; and of those in a
# temporary one. The oldest are deleted.
RECORDS_LIMIT = 1024**3
_TEMPORARY_LIMIT = 256 * 1024 * 1024
_PREFIX = "responses-gateway-records-"  # of a temporary folder
# Lost exchanges are reported one by one up to this number, then together, because a disk that is too slow loses hundreds.
_REPORTED_SINGLY = 10
_REPORT_INTERVAL = 60.0  # seconds


class Recorder:
    """Keeps the recordings of requests that begin before `until`, a Unix time in seconds: of all, where the settings name a
    folder, else of none before `record_for` is called. Files are written by a thread, and can be read by their owner alone."""

    def __init__(self, settings: Settings) -> None:
        """`settings` are those at the start; their keys and those of later ones get into no record. Raise `OSError` if the
        folder cannot be made."""
        self.always = settings.record is not None
        self.until = math.inf if self.always else 0.0
        self._folder = settings.record  # else a temporary one, which is made when it is needed first
        self._temporary: OwnFolder | None = None
        if self._folder is not None:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._limit = RECORDS_LIMIT if self.always else _TEMPORARY_LIMIT
        self._dumped: tuple[Settings, dict[str, Any]] | None = None  # the settings in force, as a record has them
        self._tokenizer = settings.tokenizer is not None
        self._keys: set[str] = set()  # of backends, also those that were replaced
        self._lost = 0
        self._next_report = 0.0
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="recorder")
        self._room = threading.BoundedSemaphore(MAX_WAITING)
        # What people wrote to a model does not stay behind when a gateway is killed.
        self._thread.submit(remove_abandoned, _PREFIX)

    def record_for(self, seconds: float) -> None:
        """Record the requests that begin within so many seconds; 0 ends that. Raise `OSError` if no folder can be made."""
        if self._folder is None and seconds > 0:
            self._temporary = OwnFolder(_PREFIX)
            self._folder = self._temporary.path
        self.until = time.time() + seconds if seconds > 0 else 0.0

    def begin(
        self, headers: Mapping[str, str], settings: Settings, *, websocket: bool = False, api: str = "responses"
    ) -> Recording | None:
        """Begin to record a request with these headers, or a message of a connection that began with them, if it is time. `api`
        is the API that it came through."""
        if time.time() >= self.until:
            return None
        recorded = self._as_recorded(settings)  # before the keys are used, because it adds those of new settings
        keys = (headers.get(name, "").rpartition(" ")[2] for name in KEY_HEADERS)
        secrets = {*self._keys, *keys, headers.get("Cookie", "")}
        return Recording(
            self.keep,
            unwritable=tuple(secret for secret in secrets if len(secret) >= SHORTEST_SECRET),  # "none" is no key
            settings=recorded,
            headers={name.lower(): value for name, value in headers.items() if name.lower() in _HEADERS},
            websocket=websocket,
            api=api,
        )

    def _report_lost(self) -> None:
        self._lost += 1
        now = time.monotonic()
        if self._lost > _REPORTED_SINGLY and now < self._next_report:
            return
        self._next_report = now + _REPORT_INTERVAL
        logs.logger().warning("exchange not recorded: the disk is too slow", extra=logs.fields(lost=self._lost))

    def keep(self, recording: Recording) -> None:
        """Write a finished recording down, in the thread."""
        if not self._room.acquire(blocking=False):
            self._report_lost()
            return
        try:
            self._thread.submit(self._write, recording)
        except RuntimeError:  # closed already: this exchange ended after the gateway
            self._room.release()
            logs.logger().warning("exchange not recorded: the gateway has stopped")

    def close(self) -> None:
        """Wait until everything is written, and delete what is in a temporary folder."""
        self._thread.shutdown()
        if self._temporary is not None:
            self._temporary.remove()

    def read(self, name: str) -> str | None:
        """Return the record of this name, once what waits is written; None if there is none, or none any more."""
        if self._folder is None or not fnmatchcase(name, PATTERN) or "/" in name:
            return None
        self._thread.submit(lambda: None).result()
        with suppress(OSError):
            return (self._folder / name).read_text(encoding="utf-8")
        return None

    def folder(self) -> Path | None:
        """Return the folder with the records, if there ever was one, once what waits is written."""
        if self._folder is not None:
            self._thread.submit(lambda: None).result()
        return self._folder

    def so_far(self, recording: Recording) -> str:
        """Return the record of a running exchange, as it stands."""
        redaction = Redaction(recording.unwritable)
        return redaction.text("".join(json.dumps(line) + "\n" for line in self._lines(recording, redaction)))

    def _as_recorded(self, settings: Settings) -> dict[str, Any]:
        if self._dumped is None or self._dumped[0] is not settings:
            dumped = settings.model_dump(mode="json", exclude=set(_PRIVATE))
            # Whether there is a store shows in a response; where it is may contain a password.
            dumped["store"] = "none" if settings.store == "none" else "memory"
            self._dumped = (settings, dumped)
            entries = (*settings.backends.values(), *settings.pools.values())
            keys = (settings.backend_api_key, *(entry.api_key for entry in entries))
            self._keys |= {key.get_secret_value() for key in keys if key is not None}
        return self._dumped[1]

    def _write(self, recording: Recording) -> None:
        try:
            assert self._folder is not None
            data = self.so_far(recording).encode()
            self._make_room(self._folder, len(data))
            name = recording.name
            part = self._folder / f".{name}.part"
            with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(data)
            part.rename(self._folder / name)
        except Exception:
            logs.logger().exception("exchange not recorded")
        finally:
            self._room.release()

    def _make_room(self, folder: Path, size: int) -> None:
        """Delete the oldest records until `size` more bytes are within the limit. Their names sort by age."""
        records: list[tuple[Path, int]] = []
        for path in sorted(folder.glob(PATTERN)):
            with suppress(FileNotFoundError):  # another worker has just deleted it
                records.append((path, path.stat().st_size))
        total = size + sum(known for _, known in records)
        for path, known in records:
            if total <= self._limit:
                return
            path.unlink(missing_ok=True)
            total -= known

    def _lines(self, recording: Recording, redaction: Redaction) -> list[dict[str, Any]]:
        versions = {
            "responses-gateway": __version__,
            "python": platform.python_version(),
            "aiohttp": aiohttp.__version__,
            "msgspec": msgspec.__version__,
        }
        began = datetime.fromtimestamp(recording.began, UTC).isoformat()
        head = {"record": FORMAT, "began": began, "versions": versions, "settings": recording.settings}
        head |= {"headers": recording.headers, "tokenizer": self._tokenizer}
        if recording.websocket:
            head["websocket"] = True
        if recording.api != "responses":
            head["api"] = recording.api
        lines: list[dict[str, Any]] = [head]
        if recording.request is not None:
            lines.append({"request": redaction.value(recording.request)})
        if recording.context is not None:
            lines.append({"context": redaction.value(recording.context)})
        if recording.chat is not None:
            lines.append({"chat": redaction.value(recording.chat), "response_id": recording.response_id, **recording.begun})
        if recording.compacted_chat is not None:
            lines.append({"compacted": redaction.value(recording.compacted_chat)})
        lines.extend({"asked_again": redaction.value(chat)} for chat in recording.later_chats)
        if recording.refusal is not None:
            lines.append({"backend": recording.refusal})
        lines.extend(_call_line(*call) for call in recording.calls)
        error = error_fields(recording.error)
        end = {"outcome": recording.outcome, "error": error, "truncated": recording.truncated}
        lines.append({"end": end | {"beyond": True} if recording.beyond else end})
        return lines


def error_fields(error: ApiError | None) -> dict[str, Any] | None:
    """Return an error as a record has it."""
    if error is None:
        return None
    return {"status": error.status, **error.body()["error"], "retry_after": error.retry_after}


def _call_line(call: Call, sent: bytes) -> dict[str, Any]:
    line: dict[str, Any] = {"call": call.method, "at": call.at}
    if call.argument is not None:
        line["data"] = as_text(call.argument)
    if call.sealed:
        line["sealed"] = call.sealed
    return {**line, "sent": as_text(sent)}
