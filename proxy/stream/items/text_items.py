"""The reasoning and message items, and the pen they write with: each able to open, grow and close itself on a stream.

Events of an item: `output_item.added`, for a text its part, deltas, the dones in the reverse order, `output_item.done`.
The JSON of the closed item is built once; the terminal event and the stored response take that very text.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from proxy.stream import writer
from proxy.stream.writer import quote
from proxy.wire.chat import TokenLogprob

#: Pieces of a text that are kept apart at most.
_FOLD = 512

ItemStatus = Literal["completed", "incomplete"]

#: What OpenAI writes for a token that was out of the question; JSON has no -Infinity, and no other infinity.
_LEAST_LOGPROB = -9999.0


class Pen:
    """The stream being written: event texts not yet taken, the next sequence number, the JSON of the items done."""

    __slots__ = ("characters", "deltas", "done", "index", "items", "out", "seq")

    def __init__(self) -> None:
        self.out: list[bytes] = []
        self.seq = 0
        self.index = 0  # output_index of the next item
        self.done: list[str] = []
        self.items: dict[str, int] = {}  # items closed, by type
        self.deltas: dict[str, int] = {}  # delta events written, by event type
        self.characters: dict[str, int] = {}  # length of the text written, by kind

    def write(self, event: str) -> None:
        """Append one event, which was built with `self.seq`. A lone surrogate must not break the stream."""
        self.out.append(event.encode("utf-8", "replace"))
        self.seq += 1

    def add(self, item: str) -> int:
        """`output_item.added`; returns the item's output_index."""
        index = self.index
        self.index += 1
        self.write(writer.item_event("response.output_item.added", self.seq, index, item))
        return index

    def finish(self, kind: str, index: int, item: str) -> None:
        """`output_item.done`: the item now belongs to the output."""
        self.write(writer.item_event("response.output_item.done", self.seq, index, item))
        self.done.append(item)
        self.items[kind] = self.items.get(kind, 0) + 1

    def measure(self, kind: str, text: str) -> None:
        """Book the length of a closed item's text."""
        self.characters[kind] = self.characters.get(kind, 0) + len(text)

    def count(self, event: str, deltas: int) -> None:
        """Book the delta events of a closed item."""
        if deltas:
            self.deltas[event] = self.deltas.get(event, 0) + deltas


class ReasoningItem:
    """`reasoning`: the text as content, and the same text once more as a summary part where one was asked for."""

    __slots__ = ("_event", "_folded", "_head", "_id", "_index", "_pieces", "_seal", "_summary_head")

    def __init__(self, pen: Pen, item_id: str, *, mirror: bool, event: str, seal: Callable[[str], str] | None) -> None:
        """`event` is the event name without `.delta`/`.done` (`response.reasoning_text`, or the specification's); `seal` makes
        the item's `encrypted_content` of the text, where that was asked for."""
        self._seal = seal
        self._id = item_id
        self._event = event
        self._pieces: list[str] = []
        self._folded = 0  # pieces that were joined with others since
        self._index = index = pen.add(
            f'{{"type":"reasoning","id":"{item_id}","status":"in_progress","summary":[],"content":[]}}'
        )
        self._head = writer.delta_head(f"{event}.delta", item_id, index, ',"content_index":0')
        part = _reasoning_part("")
        pen.write(writer.content_part("response.content_part.added", pen.seq, item_id, index, part))
        self._summary_head = b""
        if mirror:
            kind = "response.reasoning_summary_text.delta"
            self._summary_head = writer.delta_head(kind, item_id, index, ',"summary_index":0')
            added = "response.reasoning_summary_part.added"
            pen.write(writer.summary_part(added, pen.seq, item_id, index, ""))

    def append(self, pen: Pen, text: str, logprobs: list[TokenLogprob] | None) -> None:
        """A piece of thinking."""
        self.fold()
        pen.out.append(self.more(pen, text, writer.quoted(text)))

    def fold(self) -> None:
        """Keep many pieces as few. To be called now and then by who calls `more`."""
        self._pieces, self._folded = folded(self._pieces, self._folded)

    def more(self, pen: Pen, text: str, quoted: bytes) -> bytes:
        """The events for a piece of thinking, which is `quoted` as JSON, for the caller to send."""
        self._pieces.append(text)
        seq = pen.seq
        if not self._summary_head:
            pen.seq = seq + 1
            return writer.DELTA % (self._head, seq, quoted)
        pen.seq = seq + 2
        return writer.DELTA % (self._head, seq, quoted) + writer.DELTA % (self._summary_head, seq + 1, quoted)

    def close(self, pen: Pen, status: ItemStatus) -> None:
        """The dones, and the item itself."""
        text = "".join(self._pieces)
        item_id, index, summary = self._id, self._index, ""
        done = writer.text_done(f"{self._event}.done", pen.seq, item_id, index, "text", text, ',"content_index":0')
        pen.write(done)
        part = _reasoning_part(text)
        pen.write(writer.content_part("response.content_part.done", pen.seq, item_id, index, part))
        if self._summary_head:
            kind = "response.reasoning_summary_text.done"
            pen.write(writer.text_done(kind, pen.seq, item_id, index, "text", text, ',"summary_index":0'))
            pen.write(writer.summary_part("response.reasoning_summary_part.done", pen.seq, item_id, index, text))
            pen.count("response.reasoning_summary_text.delta", self._folded + len(self._pieces))
            summary = f'{{"type":"summary_text","text":{quote(text)}}}'
        pen.count(f"{self._event}.delta", self._folded + len(self._pieces))
        pen.measure("reasoning", text)
        head = f'{{"type":"reasoning","id":"{item_id}","status":"{status}"'
        sealed = f',"encrypted_content":{quote(self._seal(text))}' if self._seal is not None else ""
        pen.finish("reasoning", index, f'{head},"summary":[{summary}],"content":[{part}]{sealed}}}')


