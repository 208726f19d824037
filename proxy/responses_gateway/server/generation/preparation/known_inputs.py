"""The last requests of threads that grow: as they came, as they were read, and what their translation can go on from.

An agent sends its history again byte for byte, with more behind it, so that one comparison of bytes tells what is new. The rest
of the body is read with a mark in the place of what is known of the list that grows: the items of an input, or messages. Where
the mark is not what the list begins with, the body is read as a whole: nobody can tell whether its history was known."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from responses_gateway.bounded_memory import TenantValues
from responses_gateway.request.growing import TranslatedTurns
from responses_gateway.request.messages import ReadTurns
from responses_gateway.server.protocols.interface import BodyForm
from responses_gateway.state.records import HistoryMemory, KnownItems
from responses_gateway.wire.errors import ApiError

SMALLEST = 32 * 1024  # smaller bodies, in bytes, are read as fast as they are compared
# Larger ones are rare, and what is done here with a body is done in the event loop.
_LARGEST = 4 * 1024 * 1024
# What is kept of a body takes about so many times its size if all of it is ASCII, or not: its bytes, the items, and the
# messages as JSON. Measured: 3.3 to 3.7, and 4.6 to 5.8, because one other character makes a text take two bytes for each.
_ASCII = 4
_OTHER = 6
# What may be new, in bytes, with the fields behind the list that grows: more is read in a thread, because other streams wait
# meanwhile.
_MOST_NEW = 256 * 1024
# The most threads of a tenant, since each is looked at for a request that continues none of them.
_THREADS = 128
# Where two bodies are compared first: other threads of a client differ in their histories, and not in their instructions.
_PROBE = 64
_NAME = re.compile(rb'[\s,{]*"(?:[^"\\]|\\.)*"\s*:\s*')
_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_LIST = msgspec.json.Decoder(list[msgspec.Raw])
# What stands between the elements of a list.
_BETWEEN = b", \t\r\n"


class Layout(NamedTuple):
    """Where the elements of the list that grows begin in a body, where those that are known end, and where the list does, in
    bytes; the JSON of its other fields."""

    start: int
    end: int
    close: int
    fields: Mapping[str, bytes]


class KnownValues(NamedTuple):
    """The first elements of a list that grows, and the values of large fields. `turns` is what the elements were read as, if
    they are no items themselves, and `beginning` what they were translated to."""

    elements: Sequence[Any]
    large: Mapping[str, Any]
    turns: ReadTurns | None
    beginning: TranslatedTurns


class KnownInput(msgspec.Struct, eq=False):
    """A request of the growing thread `name`, whose body is of this `form`. `body` is how it came.
    `probe`: where two bodies are compared first. `memory`: what was stored of its thread."""

    name: str
    form: BodyForm
    body: bytes
    values: KnownValues
    probe: int
    layout: Layout | None
    memory: HistoryMemory

    @property
    def beginning(self) -> TranslatedTurns:
        """What the translation of a request that continues this one can go on from."""
        return self.values.beginning

    def may_begin(self, body: bytes, form: BodyForm) -> bool:
        """Tell whether a body may continue this one."""
        probe = self.probe
        return self.form is form and self.body[probe : probe + _PROBE] == body[probe : probe + _PROBE]

    def read(self, body: bytes, mark: str) -> Growing | None:
        """Return the request in a body that continues this one; None if it does not. `mark` is a text that no body has."""
        if self.layout is None:
            self.layout = self._laid_out()
            if self.layout is None:
                self.body = b""  # which begins like none: it is not looked at again
                return None
            self.probe = (self.layout.start + self.layout.end) // 2
        fields = self.layout.fields
        form = self.form
        try:
            pieces = self._found_in(body, self.layout, mark.encode())
            if pieces is None:
                return None
            now, elements = pieces
            large = self.values.large
            known = {name: value for name, value in large.items() if name in fields and now.fields.get(name) == fields[name]}
            new = {name: msgspec.json.decode(text) for name, text in now.fields.items() if name not in known}
            new[form.elements] = msgspec.json.decode(elements)
            request = form.parse_continued(new, known, mark, self.values.elements)
        except (ApiError, ValueError, RecursionError):  # which the body as a whole has in other words
            return None
        if request is None:
            return None
        return Growing(body, form, request, self, now, self.memory)

    def _found_in(self, body: bytes, layout: Layout, mark: bytes) -> tuple[Layout, bytes] | None:
        """Return how a body is laid out that begins as this one, and its list with the mark in the place of what is known; None
        if it does not. Raise `ValueError` for what is no JSON object."""
        start, end, close, fields = layout
        if not body.startswith(memoryview(self.body)[:end]) or len(body) - end > _MOST_NEW:
            return None
        new_close = len(body) - len(self.body) + close
        if new_close >= end and body.endswith(memoryview(self.body)[close:]):  # as most: nothing but the list has changed
            return Layout(start, new_close, new_close, fields), b'["%b"%b]' % (mark, body[end:new_close])
        short = b'%b"%b"%b' % (body[:start], mark, body[end:])
        now = _layout(short, self.form.elements)
        if now is None:
            return None
        new_close = now.close + len(body) - len(short)
        return now._replace(end=new_close, close=new_close), short[now.start - 1 : now.close + 1]

    def _laid_out(self) -> Layout | None:
        try:
            layout = _layout(self.body, self.form.elements)
        except ValueError:  # half a character, which was replaced when the body was read
            return None
        if layout is None or self.values.turns is None:
            return layout
        return layout._replace(end=_end_of(len(self.values.elements), self.body, layout.start, layout.end))


class KnownChain(msgspec.Struct, frozen=True, eq=False):
    """A response of a chain, for the request that names it: the `items` of the history before its own, and what they and its
    input were translated to (`beginning`)."""

    items: KnownItems
    beginning: TranslatedTurns


class Growing(msgspec.Struct, frozen=True, eq=False):
    """A request whose `body` may be one of a growing thread, and how it was `asked`; where its list ends (`layout`), if it
    continues one that is known. `memory`: what was stored of its thread."""

    body: bytes
    form: BodyForm
    asked: Any
    continued: KnownInput | None = None
    layout: Layout | None = None
    memory: HistoryMemory = msgspec.field(default_factory=HistoryMemory)

    @property
    def beginning(self) -> TranslatedTurns | None:
        """What its translation can go on from."""
        return None if self.continued is None else self.continued.values.beginning

    @property
    def turns(self) -> ReadTurns | None:
        """What its reading can go on from."""
        return None if self.continued is None else self.continued.values.turns

    def keepable(self, beginning: TranslatedTurns, turns: ReadTurns | None) -> KnownInput:
        """Return what is kept of it."""
        body, form, request, continued, layout, memory = msgspec.structs.astuple(self)
        elements = getattr(request, form.elements)
        if turns is not None:
            elements = elements[: turns.messages]
        values = KnownValues(elements, {name: getattr(request, name) for name in form.large}, turns, beginning)
        if continued is None or layout is None:
            # About in the middle of the list, because it is as long as its messages: all threads of a client begin alike.
            probe = body.find(b'"%b"' % form.elements.encode()) + sum(map(len, beginning.written.messages)) // 2
            name = secrets.token_hex() if continued is None else continued.name
            return KnownInput(name, form, body, values, probe, None, memory)
        if turns is not None:
            assert continued.layout is not None
            new = len(elements) - len(continued.values.elements)
            layout = layout._replace(end=_end_of(new, body, continued.layout.end, layout.end))
        return KnownInput(continued.name, form, body, values, (layout.start + layout.end) // 2, layout, memory)


class KnownInputs:
    """The last requests of growing threads, each with what it takes in memory: chains by the id of their last response."""

    def __init__(self, most: int) -> None:
        """`most` is for all of them together, in bytes; 0: none are kept."""
        self._most = most
        self._mark = secrets.token_hex()
        self.clear()

    @property
    def size(self) -> int:
        """The memory that all of them take, in bytes."""
        return self._threads.weight

    def keeps(self, body: bytes) -> bool:
        """Tell whether a request with this body is worth being kept, and may be."""
        return SMALLEST <= len(body) <= min(_LARGEST, self._most // _OTHER)

    def read(self, tenant: str, body: bytes, form: BodyForm) -> Growing | None:
        """Return the request in a body; None if it continues none that is known."""
        inputs = (known for known in self._last_first(tenant) if isinstance(known, KnownInput))
        continued = (known.read(body, self._mark) for known in inputs if known.may_begin(body, form))
        return next(filter(None, continued), None)

    def chain(self, tenant: str, response_id: str) -> KnownChain | None:
        """Return what is known of the items up to a response."""
        known = self._threads.get(tenant, response_id)
        return known if isinstance(known, KnownChain) else None

    def beginnings(self, tenant: str) -> Iterator[TranslatedTurns]:
        """Yield what the translations of requests of a tenant can go on from, the last one first."""
        for known in self._last_first(tenant):
            yield known.beginning

    def keep(self, tenant: str, growing: Growing, beginning: TranslatedTurns, turns: ReadTurns | None = None) -> None:
        """Keep a request, in the place of the one that it continues: its turns that are translated, as they were read."""
        kept = growing.keepable(beginning, turns)
        self._threads.put(tenant, kept.name, kept, _memory_for([growing.body]))

    def keep_chain(self, tenant: str, response_id: str, items: KnownItems, beginning: TranslatedTurns, previous: str) -> None:
        """Keep the items before those of a response, and what they were translated to, in the place of the `previous` one's."""
        messages = beginning.written.messages
        if SMALLEST <= sum(map(len, messages)) <= _LARGEST:
            if self.chain(tenant, previous) is not None:
                self._threads.pop(tenant, previous)
            self._threads.put(tenant, response_id, KnownChain(items, beginning), _memory_for(messages))

    def clear(self) -> None:
        """Forget all requests."""
        self._threads = TenantValues[KnownInput | KnownChain](_THREADS, self._most)

    def _last_first(self, tenant: str) -> Iterator[KnownInput | KnownChain]:
        return reversed([*self._threads.of(tenant).values()])


