"""The texts of an answer: reasoning, and messages with one part. In a compaction, whatever the model writes becomes one sealed
`compaction` item. What a server wants back of a turn, though it means nothing here, is kept with them: OpenRouter's
`reasoning_details` and, for clients that keep nothing of a call but what the API knows, the `extra_content` of calls."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from responses_gateway.stream.writer.interface import EndedText, EventWriter, ItemStatus, Phase, TextKind
from responses_gateway.wire.chat import TokenLogprob
from responses_gateway.wire.json_text import json_text, member_json

# Details that come in pieces, and the member that has them.
_TEXTS = {"reasoning.text": "text", "reasoning.summary": "summary"}
# Details that only repeat the thought have no more than these members.
_READABLE = frozenset({"type", "text", "summary", "format", "index", "id"})
# Characters of all the details of a turn: a thought has fewer, and its signature some thousands.
_MOST = 4 * 1024 * 1024
_PIECES = 512
# Begins what is sealed where that is more than a thought, which no model begins like that.
_MARK = "\0"
_MOST_PIECES = 512  # pieces of a text that are kept apart at most


class ReasoningDetails:
    """Takes details as they come, and gives them out as members of an item. What is more than can be kept is dropped."""

    __slots__ = ("_calls", "_entries", "_first", "_left", "_opaque", "_pieces", "_told")

    def __init__(self) -> None:
        self._left = _MOST
        self._told: dict[str, str] = {}  # the texts of earlier items, by the types and indices of their details
        self._forget()

    def _forget(self) -> None:
        self._calls: dict[str, Any] = {}  # the `extra_content` of calls, by their ids
        self._entries: list[dict[str, Any]] = []
        self._first: dict[str, dict[str, Any]] = {}  # of these the first one of each text
        self._pieces: list[str] = []  # of the text of the last one
        self._opaque = False  # there is more than the thought itself

    def add(self, details: object) -> None:
        """Take the details of a chunk."""
        for entry in details if isinstance(details, list) else ():
            if isinstance(entry, dict):
                self._add({name: value for name, value in entry.items() if value is not None})

    def add_call(self, call_id: str, extra: str) -> None:
        """Take the `extra_content` of a call, as JSON."""
        self._calls[call_id] = json.loads(extra)

    def _add(self, entry: dict[str, Any]) -> None:
        self._left -= len(json_text(entry))
        if self._left < 0:
            return
        name = _TEXTS.get(str(entry.get("type")), "")
        piece = entry.get(name, "") if name else ""
        self._opaque = self._opaque or not entry.keys() <= _READABLE or not name
        key = _key(entry)
        if name and isinstance(piece, str) and self._entries and _key(self._entries[-1]) == key:
            entry.pop(name, None)
            self._entries[-1].update(entry)
        else:
            self._end_text()
            known = self._first.get(key) if name and not piece else None
            if known is not None:  # the signature of a text behind which another one stands
                known.update({member: value for member, value in entry.items() if member != name})
                return
            self._entries.append(entry)
            self._first.setdefault(key, entry)
            piece = piece or self._told.get(key, "")  # the signature of one that an earlier item has
        if piece and isinstance(piece, str):
            self._pieces.append(piece)
            if len(self._pieces) == _PIECES:  # many small strings take far more memory than one
                self._pieces = ["".join(self._pieces)]

    def _end_text(self) -> None:
        if self._pieces:
            self._entries[-1][_TEXTS[self._entries[-1]["type"]]] = "".join(self._pieces)
            self._pieces = []

    def take(self) -> dict[str, Any]:
        """Return all that came since the last time, as members of an item of reasoning; empty if that was nothing."""
        self._end_text()
        for entry in self._entries:
            if (name := _TEXTS.get(str(entry.get("type")))) and (text := entry.get(name)):
                self._told[_key(entry)] = text
        wanted: dict[str, Any] = {"reasoning_details": self._entries} if self._opaque and self._left >= 0 else {}
        if self._calls:
            wanted["extra_content"] = self._calls
        self._forget()
        return wanted

    def write(self, writer: EventWriter, new_id: Callable[[str], str], seal: Callable[[str], str] | None) -> None:
        """Write what came without a thought, or behind it, as an item of its own."""
        wanted = self.take()
        if wanted:
            sealed = None if seal is None else seal(to_seal("", wanted))
            writer.write_details(new_id("rs"), member_json(wanted, "reasoning_details"), sealed)


def _key(entry: Mapping[str, Any]) -> str:
    """Return what tells of which text a detail is a piece."""
    return json_text([entry.get("type"), entry.get("index")])


def to_seal(text: str, wanted: Mapping[str, Any]) -> str:
    """Return what the encrypted content of a thought has in it."""
    return _MARK + json_text({**_thought(text), **wanted}) if wanted else text


def sealed_members(sealed: str) -> dict[str, Any]:
    """Return the members of an item of reasoning that were sealed like that."""
    return json.loads(sealed.removeprefix(_MARK)) if sealed.startswith(f"{_MARK}{{") else _thought(sealed)


def _thought(text: str) -> dict[str, Any]:
    return {"content": [{"type": "reasoning_text", "text": text}] if text else []}


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
        in_json = member_json(wanted, "reasoning_details") if wanted else ""
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


def is_message(item: str) -> bool:
    """Tell whether an item, as JSON, is a message."""
    return item.startswith('{"type":"message"')


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
