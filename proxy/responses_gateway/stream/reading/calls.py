"""To which call an entry of `tool_calls` belongs: the one place where that is decided.

What an entry tells is weighed in this order.

1. *An id that is known* is that call's, at whatever index. Calls with one id are told apart by their indices.
2. *An index that is known* is that call's, whatever id comes with it: some servers make a new id for each piece. An index that
   two unfinished calls have tells nothing. Where arguments come at an index that no call has, none is relied on to choose one
   of several calls (`indices.py`).
3. *A name* begins a call, unless it repeats the name of the last call and goes on with its arguments.
4. *Without any of these*, an entry belongs to the only call that is unfinished, or has a part of its arguments, if the entry
   begins none. If as many come in one chunk as there are calls, or unfinished ones, each belongs to the call at its place.

A name begins another call in the place of a known one if it is another name, or if that one is whole and other arguments
come, be it behind the name at an index of its own. The same arguments once more are the same call once more, and so are all
calls once more at the end. A piece that repeats all arguments before it brings the rest alone (`call.py`). Arguments at an
unknown index are those of the only call that has none, if it still has none at the end; another object behind the end of a
call may be those of any that has none. `{}`, `""` and `null` are arguments only where none follow (`placeholders.py`); with
an id of its own `{}` is a call, unless its tool requires arguments. A name may come in pieces, until its arguments come or
the answer goes on. What this does not decide is not guessed: each call that it may be about ends as cut."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Literal

from responses_gateway.stream.items.calls import Arguments
from responses_gateway.stream.reading.call import PartialCall
from responses_gateway.stream.reading.indices import Indices
from responses_gateway.stream.reading.placeholders import is_placeholder
from responses_gateway.wire import chat
from responses_gateway.wire.chat import FunctionDelta, ToolCallDelta
from responses_gateway.wire.deltas import Delta, Text, ToolArguments, ToolCall, ToolCallCut, ToolCallExtra
from responses_gateway.wire.json_text import json_text
from responses_gateway.wire.tools import ToolTable, offered_name

_OLD_FORM = -1  # the index of the one call that `delta.function_call` can make
# With more unfinished calls than this, an entry that tells nothing is not looked for a call: that would be quadratic work.
_MOST_UNFINISHED = 64
_LONGEST_BLANK = 256  # more white space than this is not looked through


class CallReader:
    """Feed the deltas of one answer in order to `read`; `settle` where the answer goes on, `end` where it ends."""

    def __init__(
        self, tools: ToolTable, repairs: defaultdict[str, int], requires: Callable[[str], bool], *, generated: bool
    ) -> None:
        """`tools` were declared; `repairs` counts what is repaired, by kind; `requires` tells whether a tool cannot be called
        without arguments. `generated`: arguments are the model's own, with nothing in their place before they come."""
        self._tools = tools
        self._generated = generated
        self._repairs = repairs
        self._calls: list[PartialCall] = []
        self._requires = requires
        self._indices = Indices()
        self._of: dict[str, PartialCall] = {}  # the last one of each id
        self._names: set[str] = set()
        self._shared_ids: set[str] = set()  # those that several have
        self._unfinished: list[PartialCall] = []  # and some that are whole by now
        self._queue: deque[PartialCall] = deque()  # those with a name that are not announced
        self._again: dict[int | None, str] = {}  # names that came without arguments for a whole call, by an index of their own
        self._nameless: list[PartialCall] = []
        self._held: dict[PartialCall, None] = {}  # those that have a placeholder
        self._announced = 0
        self._form: Literal["", "new", "old"] = ""  # which of the two fields has the calls of this answer

    @property
    def waiting(self) -> bool:
        """Whether a part of what came waits for its rest."""
        return bool(self._queue or self._nameless)

    def read(self, delta: chat.Delta, out: list[Delta], *, last: bool) -> None:
        """Read the calls of a delta; the `last` one, or one behind it, may have all of them once more."""
        entries = delta.tool_calls or []
        for entry in entries:
            entry.function = _function_of(entry)
        if last and _are_again(entries, self._calls, self._tool):
            self._repairs["message_repeated"] += 1
            for entry, call in zip(entries, self._calls, strict=True):
                entry.index = call.index
                entry.id = call.id
                entry.function = None  # what it tells besides is of the same call
        for at, entry in enumerate(entries):
            if self._form != "old":  # else it repeats what stands in the other field
                self._form = "new" if _tells(entry.function) else self._form
                self._read_entry(entry, entries, at, out)
        function = delta.function_call
        if _tells(function) and self._form != "new":
            self._form = "old"
            entry = ToolCallDelta(_OLD_FORM, None, function)
            self._read_entry(entry, [entry], 0, out)

    def rest_of(self, message: chat.Delta) -> chat.Delta:
        """Return what the calls of a message have that those before it have not: the ends of their arguments, and other calls.
        What it tells otherwise of a call stays as it came."""
        old = message.function_call if self._form == "old" or not message.tool_calls else None
        entries = message.tool_calls or [] if old is None else [ToolCallDelta(function=old)]
        ids = {entry.id for entry in entries}
        known = [call for call in self._calls if call.name]
        rest = []
        for entry in entries:
            entry.function = _function_of(entry)
            arguments = _arguments_of(entry)
            same = [call for call in known if (call.id == entry.id if entry.id in self._of else call.id not in ids)]
            tool = self._tool(_name_of(entry))
            call = next((call for call in same if self._tool(call.name) == tool and call.continued_by(arguments)), None)
            if call is not None:
                known.remove(call)
                end = "" if call.repeated_by(arguments) else arguments[len(call.arguments.text) :]
                rest.append(ToolCallDelta(call.index, call.id, FunctionDelta(None, end), entry.extra_content))
            elif entry.id not in self._of if entry.id else len(entries) > len(self._calls):
                entry.index = None if entry.index in self._indices.at else entry.index
                rest.append(entry)
        return chat.Delta(function_call=rest[0].function) if self._form == "old" and rest else chat.Delta(tool_calls=rest)

    def settle(self, out: list[Delta]) -> None:
        """Take names as they came: the answer has gone on with something else."""
        if self._nameless and self._indices.chosen:
            self._doubt_indices(None, out)
            out += self._indices.release()
        self._announce(out, settled=True)
        for call in self._held:
            call.left = True

    def end(self, out: list[Delta], *, broken: bool) -> None:
        """End all calls. In a stream that is `broken`, the arguments behind a placeholder may be missing, unless more came."""
        self._place_nameless(out)
        self._announce(out, settled=True)
        self._cut_doubtful(out)
        if self._held:
            self._take_placeholders(out, broken)
        for call in self._nameless:
            if call.arguments.begun and not call.cut:
                out.append(Text(call.arguments.text))
                self._repairs["nameless_call_as_text"] += 1
        if self._nameless:  # nothing that comes behind the end belongs to what went out as text
            gone = set(self._nameless)
            self._calls = [call for call in self._calls if call not in gone]
            self._unfinished = [call for call in self._unfinished if call not in gone]
            self._of = {call_id: call for call_id, call in self._of.items() if call not in gone}
            self._indices.forget(gone)
            self._nameless.clear()

    # ---- the rule ----------------------------------------------------------------------------------------------------------

    def _is_bare(self, entry: ToolCallDelta) -> bool:
        """Tell whether nothing but its place tells to which call an entry belongs."""
        if _name_of(entry) or (entry.id in self._of and entry.id not in self._shared_ids):
            return False
        at = None if entry.index is None else self._indices.at.get(entry.index)
        if at is None:
            return entry.index is None or entry.id in self._shared_ids
        return at.shares_index

    def _read_entry(self, entry: ToolCallDelta, entries: Sequence[ToolCallDelta], at: int, out: list[Delta]) -> None:
        """Read one of the entries of a chunk."""
        name = _name_of(entry)
        arguments = _arguments_of(entry)
        bare = self._is_bare(entry) and bool(self._calls)
        if bare:
            call = self._alone(entry, arguments, self._place(entries, at), out)
        else:
            call = self._known(entry, out)
            if entry.index in self._again and call is not None and call.stage == "whole" and _begins_object(arguments):
                name = name or self._again.pop(entry.index)
            if name:
                call = self._named(entry, name, arguments, call, out)
            elif call is None:
                call = self._unplaced(entry, arguments, out)
        if call is None:
            return
        if entry.extra_content:
            self._keep_extra(call, json_text(entry.extra_content), out)
        if entry.index is not None and not bare:
            self._indices.bind(entry.index, call)
            if not name and (entry.id not in self._of or entry.id in self._shared_ids):
                self._indices.choose(call)
        arguments = call.new_part(arguments)
        if arguments and not (name and call.stage in ("whole", "placeholder") and call.repeated_by(arguments)):
            call.unnamed = call.unnamed or not name
            whole = call.stage == "whole"
            self._take(call, arguments, out)
            # Asked of all arguments once, when they end, because more may come behind them in any number of pieces.
            other = _begins_object(arguments) if whole else call.stage == "whole" and call.has_rest
            if other and (call.doubtful or _any_empty(self._still_unfinished())):
                self._cut(call, out)  # another object, which may be another call's
        if call.number < 0:
            self._announce(out, settled=False)

    def _place(self, entries: Sequence[ToolCallDelta], at: int) -> tuple[int, int]:
        """Return the place of an entry among its neighbours that tell nothing else either, and how many these are."""
        if len(entries) > _MOST_UNFINISHED:
            return 0, len(entries)
        first = at
        while first and self._is_bare(entries[first - 1]):
            first -= 1
        end = at + 1
        while end < len(entries) and self._is_bare(entries[end]):
            end += 1
        return at - first, end - first

    def _known(self, entry: ToolCallDelta, out: list[Delta]) -> PartialCall | None:
        """Return the call that has the id of an entry, else the one at its index."""
        at = None if entry.index is None else self._indices.at.get(entry.index)
        of = self._of.get(entry.id) if entry.id else None
        if of is not None:
            call = at if at is not None and entry.id in (at.id, at.latest_id) else of
            if call.latest_id and call.latest_id != entry.id:  # an id that was replaced: both are in use
                self._cut(call, out)
            return call
        if at is not None and entry.id and _name_of(entry) and at.index != entry.index:
            return None  # only pieces of it came at this index
        other = None if entry.index is None else self._indices.other.get(entry.index)
        if at is not None and other is not None and not _name_of(entry):
            self._cut(at, out)
            self._cut(other, out)
        return at

    def _named(
        self, entry: ToolCallDelta, name: str, arguments: str, call: PartialCall | None, out: list[Delta]
    ) -> PartialCall:
        """Return the call of an entry with a name, which may be a new one. `call`: the one with its id or index."""
        if call is None and self._calls and self._goes_on(self._calls[-1], entry, name, arguments):
            call = self._calls[-1]
        whole = None if call is None else self._spelled(call, entry, name, out)
        if call is None or whole is None or self._begins_another(call, entry, arguments, out):
            for left in (call, *(self._calls[-1:] if entry.index is None else ())):
                if left is not None and left.stage == "open":
                    left.doubtful = True
            new = self._begin(entry, name, out)
            new.doubtful = name in self._names and not (_is_blank(arguments) or _begins_object(arguments))
            self._names.add(name)
            return new
        if call.stage == "whole" and entry.index not in self._indices.at:
            self._again[entry.index] = name
        call.doubtful = call.doubtful or bool(call.name)
        self._name(call, whole, out)
        if not call.id:
            call.id = entry.id or ""
            self._of.setdefault(call.id, call)
        elif entry.id and call.has_other_id(entry):
            call.other_ids = True
            self._of.pop(call.latest_id, None)
            self._of[entry.id] = call
            call.latest_id = entry.id
        return call

    def _goes_on(self, last: PartialCall, entry: ToolCallDelta, name: str, arguments: str) -> bool:
        """Tell whether an entry with a name, and neither a known id nor a known index, goes on with the last call."""
        blank = _is_blank(arguments)
        if entry.index is None and last.name == name and last.has_other_id(entry) and last.waits_for(arguments):
            return self._requires(name)
        if entry.index is not None or last.has_other_id(entry):
            inside = last.stage == "open" and not (blank or _begins_object(arguments) or is_placeholder(arguments))
            return inside and last.name == name
        if not last.name:
            return last.index is None and blank
        if last.stage == "empty":
            return not blank or name != last.name
        return last.stage != "whole" and not last.unnamed

    def _begins_another(self, call: PartialCall, entry: ToolCallDelta, arguments: str, out: list[Delta]) -> bool:
        """Tell whether an entry with the name of a known call begins another one."""
        blank = _is_blank(arguments)
        other_id = call.has_other_id(entry)
        elsewhere = entry.index is not None and entry.index != call.index
        match call.stage:
            case "empty" if any(other.rival is call and other.stage != "empty" for other in self._nameless[-1:]):
                return True
            case "empty" if elsewhere and not other_id:
                return blank
            case "empty":
                return other_id and (blank or entry.index is None or is_placeholder(arguments))
            case "placeholder" if elsewhere and not other_id:
                return not blank and is_placeholder(arguments)
            case "placeholder" if entry.index is None and not entry.id:
                if not (is_placeholder(arguments) or _is_whole(arguments)):
                    self._cut(call, out)
                return True
            case "placeholder":
                return other_id and not (call.waits_for(arguments) and self._requires(call.name))
            case "open" if other_id and call.unnamed and (blank or is_placeholder(arguments)):
                return True
            case "open":
                if _begins_object(arguments):
                    call.doubtful = True
                    if other_id or elsewhere:
                        self._cut(call, out)
                return False
        if blank:
            return other_id and not call.other_ids
        return _begins_object(arguments) and (other_id or not call.repeated_by(arguments))

    def _alone(self, entry: ToolCallDelta, arguments: str, place: tuple[int, int], out: list[Delta]) -> PartialCall | None:
        """Return the call of an entry that tells nothing but its place."""
        at, among = place
        unfinished = self._still_unfinished()
        candidates = unfinished or list(self._held) or self._calls[-1:]
        if entry.index is not None and entry.index not in self._indices.at and arguments.strip():
            self._doubt_indices(candidates[0] if len(candidates) == 1 else None, out)
        if len(candidates) == 1:
            return candidates[0]
        for calls in (self._calls, candidates):
            if among == len(calls):
                calls[at].doubtful = True
                return calls[at]
        if arguments.strip():
            self._repairs["arguments_of_no_call"] += 1
            for call in candidates:
                self._cut(call, out)
        return None

    def _unplaced(self, entry: ToolCallDelta, arguments: str, out: list[Delta]) -> PartialCall:
        """Return the call of an entry without a name, whose id and index are unknown: the only open one, else a new one."""
        unfinished = [] if entry.id else self._still_unfinished()
        few = unfinished if len(unfinished) <= _MOST_UNFINISHED else []
        opened = [call for call in few if call.stage == "open"]
        if len(opened) == 1 and arguments and not _begins_object(arguments):  # so that no other call can begin with them
            self._doubt_indices(opened[0] if opened[0].name else None, out)
            return opened[0]
        return self._begin(entry, "", out, few[0] if len(few) == 1 and few[0].stage == "empty" else None)

    def _spelled(self, call: PartialCall, entry: ToolCallDelta, name: str, out: list[Delta]) -> str | None:
        """Return the name of a call with which an entry comes that has a name too; None if that is another call's."""
        if not call.name or name == call.name:
            return name
        tool = self._tool(call.name)
        same = tool in self._tools and tool in (self._tool(name), self._tool(call.name + name))
        if call.stage in ("open", "whole"):
            return call.name if same else None
        other_id = call.has_other_id(entry)
        if other_id and self._tool(name) in self._tools and tool != self._tool(name):
            return None
        leads_on = any(tool.startswith(call.name + name) for tool in self._tools)
        if leads_on or (tool not in self._tools and self._tool(call.name + name) in self._tools):
            return call.name + name
        if same:
            return call.name
        if name.startswith(call.name) and not other_id and call.stage == "empty":
            if call.name not in self._tools:
                return name
            self._cut(call, out)  # its name may have gone on, or another call begins
            return None
        if self._tool(name) in self._tools or call.stage == "placeholder" or (other_id and tool in self._tools):
            return None
        return call.name + name

    # ---- what becomes of it ------------------------------------------------------------------------------------------------

    def _begin(self, entry: ToolCallDelta, name: str, out: list[Delta], rival: PartialCall | None = None) -> PartialCall:
        if name:
            self._place_last(out)
        before = None if entry.index is None else self._indices.at.get(entry.index)
        call = PartialCall(entry.index, entry.id or "", before, rival, name)
        if self._generated:
            call.start.stop()
        self._indices.begin(call, self._still_unfinished() or self._held)
        self._calls.append(call)
        self._unfinished.append(call)
        if call.id:
            if call.id in self._of:
                self._shared_ids.add(call.id)
            self._of[call.id] = call
        if name:
            self._queue.append(call)
        else:
            self._nameless.append(call)
        return call

    def _name(self, call: PartialCall, name: str, out: list[Delta]) -> None:
        if not call.name:
            self._nameless.remove(call)
            self._queue.append(call)
            if call.rival is not None and call.arguments.begun and call.rival.stage == "empty":
                self._cut(call, out)  # they may have been the arguments of either
                self._cut(call.rival, out)
            call.rival = None
            out += () if self._nameless else self._indices.release()
        elif call.number >= 0 and name != call.name:
            self._cut(call, out)  # it was announced under a part of its name
        call.name = name

    def _take(self, call: PartialCall, arguments: str, out: list[Delta]) -> None:
        """Take a piece of the arguments of a call."""
        if self._generated and call.stage == "empty":
            arguments = _written(arguments, needed=self._requires(call.name))
        piece = arguments if call.start.passes else call.start.feed(arguments)
        if call.start.holds:
            self._held[call] = None
        else:
            self._held.pop(call, None)
        if call.settled and arguments.strip():
            self._cut(call, out)
        self._give_out(call, piece, out)

    def _keep_extra(self, call: PartialCall, extra: str, out: list[Delta]) -> None:
        if call.number >= 0 and extra != call.extra:
            out.append(ToolCallExtra(call.number, extra))
        call.extra = extra

    def _give_out(self, call: PartialCall, piece: str, out: list[Delta]) -> None:
        if piece:
            call.arguments.append(piece)
            call.size += len(piece)
            if call.number >= 0 and self._nameless and call in self._indices.chosen:
                self._indices.withhold(ToolArguments(call.number, piece))
            elif call.number >= 0:
                out.append(ToolArguments(call.number, piece))

    def _doubt_indices(self, call: PartialCall | None, out: list[Delta]) -> None:
        """Cut a call to which arguments came at an index that no call has, and those whose arguments they may be."""
        held = islice(reversed(self._held), _MOST_UNFINISHED)
        doubtful = [other for other in (*self._indices.take_chosen(), *held) if other is not call]
        if doubtful and call is not None:
            self._cut(call, out)
        for other in doubtful:
            self._cut(other, out)

    def _announce(self, out: list[Delta], *, settled: bool) -> None:
        """Announce the calls whose names are whole, in order; all of them if the names are `settled`."""
        queue = self._queue
        while queue and (settled or self._has_whole_name(queue[0])):
            if not settled and self._nameless and queue[0] in self._indices.chosen:
                return
            call = queue.popleft()
            call.number = self._announced
            self._announced += 1
            out.append(ToolCall(call.number, call.id, call.name, call.extra))
            if call.size:
                out.append(ToolArguments(call.number, call.arguments.text))
            if call.cut:
                out.append(ToolCallCut(call.number))

    def _has_whole_name(self, call: PartialCall) -> bool:
        if call.stage in ("open", "whole"):
            return True
        return call.name in self._tools and not any(name != call.name and name.startswith(call.name) for name in self._tools)

    def _cut(self, call: PartialCall, out: list[Delta]) -> None:
        if not call.cut and call.number >= 0:
            out.append(ToolCallCut(call.number))
        call.cut = True

    def _still_unfinished(self) -> list[PartialCall]:
        if len(self._unfinished) <= _MOST_UNFINISHED:
            self._unfinished = [call for call in self._unfinished if call.unfinished]
        return self._unfinished

    # ---- the end -----------------------------------------------------------------------------------------------------------

    def _place_last(self, out: list[Delta]) -> None:
        """Give the last arguments without a name to the call that waits for them, if that is clear."""
        last = self._nameless[-1] if self._nameless else None
        rival = last.rival if last is not None else None
        if last is None or rival is None or last.cut or rival.stage != "empty" or last.stage == "empty":
            return
        if last.stage != "whole" or not last.arguments.is_json:
            self._cut(last, out)
            self._cut(rival, out)
            return
        self._nameless.pop()
        self._doubt_indices(rival, out)
        out += () if self._nameless else self._indices.release()
        self._take(rival, last.arguments.text, out)
        if last.index is not None:
            self._indices.at[last.index] = rival

    def _place_nameless(self, out: list[Delta]) -> None:
        """Give arguments without a name to the call that waits for them; where that is not clear, no call is handed over
        that is not whole."""
        for call in self._nameless:
            self._settle_start(call, out)
        if len(self._nameless) == 1:
            self._place_last(out)
        if any(call.arguments.begun for call in self._nameless):
            for call in self._calls:
                if call.name and call.stage != "whole":
                    self._cut(call, out)
            self._doubt_indices(None, out)
        out += self._indices.release()

    def _settle_start(self, call: PartialCall, out: list[Delta]) -> None:
        """Take a placeholder as the arguments of a call."""
        if self._held.pop(call, call) is None:
            call.settled = True
            self._give_out(call, _written(call.start.settle(), needed=self._requires(call.name)), out)

    def _cut_doubtful(self, out: list[Delta]) -> None:
        """Cut calls that are not whole and may be parts of others: so is a call without arguments, if another object stands
        behind the end of a call, or if its name comes again with some, and neither ids nor indices can be relied on."""
        doubled = {call: call.index for call in self._calls if call.has_rest}  # of which the rest may be another's arguments
        strays = bool(doubled) and any(call.stage == "empty" for call in self._calls)
        at_one = {call.index for call in self._held}.intersection(doubled.values())
        later: dict[str, set[int | None]] = {}  # the indices of later calls with arguments, by name
        unreliable: set[str] = set()  # the names of those whose ids have changed
        for call in reversed(self._calls):
            stage = call.stage
            if stage != "empty":
                later.setdefault(call.name, set()).add(call.index)
                if call.other_ids:
                    unreliable.add(call.name)
            missing = stage == "empty" and (strays or call.index in later.get(call.name, ()))
            missing = missing or (stage in ("empty", "placeholder") and call.name in unreliable)
            missing = missing or (call.index in at_one and (stage == "placeholder" or call in doubled))
            partial = stage == "open" or (stage == "whole" and not call.arguments.is_json)
            if call.name and (missing or (strays and call in doubled) or (call.doubtful and partial)):
                self._cut(call, out)

    def _take_placeholders(self, out: list[Delta], broken: bool) -> None:
        """Take placeholders as arguments: nothing came behind them."""
        gone_on = not broken
        for call in reversed(self._calls):
            if call in self._held and not (gone_on or call.left):
                self._cut(call, out)
            gone_on = gone_on or call.stage in ("open", "whole")
        for call in list(self._held):
            self._settle_start(call, out)

    def _tool(self, name: str) -> str:
        return offered_name(self._tools, name)


