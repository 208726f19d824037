"""Interim: the interface that the translator is about to have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from proxy.stream.compactor import Compactor
from proxy.stream.deferred_calls import JudgedTranslator
from proxy.stream.options import Clock, StreamOptions
from proxy.stream.writer import quoted
from proxy.wire.errors import ApiError

Note = Callable[[str, "bytes | ApiError | None", bytes], None]
_OUTPUT = '"output":['


class Translator:
    def __init__(self, options: StreamOptions, clock: Clock, note: Note | None = None) -> None:
        self._inner: Any = (
            Compactor(options, clock, options.compaction) if options.compaction else JudgedTranslator(options, clock)
        )
        self._note = note
        self._stream_id = options.stream_id
        self._last = b""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    @property
    def defect(self) -> Exception | None:
        return self._inner.defect  # type: ignore[no-any-return]

    @defect.setter
    def defect(self, value: Exception | None) -> None:
        self._inner.defect = value

    def _done(self, name: str, data: Any, events: bytes) -> bytes:
        if self._stream_id is not None:
            events = events.replace(b"}\n\n", b',"stream_id":%b}\n\n' % quoted(self._stream_id))
        if self._note is not None:
            self._note(name, data, events)
        if self._inner.ended and not self._last:
            at = events.rfind(b"event: response.%b\n" % self._inner.status.encode())
            events, self._last = events[:at], events[at:]
        return events

    def start(self) -> bytes:
        return self._done("start", None, self._inner.start())

    def queue(self) -> bytes:
        return self._done("queue", None, self._inner.queue())

    def feed(self, data: bytes) -> bytes:
        return self._done("feed", data, self._inner.feed(data))

    def feed_completion(self, data: bytes) -> bytes:
        return self._done("feed_completion", data, self._inner.feed_completion(data))

    def finish(self) -> bytes:
        return self._done("finish", None, self._inner.finish())

    def keep_alive(self) -> bytes:
        return self._done("keep_alive", None, self._inner.keep_alive())

    def fail(self, error: ApiError) -> bytes:
        return self._done("fail", error, self._inner.fail(error))

    def insert(self, kind: str, item: str) -> bytes:
        return self._done("insert", item.encode(), self._inner.insert(kind, item))

    def judge(self, replacement: str | None) -> bytes:
        data = None if replacement is None else replacement.encode("utf-8", "replace")
        return self._done("judge", data, self._inner.judge(replacement))

    def terminal(self, *, stored: bool | None = None) -> bytes:
        text = self._last.decode()
        return (self._unstored(text) if stored is False else text).encode()

    def response(self, *, stored: bool | None = None, status: str | None = None) -> str:
        text: str = self._inner.response_json
        if status == "cancelled":
            text = text.replace('"status":"failed"', '"status":"cancelled"', 1)
            before, _, after = text.partition(',"error":')
            rest = after[after.index(',"incomplete_details":') :]
            text = f'{before},"error":null{rest}'
        return self._unstored(text) if stored is False else text

    def _unstored(self, text: str) -> str:
        before, mark, after = text.rpartition(',"store":true,"background":')
        return before + ',"store":false,"background":' + after if mark else text

    def around(self, *, status: str | None = None) -> tuple[str, str]:
        return self._around(self.response(status=status), self._inner.output)

    def first_around(self) -> tuple[str, str]:
        return self._around(self._inner.first_json, [])

    def _around(self, response: str, output: list[str]) -> tuple[str, str]:
        head, mark, rest = response.partition(_OUTPUT)
        return head + mark, rest[len(",".join(output)) :]
