"""Fields that the gateway adds to a chat request on its own (`wire/added_fields.py`): renamed or given up where a strict server
refuses them by name.

What a client asked for stays. A refusal is believed once the changed request is accepted. Each field is changed twice at most
(another name, then none), so that a server cannot have a request repeated without end."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

import msgspec

from responses_gateway.backend.transport.refusals import NO_SWITCH, read_refused
from responses_gateway.bounded_memory import BoundedDict
from responses_gateway.wire.added_fields import EFFORTS, LIMIT, AddedFields, field_at
from responses_gateway.wire.context_overflow import most_output
from responses_gateway.wire.errors import searched_text

# Answers that may be the refusal of a field: some servers answer 404 to a field that they do not know, or 500.
REFUSALS = frozenset({400, 404, 422, 500, 501})
ATTEMPTS = 8  # how often a request is repeated, because a server may name one field at a time
# Most models whose changes are kept, because some servers take any name of a model, and names come from clients.
_MOST_MODELS = 256
_NONE_WITH_TOOLS = re.compile(r"\btools\b.{0,80}\breasoning_effort to \W{0,2}none\b")  # OpenAI of GPT-5.6
# The names under which a request has its limit.
_LIMITS = ("max_completion_tokens", "max_tokens")

# A path -> the name under which the field is sent instead, or its other value if the path has one; empty: it is left out. The
# limit has what is sent at most.
Changes: TypeAlias = Mapping[str, str]
_Fields: TypeAlias = dict[str, msgspec.Raw]


def refusals_of(added: AddedFields) -> frozenset[int]:
    """Return the statuses that may be the refusal of one of these fields."""
    return REFUSALS.union(field.also for field in added.values() if field.also is not None)


class LearnedChanges(BoundedDict[str, Changes]):
    """The changes that a server turned out to need, by its name of the model."""

    def __init__(self) -> None:
        super().__init__(_MOST_MODELS)

    def note(self, model: str, changes: Changes) -> None:
        """Take what was learned about a model."""
        self[model] = {**self.get(model, {}), **changes}


class ChangedBody(NamedTuple):
    """A chat request as it is sent, and the changes of fields that it has no more, or with less or another value."""

    data: bytes
    left_out: Changes


def changed(body: bytes, changes: Changes, added: AddedFields) -> ChangedBody:
    """Return a chat request with the changes of those fields that the gateway has added; the others stay byte for byte."""
    fields = msgspec.json.decode(body, type=_Fields)
    own = [path for path, instead in changes.items() if path in added and (_keeps(path, instead) or not added[path].needed)]
    applied = [path for path in own if _change(fields, path, changes[path], added[path].value)]
    if not applied:
        return ChangedBody(body, {})
    left_out = {path: changes[path] for path in applied if not changes[path] or path == LIMIT or "=" in path}
    return ChangedBody(msgspec.json.encode(fields), left_out)


def further_changes(refusal: bytes, body: bytes, changes: Changes, added: AddedFields) -> Changes:
    """Return the changes for which a refusal asks: those that were made already to `body`, and those of fields it names."""
    fields = msgspec.json.decode(body, type=_Fields)
    read = read_refused(refusal)
    following = dict(changes)
    for path, field in added.items():
        former = changes.get(path)
        place = field_at(path)
        may_be_quoted = place != path and following != changes  # a refusal of another field may quote the request
        if former == "" or may_be_quoted or not _holds(fields, place, field.value):
            continue
        above, dot, leaf = place.rpartition(".")
        reasons = {read.refuses(place, name) for name in ((place == path and former) or leaf, *_members(fields, place))}
        if field.word:
            reasons.add(read.mentions(leaf))
        if field.switch and NO_SWITCH.search(read.text):
            reasons.add("name")
        renames = field.instead and former is None and "name" in reasons
        if renames and not _holds(fields, f"{above}{dot}{field.instead}"):
            following[path] = field.instead
        elif "name" in reasons or ("value" in reasons and field.value is msgspec.UNSET):
            instead = "" if former else _nearest_effort(refusal, path, hint=not field.needed)
            if instead or not field.needed:
                following[path] = instead
    if LIMIT in added and following == changes:
        limit = next((int(fields[name]) for name in _LIMITS if name in fields), 0)
        most = most_output(searched_text(refusal), min(limit, int(changes.get(LIMIT, limit))))
        if most is not None:
            following[LIMIT] = str(most)
    return following


def _nearest_effort(refusal: bytes, path: str, *, hint: bool) -> str:
    """Return which of the efforts that a refusal names is the nearest to that of a path, the higher one of two; nothing if it
    names no other one, or if the path has none. No thought is given up, unless it is a `hint`, and tools are taken without."""
    refused = path.partition("=")[2]
    text = searched_text(refusal)
    others = EFFORTS if refused == "minimal" or (hint and _NONE_WITH_TOOLS.search(text)) else EFFORTS[1:]
    named = set(re.findall(r"\w+", text)).intersection(others) - {refused} if refused else ()
    at = EFFORTS.index
    return min(named, key=lambda effort: (abs(at(effort) - at(refused)), -at(effort)), default="")


def _keeps(path: str, instead: str) -> bool:
    """Tell whether a change leaves what the client asked for: a field, and a thought."""
    return instead != "" and (instead != "none" or path.endswith("=minimal"))


def _members(fields: _Fields, path: str) -> list[str]:
    """Return the names of the members of an object at the top: a server that refuses one of them refuses the object."""
    raw = fields.get(path)
    if raw is None or not bytes(raw).startswith(b"{"):
        return []
    return [name for name in msgspec.json.decode(raw, type=_Fields) if "_" in name]


def _holds(fields: _Fields, path: str, value: Any = msgspec.UNSET) -> bool:
    """Tell whether there is a field at a path, with this value if one is given."""
    step, _, rest = path.partition(".")
    raw = fields.get(step.removesuffix("[]"))
    if raw is None:
        return False
    if not rest:
        return value is msgspec.UNSET or msgspec.json.decode(raw) == value
    return any(_holds(inner, rest, value) for inner in _inner(raw, step))


def _change(fields: _Fields, path: str, name: str, value: Any) -> bool:
    """Rename the field at a path, leave it out, or lower the limit; tell whether there was one with this value."""
    if path == LIMIT:
        higher = [key for key in _LIMITS if key in fields and int(fields[key]) > int(name)]
        fields.update(dict.fromkeys(higher, msgspec.Raw(name.encode())))
        return bool(higher)
    place = field_at(path)
    step, _, rest = place.partition(".")
    key = step.removesuffix("[]")
    if not _holds(fields, place, value):
        return False
    if not rest:
        raw = fields.pop(key)
        if name:
            fields.update({name: raw} if place == path else {key: msgspec.Raw(msgspec.json.encode(name))})
        return True
    inner = _inner(fields[key], step)
    for holder in inner:
        _change(holder, rest, name, value)
    left = inner if step.endswith("[]") else inner[0]
    if left:
        fields[key] = msgspec.Raw(msgspec.json.encode(left))
    else:
        del fields[key]
    return True


def _inner(raw: msgspec.Raw, step: str) -> list[_Fields]:
    """Return the objects in which a path goes on: those of a list, or the one that is there; none where there are others."""
    try:
        if step.endswith("[]"):
            return msgspec.json.decode(raw, type=list[_Fields])
        return [msgspec.json.decode(raw, type=_Fields)]
    except msgspec.ValidationError:
        return []
