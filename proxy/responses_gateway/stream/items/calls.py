"""The items of tool calls: a call of a function becomes the item of the tool that the client declared."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, Protocol

import msgspec

from responses_gateway.stream.items.hosted import ApprovalRequestItem, HostedItem, extra_members
from responses_gateway.stream.validity.call_rules import CallRules
from responses_gateway.stream.validity.malformed import contradicts_itself, hides_more
from responses_gateway.stream.writer.interface import EventWriter, ItemStatus, Place
from responses_gateway.wire.deltas import ToolCall
from responses_gateway.wire.json_text import CustomInput, JsonScanner, json_text, read_object
from responses_gateway.wire.tools import ToolTarget

_BRACKETS = frozenset("{[")
# Prefix of the item id, by kind of tool.
CALL_ID_PREFIX = {
    "function": "fc",
    "custom": "ctc",
    "local_shell": "lsh",
    "shell": "sh",
    "apply_patch": "apc",
    "tool_search": "tsc",
}


class CallItem(Protocol):
    """The item of a tool call of any type, fed with the JSON arguments of the function that stands for the tool."""

    def append(self, text: str) -> None:
        """Write a piece of the arguments."""

    def close(self, status: ItemStatus, arguments: str, extra: str = "", /) -> None:
        """End the call; `arguments` is the whole text, `extra` is what the server wants back with it."""


class FunctionCallItem:
    """`function_call`: the arguments go through as they are."""

    __slots__ = ("_deltas", "_place", "_plain", "_writer")

    def __init__(self, writer: EventWriter, item_id: str, call_id: str, target: ToolTarget, extra: str) -> None:
        self._writer = writer
        self._deltas = 0
        self._plain = target.expects_ciphertext  # otherwise Codex takes the text of the argument for ciphertext
        self._place = writer.open_call("function_call", item_id, call_id, target, extra)

    def append(self, text: str) -> None:
        """Write a piece of the arguments."""
        self._deltas += 1
        self._writer.write_delta(self._place, text)

    def close(self, status: ItemStatus, arguments: str, extra: str = "") -> None:
        """End the call."""
        self._writer.close_call(self._place, status, arguments, deltas=self._deltas, plain=self._plain, extra=extra)


@dataclass(slots=True)
class HeldCallItem:
    """A `function_call` of which nothing is written before it is closed: one that the model makes again leaves no trace. What
    begins the item that is written in the end is given what the server wants back with it."""

    _begin: Callable[[str], FunctionCallItem]
    _pieces: list[str] = field(default_factory=list)

    def append(self, text: str) -> None:
        """Take a piece of the arguments."""
        self._pieces.append(text)

    def close(self, status: ItemStatus, arguments: str, extra: str = "") -> None:
        """Write the whole call."""
        item = self._begin(extra)
        if self._pieces:
            item.append("".join(self._pieces))
        item.close(status, arguments, extra)


class CustomCallItem:
    """`custom_tool_call`: the freeform input, decoded out of the arguments while they arrive. An item that is not `live` keeps
    its input to itself until it is closed; then it is its `replacement`, if it has one. Without `extra` it begins then."""

    __slots__ = ("_begin", "_decoder", "_live", "_pieces", "_place", "_writer", "replacement")

    def __init__(self, writer: EventWriter, begin: Callable[[str], Place], tool: str, extra: str | None, *, live: bool) -> None:
        self._writer = writer
        self._begin = begin
        self._place = None if extra is None else begin(extra)
        self._live = live
        self.replacement: str | None = None
        self._pieces: list[str] = []
        self._decoder = CustomInput(tool=tool)

    def append(self, text: str) -> None:
        """Write the input in a piece of the arguments."""
        self._write(self._decoder.feed(text))

    def close(self, status: ItemStatus, arguments: str, extra: str = "") -> None:
        """Write the rest of the input, and end the call."""
        self._place = self._place or self._begin(extra)
        if self._live:
            self._write(self._decoder.finish(arguments))
        else:
            text = self.input_of(arguments) if self.replacement is None else self.replacement
            self._live = True
            self._pieces = []
            self._write(text)
        self._writer.close_call(self._place, status, "".join(self._pieces), deltas=len(self._pieces), extra=extra)

    @property
    def expected(self) -> bool:
        """Whether the arguments have the form that the function asks for."""
        return self._decoder.expected

    @property
    def closed(self) -> bool:
        """Whether they have it, and the input in them is closed."""
        return self._decoder.closed

    def input_of(self, arguments: str) -> str:
        """Return the whole input, given all of the arguments."""
        return "".join(self._pieces) + self._decoder.finish(arguments)

    def _write(self, text: str) -> None:
        if text:
            self._pieces.append(text)
        if text and self._live and self._place is not None:
            self._writer.write_delta(self._place, text)


@dataclass(slots=True)
class ActionCallItem:
    """The calls whose arguments are an object of their own shape (`local_shell_call`, `shell_call`, ...). Such an item has no
    delta events, and a half-written action is of no use to anybody: it is added when it is whole. Arguments that do not fit the
    type are handed over as a `function_call`, so that the client can say what is wrong with them."""

    _writer: EventWriter
    _id: str
    _call_id: str
    _target: ToolTarget

    def append(self, text: str) -> None:
        """Write nothing: there are no events for a part of an action."""

    def close(self, status: ItemStatus, arguments: str, extra: str = "") -> None:
        """Write the item if the call is whole."""
        if status != "completed":
            return
        action = action_of(self._target, arguments)
        if action is None:
            call = FunctionCallItem(self._writer, self._id, self._call_id, self._target, extra)
            if arguments:
                call.append(arguments)
            call.close(status, arguments, extra)
            return
        members = {"call_id": self._call_id, **action, **extra_members(extra)}
        self._writer.write_item(f"{self._target.kind}_call", self._id, members, status)


@dataclass(slots=True)
class Arguments:
    """The arguments of one call as they arrive: the text so far, and whether its JSON is closed (looked at when asked)."""

    _pieces: list[str] = field(default_factory=list)
    _scanner: JsonScanner = field(default_factory=JsonScanner)
    _scanned: int = 0
    _first: str = ""  # the first character that is not white space

    def append(self, text: str) -> None:
        """Add the next piece."""
        if not self._first:
            self._first = text.lstrip()[:1]
        self._pieces.append(text)

    def append_to_end(self, text: str) -> str:
        """Add as much of the next piece as belongs to the JSON object or array, and return that."""
        if ("}" in text or "]" in text or self._scanner.closed) and (self._first or text.lstrip()[:1]) in _BRACKETS:
            self._scan()
            text = text[: self._scanner.feed(text)]
            self._scanned += 1
        self.append(text)
        return text

    @property
    def text(self) -> str:
        """All pieces, joined."""
        return "".join(self._pieces)

    @property
    def begun(self) -> bool:
        """Whether there is anything but white space."""
        return bool(self._first)

    @property
    def bracketed(self) -> bool:
        """Whether this is a JSON object or array. Anything else (`null`, freeform text) may always continue."""
        return self._first in _BRACKETS

    @property
    def closed(self) -> bool:
        """Whether the JSON object or array is complete: nothing that belongs to it can follow."""
        if not self.bracketed:
            return False
        self._scan()
        return self._scanner.closed

    @property
    def is_json(self) -> bool:
        """Whether a client can parse them."""
        try:
            msgspec.json.decode(self.text.encode("utf-8", "replace"), type=msgspec.Raw)
        except (msgspec.DecodeError, RecursionError):
            return False
        return True

    def _scan(self) -> None:
        while self._scanned < len(self._pieces):
            self._scanner.feed(self._pieces[self._scanned])
            self._scanned += 1


def without_rest(text: str) -> str:
    """Return the arguments of a whole call without what stands behind the end of their JSON."""
    arguments = Arguments()
    arguments.append_to_end(text)
    return arguments.text


def as_shown(text: str) -> str:
    """Return the arguments of a whole call as its item shows them: what stands behind the end of their JSON is left out, unless
    it is, or hides, another object."""
    arguments = without_rest(text)
    return arguments if _is_stray(arguments, text[len(arguments) :]) else text


def can_run(text: str) -> bool:
    """Tell whether a tool of the gateway can take the arguments of a whole call: an object, or none."""
    arguments = as_shown(text)
    return arguments.strip() in ("", "null") or read_object(arguments) is not None


def _is_stray(arguments: str, rest: str) -> bool:
    """Tell whether what stands behind the end of arguments means nothing. Another object may be a call of its own, an odd
    quote one that was not escaped in a string, and if the arguments are no JSON, they may not end where their brackets do."""
    if rest.isspace() or not rest:
        return True
    known = read_object(arguments)
    if known is None and arguments[:1] != "[":
        return False
    return not hides_more(rest) or arguments.startswith(rest.strip()) or known == read_object(rest)


class Settled(NamedTuple):
    """What a call is at its end: how valid it is (`CheckedCall.label`; empty: unknown), and what was repaired, by kind."""

    validity: str
    repairs: list[str]


@dataclass(slots=True)
class OpenCall:
    """A call that is being written: its item and its arguments so far. One that is `deferred` waits for a verdict; the result
    of one that is `asynchronous` may come in any later request. The arguments of one that is `held` are written at its end."""

    made: ToolCall  # as the model began it, and what the server wants back with it by now
    item: CallItem
    deferred: bool
    asynchronous: bool
    held: bool
    cut: bool = False  # its markup stopped in the middle
    accepted: bool = False  # its input is not closed, but matches the grammar of the tool
    arguments: Arguments = field(default_factory=Arguments)
    _rest: list[str] = field(default_factory=list)  # behind the end of the arguments
    followed: bool = False  # something is held that ends the call with its JSON

    @property
    def complete(self) -> bool:
        """Whether another item may follow at once."""
        if isinstance(self.item, HostedItem):
            return self.item.outcome is not None
        if self.cut:
            return False  # its end is that of the answer
        if self.deferred or (isinstance(self.item, CustomCallItem) and not self.item.expected):
            return False  # text that merely looks like JSON may continue
        return self.arguments.closed and not self.unreadable

    @property
    def whole(self) -> bool:
        """Whether the call may be handed over, given that the model has ended: the arguments of a function as they are written,
        which its client will refuse if they do not parse; the input of a custom tool only if nothing is missing."""
        item = self.item
        if self.cut or not isinstance(item, CustomCallItem):
            return not self.cut
        if item.expected:
            return item.closed or self.accepted
        return self.arguments.closed or not self.arguments.bracketed

    @property
    def runnable(self) -> bool:
        """Whether the gateway has to run this call, given that the model has ended."""
        waits = self.item.outcome is None if isinstance(self.item, HostedItem) else self.unreadable
        return waits and not self.cut

    @property
    def unreadable(self) -> bool:
        """Whether the client would have to decide about a call that cannot run: the model is told that, as of other calls."""
        return isinstance(self.item, ApprovalRequestItem) and not can_run(self.arguments.text + "".join(self._rest))

    @property
    def doubled(self) -> bool:
        """Whether another object stands behind the input of a custom tool, which is freeform and cannot show it."""
        if self.followed or not isinstance(self.item, CustomCallItem) or not self.item.closed:
            return False
        text = self.arguments.text
        return as_shown(text) == text != without_rest(text)

    @property
    def doubtful(self) -> bool:
        """Whether a call that was read from markup here, so that no server answers for its arguments, may not be run though it
        has ended: they say two things under one name. Those that are no JSON go out as the model wrote them, because clients
        refuse them and tell the model why."""
        if not self.made.parsed or isinstance(self.item, HostedItem):
            return False
        if isinstance(self.item, CustomCallItem) and not self.item.expected:
            return False
        return contradicts_itself(self.arguments.text)

    def append(self, text: str) -> None:
        """Write a piece of the arguments. What stands behind their end, wherever the backend has cut it, waits for `settle`."""
        piece = text
        if isinstance(self.item, CustomCallItem):
            self.arguments.append(text)  # of which the item takes what it needs
        else:
            piece = self.arguments.append_to_end(text)
            if len(piece) < len(text):
                self._rest.append(text[len(piece) :])
        if piece and not self.held:
            self.item.append(piece)

    def settle_rest(self) -> list[str]:
        """Decide about what stands behind the end of the arguments: it is left out, or as written. Return what was repaired."""
        rest = "".join(self._rest)
        self._rest = []
        if not self.followed and not _is_stray(self.arguments.text, rest):
            self.arguments.append(rest)
            if not self.held:
                self.item.append(rest)
            return []
        return ["stray_arguments"] if rest and not rest.isspace() else []

    def settle(self, rules: CallRules | None, *, ended: bool) -> Settled:
        """Decide what is handed over of a call that is whole. `ended`: the model has ended it, and no limit."""
        repairs = self.settle_rest()
        text = self.arguments.text
        custom = isinstance(self.item, CustomCallItem)
        if not text.strip() and (custom or rules is None or not rules.requires_arguments(self.made.name)):
            self.append("{}")
            repairs.append("empty_arguments")
            text = self.arguments.text
        if custom or rules is None:
            return Settled("", repairs + self._not_json())
        checked = rules.check(self.made.name, text, ended=ended and self.held)
        if checked.repairs:
            self.arguments = Arguments([checked.arguments])
            return Settled(checked.label, [*repairs, *checked.repairs])
        is_json = checked.validity in ("valid", "schema")
        return Settled(checked.label, repairs if is_json else repairs + self._not_json())

    def _not_json(self) -> list[str]:
        """Return the kind of repair of arguments that are handed over and are no JSON. A custom tool takes any text."""
        arguments = self.arguments
        custom = isinstance(self.item, CustomCallItem)
        return ["arguments_not_json"] if (arguments.bracketed or not custom) and not arguments.is_json else []

    def close(self, status: ItemStatus) -> None:
        """Write the end of the item."""
        text = self.arguments.text
        if self.held and text:
            self.item.append(text)
        self.item.close(status, text, self.made.extra)


def new_item(
    writer: EventWriter, item_id: str, call_id: str, target: ToolTarget, extra: str, *, live: bool, held: bool
) -> CallItem:
    """Return the item for a call of `target`; `extra` is what the server wants back with it, `live` is for a custom tool.
    Of one that is `held`, of a function or a custom tool, nothing is written before it is closed."""
    if target.kind == "function" and held:
        return HeldCallItem(partial(FunctionCallItem, writer, item_id, call_id, target))
    if target.kind == "function":
        return FunctionCallItem(writer, item_id, call_id, target, extra)
    if target.kind == "custom":
        begin = partial(writer.open_call, "custom_tool_call", item_id, call_id, target)
        return CustomCallItem(writer, begin, target.name, None if held else extra, live=live and not held)
    return ActionCallItem(writer, item_id, call_id, target)


def action_of(target: ToolTarget, arguments: str) -> dict[str, Any] | None:
    """Return the members that carry the action in an item of the tool's type; None if the arguments do not fit."""
    try:
        value: Any = json.loads(arguments)
        members = _members(target, value) if isinstance(value, dict) else None
        json_text(members).encode()
    except (ValueError, RecursionError):  # not JSON, or half a surrogate pair, which cannot be sent
        return None
    return members