def _memory_for(json: Sequence[bytes]) -> int:
    """Return how much memory that takes, in bytes, which is kept of a history that came as this JSON."""
    return sum(map(len, json)) * (_ASCII if all(map(bytes.isascii, json)) else _OTHER)


def _layout(body: bytes, elements: str) -> Layout | None:
    """Return how a body is laid out; None if its fields do not stand there in this order, because one occurs twice, or if it
    has no list of this name. Raise `ValueError` for what is no JSON object."""
    place = 0
    start = end = 0
    fields: dict[str, bytes] = {}
    for name, value in _FIELDS.decode(body).items():
        text = bytes(value)
        field = _NAME.match(body, place)
        if field is None or not body.startswith(text, field.end()):
            return None
        place = field.end() + len(text)
        if name == elements:
            start = field.end() + 1
            end = place - 1
        else:
            fields[name] = text
    return Layout(start, end, end, fields) if start else None


def _end_of(number: int, body: bytes, start: int, end: int) -> int:
    """Return where so many of the elements end that stand between two places of a body, separated by commas and space."""
    values = _LIST.decode(b"[%b]" % body[start:end].lstrip(_BETWEEN))
    if number == len(values):
        return end
    for value in values[:number]:
        while body[start] in _BETWEEN:
            start += 1
        start += memoryview(value).nbytes  # not searched for, because that takes long for long texts
    return start
