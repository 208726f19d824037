"""The texts of an answer: reasoning, and messages with one part. In a compaction, whatever the model writes becomes one sealed
`compaction` item."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from responses_gateway.stream.items.reasoning_details import ReasoningDetails, details_json, to_seal
from responses_gateway.stream.writer.interface import EndedText, EventWriter, ItemStatus, Phase, TextKind
from responses_gateway.wire.chat import TokenLogprob

# Pieces of a text that are kept apart at most.
_MOST_PIECES = 512


class TextItem:
    """A text that is open: it grows, and closes. What adds to its `pieces` itself, writes them at its `place`."""

    __slots__ = ("_compacted", "_logprobs", "_seal", "annotations", "kind", "pieces", "place", "writer")

    def __init__(
        self, writer: EventWriter, kind: TextKind, item_id: str, *, seal: Callable[[str], str] | None = None, phase: Phase = ""
    ) -> None:
        """Begin the item. `seal` makes the `encrypted_content` of a text of reasoning, where that was asked for; `phase` is
        that of a message."""
        self.kind = kind
        self.annotations: list[dict[str, Any]] = []
        self.writer = writer
        self._seal = seal
        self.pieces: list[str] = []
        self._compacted = 0  # pieces that were joined to others
        self._logprobs: list[TokenLogprob] = []
        self.place = writer.open_text(kind, item_id, phase)

    @property
    def text(self) -> str:
        """What was written so far."""
        return "".join(self.pieces)

    def end(self, longest: int) -> tuple[str, int]:
        """Return the last characters of what was written so far, and its length. Does not take longer for a long text."""
        pieces: list[str] = []
        for piece in reversed(self.pieces):
            pieces.append(piece[-longest:])
            longest -= len(pieces[-1])
            if not longest:
                break
        return "".join(reversed(pieces)), sum(map(len, self.pieces))

    def append(self, text: str, logprobs: list[TokenLogprob] | None) -> None:
        """Write a piece of the text; only a message has log probabilities."""
        self.compact_pieces()
        self.pieces.append(text)
        if logprobs and self.kind != "reasoning":
            self._logprobs += logprobs
            self.writer.write_logprobs_delta(self.place, text, logprobs)
        else:
            self.writer.write_delta(self.place, text)

    def compact_pieces(self) -> None:
        """Join many pieces. To be called now and then by those who add some themselves."""
        if len(self.pieces) >= _MOST_PIECES:  # many small strings take far more memory than one
            self._compacted += len(self.pieces) - 1
            self.pieces = ["".join(self.pieces)]

    def annotate(self, annotation: dict[str, Any]) -> None:
        """Write an annotation of the text."""
        self.writer.annotate(self.place, len(self.annotations), annotation)
        self.annotations.append(annotation)

    def close(self, status: ItemStatus, details: ReasoningDetails | None = None) -> None:
        """End the item. `details` go with a thought."""
        text = self.text
        wanted = {} if details is None else details.take()
        deltas = self._compacted + len(self.pieces)
        sealed = None if self._seal is None else self._seal(to_seal(text, wanted) if wanted else text)
        in_json = details_json(wanted) if wanted else ""
        ended = EndedText(status, text, deltas, self._logprobs, self.annotations, sealed, in_json)
        self.writer.close_text(self.place, ended)


def begin_compaction(writer: EventWriter, response_id: str, hidden: EventWriter) -> None:
    """Tell that the summary is being written, once the model's own items, which nobody gets, have begun in `hidden`."""
    if hidden.next_index:
        writer.begin_summary(summary_id(response_id))


def write_compaction(writer: EventWriter, response_id: str, output: list[str], seal: Callable[[str], str]) -> bool:
    """Write the item, given the model's own items as JSON, which are not sent. Return False if the model wrote no text."""
    summary = _text_of(output)
    if summary:
        writer.write_summary(summary_id(response_id), seal(summary))
    return bool(summary)


def summary_id(response_id: str) -> str:
    """Return the id of the item that a response makes of a context."""
    return f"cmp_{response_id.removeprefix('resp_')}"


def _text_of(items: list[str]) -> str:
    """Return the text of the messages; a model that only thought has at least thoughts."""
    decoded = [json.loads(item) for item in items]
    for kind, part_kind in (("message", "output_text"), ("reasoning", "reasoning_text")):
        parts = [part for item in decoded if item["type"] == kind for part in item["content"]]
        text = "\n\n".join(part["text"] for part in parts if part["type"] == part_kind).strip()
        if text:
            return text
    return ""