def _are_again(entries: Sequence[ToolCallDelta], calls: Sequence[PartialCall], tool: Callable[[str], str]) -> bool:
    """Tell whether these are all calls of the answer, which are whole: several, or one that has lost its id. No answer is
    likely to make them twice. `tool` returns the tool that a name stands for."""
    if len(entries) != len(calls) or not (len(calls) > 1 or (calls and calls[0].id and not entries[0].id)):
        return False
    return all(
        call.stage != "open" and tool(call.name) == tool(_name_of(entry)) and call.repeated_by(_arguments_of(entry))
        for call, entry in zip(calls, entries, strict=True)
    )


def _any_empty(calls: Sequence[PartialCall]) -> bool:
    """Tell whether one of these calls may have no arguments yet."""
    return len(calls) > _MOST_UNFINISHED or any(call.stage == "empty" for call in calls)


def _name_of(entry: ToolCallDelta) -> str:
    return (entry.function and entry.function.name) or ""


def _arguments_of(entry: ToolCallDelta) -> str:
    arguments = None if entry.function is None else entry.function.arguments
    if arguments is None:
        return ""
    return arguments if type(arguments) is str else json_text(arguments)


def _function_of(entry: ToolCallDelta) -> FunctionDelta:
    """Return what an entry says of its function: some servers leave `function` out, call the arguments otherwise, or leave
    them in the name."""
    function = entry.function or FunctionDelta(entry.name if isinstance(entry.name, str) else None)
    if not function.arguments:
        others = (entry.arguments, function.parameters, function.input, entry.parameters, entry.input)
        written = (other for other in others if other and isinstance(other, str | dict | list))
        function.arguments = next(written, function.arguments)
    if function.name and "{" in function.name and (not function.arguments or function.arguments in ("{}", "null")):
        function.name, brace, rest = function.name.partition("{")
        function.arguments = brace + rest
    return function


def _tells(function: FunctionDelta | None) -> bool:
    return function is not None and bool(function.name or function.arguments)


def _begins_object(arguments: str) -> bool:
    return arguments.lstrip()[:1] == "{"


def _is_blank(arguments: str) -> bool:
    """Tell whether these are no arguments."""
    return len(arguments) < _LONGEST_BLANK and arguments.strip() in ("", '""', "null")


def _written(arguments: str, *, needed: bool) -> str:
    """Return the arguments that a model has written, which has left them out if `null` stands there and none are `needed`."""
    return arguments if needed or not _is_blank(arguments) else ""


def _is_whole(arguments: str) -> bool:
    read = Arguments()
    read.append(arguments)
    return read.closed
