"""The tool-call items: a call of a function becomes the item of the tool that the client declared."""

from __future__ import annotations

from typing import Protocol

from proxy.stream import writer
from proxy.stream.actions import action_json
from proxy.stream.items.text_items import ItemStatus, Pen
from proxy.stream.writer import quote
from proxy.wire.json_text import CustomInput, JsonScanner
from proxy.wire.tools import ToolTarget


class CallItem(Protocol):
    """A tool call of any type, fed with the JSON arguments of the function that stands for the tool."""

    def append(self, pen: Pen, text: str) -> None:
        """A piece of the arguments."""

    def close(self, pen: Pen, status: ItemStatus, arguments: str) -> None:
        """The call ends; `arguments` is the whole text."""


class FunctionCallItem:
    """`function_call`: the arguments go through as they are."""

    __slots__ = ("_deltas", "_fields", "_head", "_id", "_index")

    def __init__(self, pen: Pen, item_id: str, call_id: str, target: ToolTarget) -> None:
        self._id = item_id
        self._deltas = 0
        self._fields = _call_fields("function_call", item_id, call_id, target)
        self._index = pen.add(f'{self._fields},"arguments":"","status":"in_progress"}}')
        self._head = writer.delta_head("response.function_call_arguments.delta", item_id, self._index)

    def append(self, pen: Pen, text: str) -> None:
        """A piece of the arguments."""
        self._deltas += 1
        pen.out.append(writer.DELTA % (self._head, pen.seq, writer.quoted(text)))
        pen.seq += 1

    def close(self, pen: Pen, status: ItemStatus, arguments: str) -> None:
        """The done, and the item itself."""
        kind = "response.function_call_arguments"
        pen.write(writer.text_done(f"{kind}.done", pen.seq, self._id, self._index, "arguments", arguments))
        pen.count(f"{kind}.delta", self._deltas)
        item = f'{self._fields},"arguments":{quote(arguments)},"status":"{status}"}}'
        pen.finish("function_call", self._index, item)


class CustomCallItem:
    """`custom_tool_call`: the freeform input, decoded out of the arguments while they arrive.

    One that is not `live` keeps its input to itself until it is closed; then it is its `replacement`, if it was given one.
    """

    __slots__ = ("_decoder", "_fields", "_head", "_id", "_index", "_live", "_pieces", "replacement")

    def __init__(self, pen: Pen, item_id: str, call_id: str, target: ToolTarget, *, live: bool = True) -> None:
        self._id = item_id
        self._live = live
        self.replacement: str | None = None
        self._pieces: list[str] = []
        self._decoder = CustomInput()
        self._fields = _call_fields("custom_tool_call", item_id, call_id, target)
        self._index = pen.add(f'{self._fields},"input":"","status":"in_progress"}}')
        self._head = writer.delta_head("response.custom_tool_call_input.delta", item_id, self._index)

    def append(self, pen: Pen, text: str) -> None:
        """A piece of the arguments."""
        self._write(pen, self._decoder.feed(text))

    def close(self, pen: Pen, status: ItemStatus, arguments: str) -> None:
        """The rest of the input, the done, and the item itself."""
        if self._live:
            self._write(pen, self._decoder.finish(arguments))
        else:
            text = self.input_of(arguments) if self.replacement is None else self.replacement
            self._pieces, self._live = [], True
            self._write(pen, text)
        text = "".join(self._pieces)
        kind = "response.custom_tool_call_input"
        pen.write(writer.text_done(f"{kind}.done", pen.seq, self._id, self._index, "input", text))
        pen.count(f"{kind}.delta", len(self._pieces))
        item = f'{self._fields},"input":{quote(text)},"status":"{status}"}}'
        pen.finish("custom_tool_call", self._index, item)

    def input_of(self, arguments: str) -> str:
        """The whole input, given all of the arguments."""
        return "".join(self._pieces) + self._decoder.finish(arguments)

    def _write(self, pen: Pen, text: str) -> None:
        if text:
            self._pieces.append(text)
        if text and self._live:
            pen.out.append(writer.DELTA % (self._head, pen.seq, writer.quoted(text)))
            pen.seq += 1


class ActionCallItem:
    """The calls whose arguments are an object of their own shape (`local_shell_call`, `shell_call`, ...).

    Such an item has no delta events, and a half-written action is of no use to anybody: it is added when it is whole. What
    does not fit the type is handed over as a `function_call`, so that the client can say what is wrong with it.
    """

    __slots__ = ("_call_id", "_id", "_target")

    def __init__(self, pen: Pen, item_id: str, call_id: str, target: ToolTarget) -> None:
        self._id = item_id
        self._call_id = call_id
        self._target = target

    def append(self, pen: Pen, text: str) -> None:
        """Nothing to show yet."""

    def close(self, pen: Pen, status: ItemStatus, arguments: str) -> None:
        """Added and done in one go; a cut call never appears."""
        if status != "completed":
            return
        action = action_json(self._target, arguments)
        if action is None:
            call = FunctionCallItem(pen, self._id, self._call_id, self._target)
            call.append(pen, arguments)
            call.close(pen, status, arguments)
            return
        kind = f"{self._target.kind}_call"
        head = f'{{"type":"{kind}","id":"{self._id}","call_id":{quote(self._call_id)},{action}'
        index = pen.add(f'{head},"status":"in_progress"}}')
        pen.finish(kind, index, f'{head},"status":"{status}"}}')


def open_call(pen: Pen, item_id: str, call_id: str, target: ToolTarget, *, live: bool = True) -> CallItem:
    """The item for a call of `target`; `live` is for a custom tool."""
    if target.kind == "function":
        return FunctionCallItem(pen, item_id, call_id, target)
    if target.kind == "custom":
        return CustomCallItem(pen, item_id, call_id, target, live=live)
    return ActionCallItem(pen, item_id, call_id, target)


#: Prefix of the item id, by kind of tool.
CALL_ID_PREFIX = {
    "function": "fc",
    "custom": "ctc",
    "local_shell": "lsh",
    "shell": "sh",
    "apply_patch": "apc",
    "tool_search": "tsc",
}


class Arguments:
    """The arguments of one call as they arrive: the text so far, and whether its JSON is closed (looked at when asked)."""

    __slots__ = ("_pieces", "_scanned", "_scanner")

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._scanner = JsonScanner()
        self._scanned = 0

    def append(self, text: str) -> None:
        """The next piece."""
        self._pieces.append(text)

    @property
    def text(self) -> str:
        """All of it."""
        return "".join(self._pieces)

    @property
    def bracketed(self) -> bool:
        """This is a JSON object or array. Of anything else (`null`, freeform text) nobody can tell whether it is complete."""
        return self.text.lstrip()[:1] in {"{", "["}

    @property
    def closed(self) -> bool:
        """The JSON object is complete: nothing that belongs to it can follow."""
        while self._scanned < len(self._pieces):
            self._scanner.feed(self._pieces[self._scanned])
            self._scanned += 1
        return self._scanner.closed


def _call_fields(kind: str, item_id: str, call_id: str, target: ToolTarget) -> str:
    namespace = "" if target.namespace is None else f',"namespace":{quote(target.namespace)}'
    return f'{{"type":"{kind}","id":"{item_id}","call_id":{quote(call_id)},"name":{quote(target.name)}{namespace}'
