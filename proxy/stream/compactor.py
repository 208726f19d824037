"""The answer to a compaction: whatever the model writes becomes one sealed `compaction` item."""

from __future__ import annotations

import json
from collections.abc import Callable

from proxy.stream.options import Clock, StreamOptions
from proxy.stream.plain_translator import PlainTranslator
from proxy.stream.response import Status
from proxy.stream.writer import quote
from proxy.wire.errors import server_error

#: A summary in, what stands in `encrypted_content` out.
SealText = Callable[[str], str]


class Compactor(PlainTranslator):
    """A translator that keeps the model's own events to itself and sends the compaction item in their stead."""

    def __init__(self, options: StreamOptions, clock: Clock, seal: SealText) -> None:
        super().__init__(options, clock)
        self._seal = seal
        self._item_id = f"cmp_{options.response_id.removeprefix('resp_')}"
        self._sent = 0  # the number of the next event that the client sees

    def queue(self) -> bytes:
        """As that of a translator."""
        events = super().queue()
        self._sent = self._pen.seq
        return events

    def start(self) -> bytes:
        """As that of a translator."""
        events = super().start()
        self._sent = self._pen.seq
        return events

    def feed(self, data: bytes) -> bytes:
        """Nothing, until the summary is complete."""
        events = super().feed(data)
        return events if self.ended else b""

    def keep_alive(self) -> bytes:
        """`response.in_progress`, with nothing done yet."""
        pen = self._pen
        inner = pen.seq, pen.done
        pen.seq, pen.done = self._sent, []
        events = super().keep_alive()
        self._sent = pen.seq
        pen.seq, pen.done = inner
        return events

    def _terminate(self, status: Status) -> None:
        pen = self._pen
        summary = _text_of(pen.done)
        pen.out.clear()
        pen.done.clear()
        pen.items.clear()
        pen.deltas.clear()
        pen.seq, pen.index = self._sent, 0
        if status != "failed" and not summary:
            self.error, status = server_error("The model wrote no summary."), "failed"
        if status != "failed":
            status, self.incomplete_reason = "completed", None  # a summary that was cut is better than none
            head = f'{{"type":"compaction","id":"{self._item_id}","encrypted_content":'
            item = f"{head}{quote(self._seal(summary))}}}"
            index = pen.add(item)
            pen.finish("compaction", index, item)
        super()._terminate(status)


def _text_of(items: list[str]) -> str:
    """The text of the messages; a model that only thought has at least thoughts."""
    decoded = [json.loads(item) for item in items]
    for kind, part_kind in (("message", "output_text"), ("reasoning", "reasoning_text")):
        parts = [part for item in decoded if item["type"] == kind for part in item["content"]]
        text = "\n\n".join(part["text"] for part in parts if part["type"] == part_kind).strip()
        if text:
            return text
    return ""