class MessageItem:
    """`message` with one part: `output_text` or `refusal`."""

    __slots__ = ("_folded", "_head", "_id", "_index", "_logprobs", "_part", "_pieces")

    def __init__(self, pen: Pen, item_id: str, part: Literal["output_text", "refusal"]) -> None:
        self._id = item_id
        self._part = part
        self._pieces: list[str] = []
        self._folded = 0  # pieces that were joined with others since
        self._logprobs: list[TokenLogprob] = []
        self._index = index = pen.add(
            f'{{"type":"message","id":"{item_id}","status":"in_progress","role":"assistant","content":[]}}'
        )
        fields = ',"content_index":0'
        if part == "output_text":
            fields = ',"content_index":0,"logprobs":[]'
        self._head = writer.delta_head(f"response.{part}.delta", item_id, index, fields)
        added = "response.content_part.added"
        pen.write(writer.content_part(added, pen.seq, item_id, index, self._part_json("", "[]")))

    def append(self, pen: Pen, text: str, logprobs: list[TokenLogprob] | None) -> None:
        """A piece of the text."""
        self.fold()
        if logprobs:
            self._pieces.append(text)
            self._logprobs += logprobs
            tokens = b'"logprobs":' + _logprobs_json(logprobs).encode("utf-8", "replace")
            pen.out.append(writer.DELTA % (self._head.replace(b'"logprobs":[]', tokens, 1), pen.seq, writer.quoted(text)))
            pen.seq += 1
        else:
            pen.out.append(self.more(pen, text, writer.quoted(text)))

    def fold(self) -> None:
        """Keep many pieces as few. To be called now and then by who calls `more`."""
        self._pieces, self._folded = folded(self._pieces, self._folded)

    def more(self, pen: Pen, text: str, quoted: bytes) -> bytes:
        """The event for a piece of the text, which is `quoted` as JSON, for the caller to send."""
        self._pieces.append(text)
        seq = pen.seq
        pen.seq = seq + 1
        return writer.DELTA % (self._head, seq, quoted)

    def close(self, pen: Pen, status: ItemStatus) -> None:
        """The dones, and the item itself."""
        text = "".join(self._pieces)
        item_id, index, kind = self._id, self._index, self._part
        logprobs = _logprobs_json(self._logprobs)
        part = self._part_json(text, logprobs)
        member, fields = "refusal", ',"content_index":0'
        if kind == "output_text":
            member, fields = "text", f',"content_index":0,"logprobs":{logprobs}'
        pen.write(writer.text_done(f"response.{kind}.done", pen.seq, item_id, index, member, text, fields))
        pen.write(writer.content_part("response.content_part.done", pen.seq, item_id, index, part))
        pen.count(f"response.{kind}.delta", self._folded + len(self._pieces))
        pen.measure("text" if kind == "output_text" else "refusal", text)
        head = f'{{"type":"message","id":"{item_id}","status":"{status}","role":"assistant"'
        pen.finish("message", index, f'{head},"content":[{part}]}}')

    def _part_json(self, text: str, logprobs: str) -> str:
        if self._part == "refusal":
            return f'{{"type":"refusal","refusal":{quote(text)}}}'
        return f'{{"type":"output_text","text":{quote(text)},"annotations":[],"logprobs":{logprobs}}}'


def folded(pieces: list[str], before: int) -> tuple[list[str], int]:
    """Many small strings take far more memory than one: join them now and then. Also how many have been joined away."""
    if len(pieces) < _FOLD:
        return pieces, before
    return ["".join(pieces)], before + len(pieces) - 1


def _reasoning_part(text: str) -> str:
    return f'{{"type":"reasoning_text","text":{quote(text)}}}'


def _logprobs_json(logprobs: list[TokenLogprob]) -> str:
    if not logprobs:
        return "[]"
    return writer.json_text(
        [
            {
                "token": entry.token,
                "logprob": _finite(entry.logprob),
                "bytes": entry.bytes or [],
                "top_logprobs": [
                    {"token": top.token, "logprob": _finite(top.logprob), "bytes": top.bytes or []}
                    for top in entry.top_logprobs or ()
                ],
            }
            for entry in logprobs
        ]
    )


def _finite(logprob: float) -> float:
    return min(-_LEAST_LOGPROB, max(_LEAST_LOGPROB, logprob))