def _members(target: ToolTarget, value: dict[str, Any]) -> dict[str, Any] | None:
    match target.kind:
        case "local_shell":
            return _local_shell(value)
        case "shell":
            return _shell(value)
        case "apply_patch":
            return _apply_patch(value)
        case _:
            return {"execution": "client", "arguments": value}


def _local_shell(value: dict[str, Any]) -> dict[str, Any] | None:
    command = value.get("command")
    if not _is_strings(command):
        return None
    action: dict[str, Any] = {
        "type": "exec",
        "command": command,
        "env": value.get("env") if isinstance(value.get("env"), dict) else {},
    }
    for name in ("timeout_ms", "user", "working_directory"):
        if value.get(name) is not None:
            action[name] = value[name]
    return {"action": action}


def _shell(value: dict[str, Any]) -> dict[str, Any] | None:
    commands = value.get("commands")
    if not _is_strings(commands):
        return None
    action = {"commands": commands, "timeout_ms": value.get("timeout_ms"), "max_output_length": value.get("max_output_length")}
    return {"action": action}


def _apply_patch(value: dict[str, Any]) -> dict[str, Any] | None:
    operation = value.get("operation", value)
    if not isinstance(operation, dict) or not isinstance(operation.get("path"), str):
        return None
    kind = operation.get("type")
    diff = operation.get("diff")
    if kind == "delete_file":
        return {"operation": {"type": kind, "path": operation["path"]}}
    if kind not in {"create_file", "update_file"} or not isinstance(diff, str):
        return None
    return {"operation": {"type": kind, "path": operation["path"], "diff": diff}}


def _is_strings(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(entry, str) for entry in value)
