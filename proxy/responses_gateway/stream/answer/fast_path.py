"""The usual chunk: it continues the text that is open, and brings nothing else.

Such chunks differ in their text alone, and in the ids and log probabilities of its tokens if the server was asked for them. So
what stands around these is learned from one chunk (`ChunkPattern`), and those that follow are recognised by comparing bytes:
nothing else of them is decoded; text without ids only once for all the chunks that one read brought. What tells tokens waits
as it came, because decoding that of many chunks together takes a fraction of the time. A chunk that looks different in any
way goes the ordinary way."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import msgspec

from responses_gateway.stream.continuation.ledger import TokenLedger
from responses_gateway.stream.items.text_items import TextItem
from responses_gateway.stream.lifecycle.machine import Lifecycle, State
from responses_gateway.stream.reading.leading_thought import LeadingThoughtDetector
from responses_gateway.stream.reading.markup import IsPlain, Markup
from responses_gateway.stream.sampling import SampledCall, SampledLogprob
from responses_gateway.stream.tokens.counter import TokenCounter
from responses_gateway.stream.tokens.meter import Kind
from responses_gateway.wire.chat import REASONING, Choice, Chunk, Delta, MalformedChunk, decode_chunk
from responses_gateway.wire.json_text import quoted
from responses_gateway.wire.sse import SSEDecoder

_NAMES = {"reasoning": REASONING, "text": ("content",)}

_IDS = re.compile(rb'"token_ids": ?\[')
_DETAILS = re.compile(rb'"reasoning_(?:details":\s*\[\s*[^\]\s]|opaque":\s*")')
_END = b"\n\n"  # of an event

_decode = msgspec.json.Decoder(str).decode
_decode_ids = msgspec.json.Decoder(list[int]).decode

_MOST_WAITING = 64  # chunks whose tokens wait for one another
_LONG = 8192  # bytes of a chunk behind which none waits, because a hostile server's would fill memory


class _Logprobs(msgspec.Struct, gc=False):
    content: list[SampledLogprob]


_decode_rows = msgspec.json.Decoder(list[tuple[str, _Logprobs | None, list[int]]]).decode


# What one payload brought, as it came: text, log probabilities if there are, ids. A plain tuple, because each chunk has one.
TokenParts: TypeAlias = tuple[bytes, bytes, bytes]


class _RawChoice(msgspec.Struct, gc=False):
    logprobs: msgspec.Raw = msgspec.Raw()


class _RawChunk(msgspec.Struct, gc=False):
    choices: list[_RawChoice]


_decode_raw = msgspec.json.Decoder(_RawChunk).decode


@dataclass(frozen=True, slots=True)
class ChunkPattern:
    """What stands around the text in one payload of a stream, and in the event that it comes in. Where ids come behind the
    text, `between` the two is what has to stand there, with the bracket that opens them; else it is empty. Where log
    probabilities come between these two, `between` stands before them and `second` behind."""

    head: bytes
    between: bytes
    second: bytes
    before: bytes  # the head, and the beginning of the event
    behind: bytes  # the tail of the payload, and the end of the event
    begin: int  # where the text begins in an event
    end: int  # where it ends, counted from the end of the event
    around: int  # how many bytes of an event are not text

    def texts(self, events: bytes) -> bytes:
        """Return the texts of several events without ids, joined. Bytes of an event that does not fit stay in it."""
        return b"".join([event.removeprefix(self.before) for event in events.split(self.behind)])

    def inside(self, payload: bytes) -> bytes:
        """Return what stands between head and tail of a payload; nothing if it has others."""
        tail = self.behind.removesuffix(_END)
        fits = payload.startswith(self.head) and payload.endswith(tail)
        return payload[len(self.head) : -len(tail)] if fits else b""

    def parts(self, inside: bytes) -> Sequence[TokenParts]:
        """Divide what stands between head and tail; nothing if not tokens alone follow the text."""
        text, _, rest = inside.partition(self.between)
        logprobs = b""
        if self.second:
            logprobs, _, rest = rest.partition(self.second)
        ids, closed, more = rest.partition(b"]")
        return ((text, logprobs, ids),) if closed and not more else ()

    def divide(self, events: bytes) -> list[TokenParts]:
        """Divide several events with ids; nothing if one does not fit."""
        divided: list[TokenParts] = []
        for event in events.split(self.behind)[:-1]:
            inside = event.removeprefix(self.before)
            parts = self.parts(inside)
            if not parts or inside is event:
                return []
            divided += parts
        return divided

    def payload(self, parts: TokenParts) -> bytes:
        """Return the payload that was divided into these."""
        text, logprobs, ids = parts
        inside = b"%b%b%b%b%b]" % (text, self.between, logprobs, self.second, ids)
        return b"%b%b%b" % (self.head, inside, self.behind.removesuffix(_END))


def _ids_in(parts: Sequence[TokenParts]) -> list[int] | None:
    """Return the ids of some payloads; None if there are none."""
    try:
        return [token for _, _, ids in parts for token in _decode_ids(b"[%b]" % ids)] if parts else None
    except msgspec.DecodeError:
        return None


class FastPath:
    """Takes usual chunks to the open text: neither the reader nor the table of the lifecycle is asked about them."""

    __slots__ = (
        "_field", "_is_plain", "_kind", "_learns", "_ledger", "_lifecycle", "_missed", "_misses", "_run", "_space", "_sse",
        "_tokens", "_waiting", "chunks", "item", "markup", "pattern", "sampled",
    )  # fmt: skip

    def __init__(
        self,
        sse: SSEDecoder,
        lifecycle: Lifecycle,
        tokens: TokenCounter,
        ledger: TokenLedger | None,
        markup: Markup | LeadingThoughtDetector | None,
        *,
        learns: bool,
    ) -> None:
        """Wait for a text to open. One that never `learns` returns no events from `feed`."""
        self._sse = sse
        self._lifecycle = lifecycle
        self._tokens = tokens
        self._ledger = ledger
        self._space = lifecycle.space
        self.markup = markup  # what reads the text of the answer, until nothing has to
        self._learns = learns
        self.sampled: SampledCall | None = None  # takes the tokens that are kept for trainers
        self._waiting: list[TokenParts] = []  # what tells the tokens of the last chunks, and of which text they are
        self.chunks = 0  # of the stream so far
        self.item: TextItem | None = None  # the open text, if the next chunk may bring more of it
        self.pattern: ChunkPattern | None = None  # what such a chunk looks like, once one was seen
        self._kind: State = "idle"
        self._field: State = "idle"  # the field of a chunk in which more of it comes: "reasoning", or else the content
        self._is_plain: IsPlain | None = None  # tells whether raw text has no markup in it
        self._run: list[str] = []  # pieces of the open text that are not written yet
        self._misses = 0  # usual chunks in a row that did not look like the pattern
        self._missed = 0  # the number of the last one

    def feed(self, data: bytes, pattern: ChunkPattern, item: TextItem) -> bytes | None:
        """Return the events for a read of nothing but usual chunks. None, with nothing done, for any other read."""
        whole = data
        rest = b""
        chunks = 1
        if self._sse.buffer or not data.endswith(pattern.behind):
            whole, rest = self._sse.split(data)
            if not whole.endswith(pattern.behind):
                return None
        if not whole.startswith(pattern.before):
            return None
        inside = whole[pattern.begin : pattern.end]
        parts: Sequence[TokenParts] = ()
        if pattern.between:
            parts = pattern.parts(inside) or pattern.divide(whole)
            chunks = len(parts)
            inside = parts[0][0] if chunks == 1 else b"".join([text for text, _, _ in parts])
        elif len(inside) > pattern.around:  # else it is one event
            inside = pattern.texts(whole)
            chunks = (len(whole) - len(inside)) // pattern.around
        in_quotes = b'"%b"' % inside
        text = unquoted(in_quotes)
        if not text or not (self._is_plain is None or self._is_plain(text, _ids_in(parts))):
            return None
        self._sse.buffer = rest
        self.chunks += chunks
        if parts:
            self._keep_waiting(parts, len(whole))
        if self._tokens.meter is not None:
            self._tokens.meter.feed(self._counted_as, text)
        space = self._space
        if space.text or text[-1].isspace():
            text = space.trimmed(text)
            if not text:
                return b""
            in_quotes = quoted(text)
            item.compact_pieces()
        item.pieces.append(text)
        return item.writer.delta(item.place, in_quotes)

    def take_payload(self, payload: bytes, pattern: ChunkPattern) -> bool:
        """Take one payload if it looks like the pattern; else the tokens that wait, because it may bring others."""
        inside = pattern.inside(payload)
        parts: Sequence[TokenParts] = ()
        if pattern.between:
            parts = pattern.parts(inside)
            inside = parts[0][0] if parts else b""
        text = unquoted(b'"%b"' % inside)
        if not text or not (self._is_plain is None or self._is_plain(text, _ids_in(parts))):
            self.take_tokens()
            return False
        self._run.append(text)
        if parts:
            self._keep_waiting(parts, len(payload))
        if self._tokens.meter is not None:
            self._tokens.meter.feed(self._counted_as, text)
        return True

    def take_chunk(self, chunk: Chunk, payload: bytes) -> bool:
        """Take one chunk if it is a usual one, whatever it looks like; else write the run."""
        text = continued(self._field, chunk)
        token_ids = chunk.choices[0].token_ids if chunk.choices else None
        if text is None or not (self._is_plain is None or self._is_plain(text, token_ids)):
            if self._run:
                self.flush()
            return False
        self._run.append(text)
        if token_ids is not None:
            self._tokens.ids.take(token_ids)
        if self._tokens.meter is not None:
            self._tokens.meter.feed(self._counted_as, text)
        if self._learns and (token_ids is not None or self.sampled is None):
            self._learn(payload, text, token_ids)
        return True

    def flush(self) -> None:
        """Write the run of pieces that all belong to the open text."""
        run = self._run
        if not run:
            return
        text = run[0] if len(run) == 1 else "".join(run)
        run.clear()
        text = self._space.trimmed(text)
        if text:
            self.item.append(text, None)  # type: ignore[union-attr]

    def stop(self) -> None:
        """Write the run, and take nothing more."""
        self.take_tokens()
        if self._run:
            self.flush()
        self.item = None

    def look_ahead(self, waiting: bool) -> None:
        """See whether the next chunk may be a usual one. Not if the reader is `waiting` for it, or reads another choice."""
        field = self._field
        self.item = None if waiting or self._lifecycle.item is None else self._lifecycle.open_text
        self._kind = self._field = self._lifecycle.state
        if self.markup is not None and self.item is not None:
            shortcut = self.markup.shortcut(self._kind)
            if shortcut is None:
                self.item = None
            else:
                self._field = shortcut.field
                self._is_plain = shortcut.is_plain
        if self._field != field:
            self.pattern = None
            self._misses = 0

    def _keep_waiting(self, parts: Sequence[TokenParts], size: int) -> None:
        self._waiting += parts
        if len(self._waiting) >= _MOST_WAITING or size > _LONG:
            self.take_tokens()

    def take_tokens(self) -> None:
        """Take the tokens that wait, as a decoded chunk has them taken before anything else."""
        pattern = self.pattern
        if not self._waiting or pattern is None:
            return
        waiting = self._waiting
        self._waiting = []
        ledger = self._ledger
        texted = ledger is not None and self._field != "reasoning"  # only a ledger wants text, that of the content
        rows = [b'["%b",%b,[%b]]' % (text if texted else b"", kept or b"null", ids) for text, kept, ids in waiting]
        try:
            tokens = _decode_rows(b"[%b]" % b",".join(rows))
        except (msgspec.DecodeError, UnicodeDecodeError):
            for parts in waiting:
                self._keep_decoded(pattern.payload(parts))
            return
        if ledger is not None:
            for text, _, ids in tokens:
                ledger.take(ids, text)
        all_ids = [token for _, _, ids in tokens for token in ids]
        if self.sampled is not None:
            entries = [entry for _, logprobs, _ in tokens if logprobs is not None for entry in logprobs.content]
            self.sampled.take(all_ids, entries)
        self._tokens.ids.take(all_ids)

    def _keep_decoded(self, payload: bytes) -> None:
        try:
            chunk = decode_chunk(payload)
        except MalformedChunk:
            chunk = Chunk([Choice(delta=Delta("text"))])  # whose tokens nobody knows
        if chunk.converted:
            self._lifecycle.repairs["types_converted"] += 1
        for keeper in (self.sampled, self._ledger):
            if keeper is not None:
                keeper.observe(chunk)
        for choice in chunk.choices or ():
            self._tokens.ids.take(choice.token_ids or ())

    @property
    def _counted_as(self) -> Kind:
        return "reasoning" if self._kind == "reasoning" else "text"

    def _learn(self, payload: bytes, text: str, token_ids: list[int] | None) -> None:
        """See what a usual chunk looks like; less and less often in a stream in which no two are alike."""
        self._misses = self._misses + 1 if self.chunks == self._missed + 1 else 1
        self._missed = self.chunks
        if self._misses & (self._misses - 1) == 0:  # 1, 2, 4, ...
            self.pattern = learn(self._field, payload, text, token_ids) or self.pattern


def learn(field: State, payload: bytes, text: str, token_ids: list[int] | None = None) -> ChunkPattern | None:
    """Return the pattern of a payload in which `continued` found this text, and the decoder these ids; None if it is not
    certain where they stand, or each one has something that is to be kept."""
    if _DETAILS.search(payload) is not None:
        return None
    logprobs = b"" if token_ids is None else _logprobs_in(payload)
    rest = payload.replace(logprobs, b"", 1) if logprobs else payload
    for name in _NAMES.get(field, ()):
        key = b'"%b":' % name.encode()
        if rest.count(key) != 1:
            continue
        begin = payload.find(key) + len(key)
        begin += payload[begin : begin + 1] == b" "
        in_quotes = b'"%b"' % text.encode()
        if payload[begin : begin + len(in_quotes)] == in_quotes:
            head = payload[: begin + 1]
            between = second = b""
            tail = payload[begin + len(in_quotes) - 1 :]
            if token_ids is not None:
                opened = _IDS.search(tail)
                if opened is None:
                    continue
                between = tail[: opened.end()]
                tail = tail[opened.end() :].partition(b"]")[2]
                if logprobs:
                    between, _, second = between.partition(logprobs)
            before = b"data: " + head
            behind = tail + _END
            around = len(before) + len(behind)
            pattern = ChunkPattern(head, between, second, before, behind, len(before), -len(behind), around)
            return pattern if token_ids is None or _is_read(pattern, field) else None
    return None


def _logprobs_in(payload: bytes) -> bytes:
    """Return the log probabilities of a payload with one choice, as they are written; nothing where there are none."""
    [choice] = _decode_raw(payload).choices
    logprobs = bytes(choice.logprobs)
    return logprobs if logprobs[:1] == b"{" else b""


def _is_read(pattern: ChunkPattern, field: State) -> bool:
    """Tell whether text and tokens are read where the pattern has them."""
    entries = b'{"content":[{"token":"text","logprob":-1.5}]}' if pattern.second else b""
    try:
        chunk = decode_chunk(pattern.payload((b"text", entries, b"7,11")))
    except MalformedChunk:
        return False
    choices = chunk.choices or ()
    ids = [choice.token_ids for choice in choices]
    texts = [entry.token for choice in choices if choice.logprobs is not None for entry in choice.logprobs.content or ()]
    for choice in choices:
        choice.logprobs = None
    return continued(field, chunk) == "text" and ids == [[7, 11]] and texts == ["text"] * bool(pattern.second)


def unquoted(in_quotes: bytes) -> str:
    """Return the text of a JSON string; empty if the bytes are none, or hold half a surrogate pair."""
    try:
        return _decode(in_quotes)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""


def continued(field: State, chunk: Chunk) -> str | None:
    """Return the text of a chunk that brings more of `field` ("reasoning", or else the content) and nothing else."""
    choices = chunk.choices
    if not choices or chunk.usage is not None or chunk.error is not None or chunk.lenient:
        return None
    choice = choices[0]
    delta = choice.delta
    if (
        delta is None
        or choice.index
        or len(choices) > 1
        or choice.error is not None
        or choice.finish_reason is not None
        or choice.logprobs is not None
        or delta.tool_calls is not None
        or delta.refusal
        or delta.function_call is not None
        or delta.extra_content is not None
        or delta.annotations
        or delta.images
    ):
        return None
    thinking = delta.reasoning or delta.reasoning_content or delta.thinking or delta.reasoning_text
    if not thinking and delta.reasoning_details is not None:
        return None
    text = delta.content
    other: object = thinking
    if field == "reasoning":
        text = thinking
        other = delta.content
    if other or not text or text.__class__ is not str:
        return None
    return text
