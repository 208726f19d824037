"""Translate a request that continues the last one of its thread without what was translated before.

An agent sends its whole history with each turn, a few items longer. The messages of a history depend on its own items alone
(`input/item_reader.py`), so those of the turns that are over are the same in the next request, and so are the losses that were
reported for them. What is made in this way equals what `translate` makes: where that is not certain, it is not done."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any, NamedTuple

import msgspec

from responses_gateway.request.fields import Entry, Object
from responses_gateway.request.input.call_matching import NO_OUTPUT, MatchedCalls, match_calls
from responses_gateway.request.input.calls import CallItemReader
from responses_gateway.request.input.item_reader import ItemReader, TurnEnd
from responses_gateway.request.input.items import entries_at
from responses_gateway.request.loss_report import Loss, LossReport
from responses_gateway.request.parameters.parameters import refuse_unsupported
from responses_gateway.request.policy import Policy
from responses_gateway.request.tools.catalog import Catalog
from responses_gateway.request.tools.hosted_tools import NO_HOSTED_TOOLS
from responses_gateway.request.translation import ChatRequest, ReadItems, ReadRequest
from responses_gateway.wire.json_text import encode, same_list
from responses_gateway.wire.requests import ResponsesRequest

# The types of items that say nothing of others but by their call ids.
_CALLS = frozenset({"function_call", "custom_tool_call"})
_OUTPUTS = frozenset({"function_call_output", "custom_tool_call_output"})
_OBJECT = frozenset({dict})
_KINDS = frozenset({"message", "reasoning"}) | _CALLS | _OUTPUTS
# The messages of a chat request whose messages are written elsewhere, as a value and as JSON: no text can contain it, because
# quotation marks are escaped there.
_NONE: Sequence[Object] = ()
_PLACE = b'"messages":[]'


class Losses(NamedTuple):
    """What was reported of calls with their outputs, and of items, in the order in which they are read."""

    calls: Sequence[Loss]
    items: Sequence[Loss]


class ChatJson(NamedTuple):
    """A chat request as JSON (`data`), of which `messages` are those of its messages, and `others` has none of them."""

    data: bytes
    others: bytes
    messages: Sequence[bytes]

    @classmethod
    def of(cls, others: bytes, messages: Sequence[bytes]) -> ChatJson:
        """Return the chat request that has these messages, copied once: most of a long request are they."""
        before, _, behind = others.partition(_PLACE)
        parts = list(messages)
        parts[0] = b'%b"messages":[%b' % (before, parts[0])
        parts[-1] = b"%b]%b" % (parts[-1], behind)
        return cls(b",".join(parts), others, messages)

    def with_fields(self, body: Mapping[str, Any]) -> ChatJson:
        """Return a chat request with these messages and the other fields of a body."""
        return ChatJson.of(encode({**body, "messages": _NONE}), self.messages)


class Written(NamedTuple):
    """The JSON of each of some messages, and that of the tools of a chat request."""

    messages: Sequence[bytes]
    tools: Sequence[Object] | None
    tools_json: msgspec.Raw


_NOTHING = Written((), None, msgspec.Raw(b"null"))


class KnownTools(NamedTuple):
    """The tools that were `declared`, as JSON; what they were translated to, and what was reported of them."""

    declared: bytes
    catalog: Catalog
    losses: Sequence[Loss]


class KnownCalls(NamedTuple):
    """The ids of calls, and how many of them were numbered."""

    ids: frozenset[str] = frozenset()
    numbered: int = 0


class TranslatedTurns(msgspec.Struct, frozen=True, eq=False):
    """What the first `items` of an input have become, all of whose calls have outputs: `messages` behind a system message of
    the texts `leading`, with these `calls`. `request` and `policy` are those of the translation, and `losses` is what was
    reported besides that of its `tools`. `written`: its JSON, once the chat request was encoded."""

    request: ResponsesRequest
    policy: Policy
    tools: KnownTools
    items: int
    messages: Sequence[Object]
    leading: Sequence[str]
    calls: KnownCalls
    losses: Losses
    written: Written = _NOTHING

    def is_of(self, request: ResponsesRequest, policy: Policy) -> bool:
        """Tell whether a request is translated as this one was."""
        earlier = self.request
        same = request.model == earlier.model and request.instructions == earlier.instructions and policy == self.policy
        return same and same_list(request.tools, earlier.tools)


class Grown(msgspec.Struct, frozen=True, eq=False):
    """A chat request, what it was made from, and what the next one can be made from; None: nothing. `alike`: one that has the
    same tools. `system`: how many messages stand before those of the items."""

    chat: ChatRequest
    known: TranslatedTurns | None
    alike: TranslatedTurns | None
    next: TranslatedTurns | None
    system: int


def translate_growing(
    request: ResponsesRequest,
    policy: Policy,
    rest: Sequence[Any],
    known: TranslatedTurns | None,
    kept: int | None = None,
    others: Iterable[TranslatedTurns] = (),
    history: Sequence[Any] | None = None,
) -> Grown | None:
    """Translate a request without hosted tools; `rest` are the items of its input behind those that are `known`. `history`:
    those behind them of the history that it continues, if it names its previous response; then all of its input is the rest.
    `kept`: so many items of the input may be kept for the next one, and the model speaks behind them; None: all of them are in
    the next one, too. `others` are of other threads, whose tools may be the same: all threads of an agent have its tools.
    Return None where that takes more than these. Raises `ApiError` 400 as `translate` does."""
    if policy.user_messages != "keep" or policy.template_forms or policy.continues_last_message:
        return None  # because then the last messages may become others
    if known is not None and not known.is_of(request, policy):
        return None
    before = 0 if known is None else known.items
    continued = history or ()
    if before + len(continued) + len(rest) > policy.max_input_items or not {*map(type, rest)} <= _OBJECT:
        return None
    refuse_unsupported(request, policy)
    entries = entries_at(rest, "input", before if history is None else 0)
    if history:
        entries = entries_at(history, "history", before) + entries
    kinds = {entry.kind for entry in entries}
    if not kinds <= _KINDS or (known is not None and _refers_to(entries, known.calls.ids)):
        return None
    translation = ReadRequest(request, policy, NO_HOSTED_TOOLS, LossReport(policy.strict), entries, kinds)
    if known is None:
        declared = encode(request.tools)
        alike = next((other for other in others if other.tools.declared == declared and other.policy == policy), None)
    else:
        declared = known.tools.declared
        alike = known
    return _Growth(translation, known, declared, alike, None if kept is None else kept - before).grown()


def _refers_to(entries: Sequence[Entry], call_ids: Set[str]) -> bool:
    """Tell whether an item belongs to a call of before, or has the id of one; of an id that is none, too, which is refused."""
    for entry in entries:
        if entry.kind in _CALLS or entry.kind in _OUTPUTS:
            call_id = entry.item.get("call_id")
            if not isinstance(call_id, str) or call_id in call_ids:
                return True
    return False


class _Growth(NamedTuple):
    """A `translation` that goes on from what is `known`, with the items behind that, of which so many may be `kept`. Its tools
    came as `declared`, and are those of what is `alike`."""

    translation: ReadRequest
    known: TranslatedTurns | None
    declared: bytes
    alike: TranslatedTurns | None
    kept: int | None

    def grown(self) -> Grown:
        """Return the whole translation. Raises `ApiError` 400."""
        translation = self.translation
        report = translation.report
        entries = translation.items
        tools = self._tools()
        catalog = tools.catalog
        choice = translation.choice(catalog)
        chosen = report.size
        calls = self._matched(catalog)
        finished = report.size
        ids = {path: matched.id for path, matched in calls.by_path.items()}  # before they are numbered
        reader = self._reader(calls)
        kept = self.kept
        end = reader.read_noting_ends(entries) if kept is None else reader.read_with_end(entries, kept)
        if kept is not None and calls.reported != finished:
            end = None  # because what was reported of later calls may be missing in the next request
        chat = translation.completed(catalog, choice, ReadItems(reader.arranged(), compacting=False, call_ids=calls.ids))
        reported = report.losses()
        losses = Losses(reported[chosen : calls.reported], reported[finished : end.reported if end else 0])
        system = len(chat.body["messages"]) - reader.length
        return Grown(chat, self.known, self.alike, self._next(tools, calls, ids, reader, end, losses), system)

    def _tools(self) -> KnownTools:
        """Return the tools, read only if they are not known. Raises `ApiError` 400."""
        translation = self.translation
        if self.alike is None:
            catalog = translation.catalog()
            return KnownTools(self.declared, catalog, translation.report.losses())
        translation.check_urls()
        translation.report.repeat(self.alike.tools.losses)
        return self.alike.tools

    def _matched(self, catalog: Catalog) -> MatchedCalls:
        known = self.known
        report = self.translation.report
        taken: frozenset[str] = frozenset()
        if known is not None:
            report.repeat(known.losses.calls)
            taken = known.calls.ids
        return match_calls(self.translation.items, CallItemReader(catalog, report), report, taken, self.kept)

    def _reader(self, calls: MatchedCalls) -> ItemReader:
        known = self.known
        translation = self.translation
        if known is None:
            reader = ItemReader(translation.policy, calls, translation.report)
            if translation.request.instructions:
                reader.lead(translation.request.instructions)
        else:
            translation.report.repeat(known.losses.items)
            reader = ItemReader(translation.policy, calls, translation.report, calls_before=known.calls.numbered)
            reader.resume(known.leading, known.messages)
        return reader

    def _next(
        self,
        tools: KnownTools,
        calls: MatchedCalls,
        ids: Mapping[str, str],
        reader: ItemReader,
        end: TurnEnd | None,
        losses: Losses,
    ) -> TranslatedTurns | None:
        """Return what the next request can go on from: the turns that are over, if nothing can be added to them any more."""
        known = self.known
        translation = self.translation
        entries = translation.items
        if end is None:
            return known
        call_ids: set[str] = set()
        for entry in entries[: end.items]:
            if entry.kind in _CALLS:
                matched = calls.by_path.get(entry.path)
                if matched is None or matched.output is NO_OUTPUT or matched.call.asynchronous:
                    return None
                call_ids.add(matched.call.call_id)
                call_ids.add(ids[entry.path])
        if self.kept is not None and _refers_to(entries[end.items :], call_ids):
            return known
        leading, messages = reader.state_at(end)
        before = 0 if known is None else known.items
        known_calls = KnownCalls() if known is None else known.calls
        read = KnownCalls(known_calls.ids | call_ids, end.calls)
        items = before + end.items
        return TranslatedTurns(translation.request, translation.policy, tools, items, messages, leading, read, losses)


def encoded(grown: Grown, body: Mapping[str, Any]) -> tuple[ChatJson, TranslatedTurns | None]:
    """Return the chat request `body` as JSON, and what the next one can be made from. What is known is not written again."""
    before = () if grown.known is None else grown.known.written.messages
    alike = _NOTHING if grown.alike is None else grown.alike.written
    messages = body["messages"]
    system = grown.system
    tools = body.get("tools")
    others = {**body, "messages": _NONE}
    rest = messages[system + len(before) :]
    pieces = [*map(encode, messages[:system]), *before, *map(encode, rest)]
    tools_json = alike.tools_json if tools == alike.tools else msgspec.Raw(encode(tools))
    if tools is not None:
        others["tools"] = tools_json
    written = ChatJson.of(encode(others), pieces)
    later = grown.next
    if later is None:
        return written, None
    over = Written(pieces[system : system + len(later.messages)], tools, tools_json)
    return written, msgspec.structs.replace(later, written=over)
