"""The reasoning and message items, each able to open, grow and close itself on a stream.

Events of an item: `output_item.added`, for a text its part, deltas, the dones in the reverse order, `output_item.done`.
The JSON of the closed item is built once; the terminal event and the stored response take that very text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias

from responses_gateway.stream.writer import EventWriter, delta_head, json_text, quote, quoted
from responses_gateway.wire.chat import TokenLogprob

ItemStatus: TypeAlias = Literal["completed", "incomplete"]

# Pieces of a text that are kept apart at most.
_MOST_PIECES = 512
# What OpenAI writes for a token that was out of the question; JSON has no -Infinity, and no other infinity.
_LEAST_LOGPROB = -9999.0


class ReasoningItem:
    """`reasoning`: the text as content, and the same text once more as a summary part where one was asked for."""

    annotations: Sequence[object] = ()

    __slots__ = ("_compacted", "_event", "_head", "_id", "_index", "_pieces", "_seal", "_summary_head")

    def __init__(
        self, writer: EventWriter, item_id: str, *, mirror: bool, event: str, seal: Callable[[str], str] | None
    ) -> None:
        """Add the item to the stream. `event` is the event name without `.delta`/`.done` (`response.reasoning_text`, or the
        specification's); `seal` makes the item's `encrypted_content` of the text, where that was asked for."""
        self._seal = seal
        self._id = item_id
        self._event = event
        self._pieces: list[str] = []
        self._compacted = 0  # pieces that were joined to others
        added = f'{{"type":"reasoning","id":"{item_id}","status":"in_progress","summary":[],"content":[]}}'
        self._index = index = writer.add_item(added)
        self._head = delta_head(f"{event}.delta", item_id, index, ',"content_index":0')
        writer.write_part("added", item_id, index, _reasoning_part(""))
        self._summary_head = b""
        if mirror:
            kind = "response.reasoning_summary_text.delta"
            self._summary_head = delta_head(kind, item_id, index, ',"summary_index":0')
            writer.write_summary_part("added", item_id, index, "")

    @property
    def text(self) -> str:
        """What was written so far."""
        return "".join(self._pieces)

    def append(self, writer: EventWriter, text: str, logprobs: list[TokenLogprob] | None) -> None:
        """Write a piece of the thinking."""
        self.compact_pieces()
        writer.events.append(self.append_quoted(writer, text, quoted(text)))

    def compact_pieces(self) -> None:
        """Join many pieces. To be called now and then by callers of `append_quoted`."""
        if len(self._pieces) >= _MOST_PIECES:  # many small strings take far more memory than one
            self._compacted += len(self._pieces) - 1
            self._pieces = ["".join(self._pieces)]

    def append_quoted(self, writer: EventWriter, text: str, quoted: bytes) -> bytes:
        """Add a piece of the thinking and return its events, for the caller to send; `quoted` is the piece as JSON."""
        self._pieces.append(text)
        number = writer.next_number
        if not self._summary_head:
            writer.next_number = number + 1
            return writer.delta % (self._head, number, quoted)
        writer.next_number = number + 2
        return writer.delta % (self._head, number, quoted) + writer.delta % (self._summary_head, number + 1, quoted)

    def close(self, writer: EventWriter, status: ItemStatus) -> None:
        """Write the dones, and the item itself."""
        text = "".join(self._pieces)
        item_id = self._id
        index = self._index
        deltas = self._compacted + len(self._pieces)
        part = _reasoning_part(text)
        writer.write_text_done(f"{self._event}.done", item_id, index, "text", text, ',"content_index":0')
        writer.write_part("done", item_id, index, part)
        summary = ""
        if self._summary_head:
            kind = "response.reasoning_summary_text"
            writer.write_text_done(f"{kind}.done", item_id, index, "text", text, ',"summary_index":0')
            writer.write_summary_part("done", item_id, index, text)
            writer.count_deltas(f"{kind}.delta", deltas)
            summary = f'{{"type":"summary_text","text":{quote(text)}}}'
        writer.count_deltas(f"{self._event}.delta", deltas)
        writer.count_characters("reasoning", text)
        head = f'{{"type":"reasoning","id":"{item_id}","status":"{status}"'
        sealed = f',"encrypted_content":{quote(self._seal(text))}' if self._seal is not None else ""
        writer.finish_item("reasoning", index, f'{head},"summary":[{summary}],"content":[{part}]{sealed}}}')


class MessageItem:
    """`message` with one part: `output_text` or `refusal`."""

    __slots__ = ("_compacted", "_head", "_id", "_index", "_logprobs", "_part", "_pieces", "annotations")

    def __init__(self, writer: EventWriter, item_id: str, part: Literal["output_text", "refusal"]) -> None:
        self._id = item_id
        self._part = part
        self._pieces: list[str] = []
        self._compacted = 0  # pieces that were joined to others
        self._logprobs: list[TokenLogprob] = []
        self.annotations: list[dict[str, object]] = []
        added = f'{{"type":"message","id":"{item_id}","status":"in_progress","role":"assistant","content":[]}}'
        self._index = index = writer.add_item(added)
        fields = ',"content_index":0'
        if part == "output_text":
            fields = ',"content_index":0,"logprobs":[]'
        self._head = delta_head(f"response.{part}.delta", item_id, index, fields)
        writer.write_part("added", item_id, index, self._part_json("", "[]"))

    @property
    def text(self) -> str:
        """What was written so far."""
        return "".join(self._pieces)

    def end(self, longest: int) -> tuple[str, int]:
        """Return the last characters of what was written so far, and its length. Does not take longer for a long text."""
        found: list[str] = []
        for piece in reversed(self._pieces):
            found.append(piece[-longest:])
            longest -= len(found[-1])
            if not longest:
                break
        return "".join(reversed(found)), sum(map(len, self._pieces))

    def annotate(self, writer: EventWriter, annotation: dict[str, object]) -> None:
        """Write an annotation of the text."""
        place = f'"item_id":"{self._id}","output_index":{self._index},"content_index":0'
        which = f'"annotation_index":{len(self.annotations)},"annotation":{json_text(annotation)}'
        writer.write("response.output_text.annotation.added", f"{place},{which}")
        self.annotations.append(annotation)

    def append(self, writer: EventWriter, text: str, logprobs: list[TokenLogprob] | None) -> None:
        """Write a piece of the text."""
        self.compact_pieces()
        if logprobs:
            self._pieces.append(text)
            self._logprobs += logprobs
            fields = f',"content_index":0,"logprobs":{_logprobs_json(logprobs)}'
            head = delta_head("response.output_text.delta", self._id, self._index, fields)
            writer.events.append(writer.delta % (head, writer.next_number, quoted(text)))
            writer.next_number += 1
        else:
            writer.events.append(self.append_quoted(writer, text, quoted(text)))

    def compact_pieces(self) -> None:
        """Join many pieces. To be called now and then by callers of `append_quoted`."""
        if len(self._pieces) >= _MOST_PIECES:
            self._compacted += len(self._pieces) - 1
            self._pieces = ["".join(self._pieces)]

    def append_quoted(self, writer: EventWriter, text: str, quoted: bytes) -> bytes:
        """Add a piece of the text and return its event, for the caller to send; `quoted` is the piece as JSON."""
        self._pieces.append(text)
        number = writer.next_number
        writer.next_number = number + 1
        return writer.delta % (self._head, number, quoted)

    def close(self, writer: EventWriter, status: ItemStatus) -> None:
        """Write the dones, and the item itself."""
        text = "".join(self._pieces)
        item_id = self._id
        index = self._index
        kind = self._part
        logprobs = _logprobs_json(self._logprobs)
        part = self._part_json(text, logprobs)
        if kind == "output_text":
            fields = f',"content_index":0,"logprobs":{logprobs}'
            writer.write_text_done("response.output_text.done", item_id, index, "text", text, fields)
        else:
            writer.write_text_done("response.refusal.done", item_id, index, "refusal", text, ',"content_index":0')
        writer.write_part("done", item_id, index, part)
        writer.count_deltas(f"response.{kind}.delta", self._compacted + len(self._pieces))
        writer.count_characters("text" if kind == "output_text" else "refusal", text)
        head = f'{{"type":"message","id":"{item_id}","status":"{status}","role":"assistant"'
        writer.finish_item("message", index, f'{head},"content":[{part}]}}')

    def _part_json(self, text: str, logprobs: str) -> str:
        if self._part == "refusal":
            return f'{{"type":"refusal","refusal":{quote(text)}}}'
        annotations = json_text(self.annotations) if self.annotations else "[]"
        return f'{{"type":"output_text","text":{quote(text)},"annotations":{annotations},"logprobs":{logprobs}}}'


def _reasoning_part(text: str) -> str:
    return f'{{"type":"reasoning_text","text":{quote(text)}}}'


def _logprobs_json(logprobs: list[TokenLogprob]) -> str:
    if not logprobs:
        return "[]"
    return json_text(
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
