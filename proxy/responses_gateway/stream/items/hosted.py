"""The items of hosted tools: calls that the gateway runs itself, so that the item of a call has its result, too.

A call for which the client's approval is needed is an `mcp_approval_request`, which has no events of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from responses_gateway.stream.writer.interface import EventWriter, ItemStatus
from responses_gateway.wire.hosted import CitedSource
from responses_gateway.wire.json_text import CustomInput, read_object
from responses_gateway.wire.tools import ToolTarget

# Values of `include`, by which a client asks for what items leave out otherwise.
SEARCH_SOURCES = "web_search_call.action.sources"
SEARCH_RESULTS = "file_search_call.results"
CODE_OUTPUTS = "code_interpreter_call.outputs"


class HostedOptions(NamedTuple):
    """What the items of a request's hosted tools depend on: the values of `include`, and the id of the container that the
    request's code runs in. `sources` were shown to the model in earlier responses, and may be cited. `shows_results`: the
    client gets what the model reads of them."""

    include: frozenset[str] = frozenset()
    container_id: str = ""
    sources: tuple[CitedSource, ...] = ()
    shows_results: bool = False


class CallOutcome(msgspec.Struct, frozen=True):
    """The outcome of a hosted call, for its item. `item` has the members that the result adds to the item of the call;
    `sources` may be cited from now on. `text` is what the model reads, if `HostedOptions.shows_results`."""

    item: dict[str, Any] = {}
    failed: bool = False
    sources: tuple[CitedSource, ...] = ()
    text: str = ""


class ToolListing(msgspec.Struct, frozen=True):
    """The tools of an MCP server, as its item shows them; `error` says why there are none."""

    label: str
    tools: list[dict[str, Any]] = []
    error: str | None = None


class ApprovedCall(msgspec.Struct, frozen=True):
    """A call of an MCP tool that the client has approved, and its outcome; None if it was interrupted. `request_id` is the id
    of the request."""

    request_id: str
    label: str
    name: str
    arguments: str
    outcome: CallOutcome | None


class HostedItem:
    """The item of a call that the gateway runs: it is open from the first piece of the arguments until the result is there."""

    prefix: str  # of the item's id
    kind: str  # the item's type

    __slots__ = ("_deltas", "_options", "_place", "_ran", "_target", "_writer", "outcome")

    def __init__(self, writer: EventWriter, item_id: str, target: ToolTarget, options: HostedOptions) -> None:
        """Begin the item."""
        self._writer = writer
        self._target = target
        self._options = options
        self._deltas = 0
        self._ran = False
        self.outcome: CallOutcome | None = None
        self._place = writer.open_hosted(self.kind, item_id, {"status": "in_progress", **self._empty()})

    def append(self, text: str) -> None:
        """Write a piece of the arguments, if the kind shows them while they come."""

    def run(self, arguments: str) -> None:
        """Write that the arguments are whole and that the call runs."""
        self._ran = True
        members = self._members(arguments, CallOutcome())
        self._writer.run_hosted(self._place, self._shown(arguments), deltas=self._deltas, members=members)

    def close(self, status: ItemStatus, arguments: str) -> None:
        """Write the result, and the item itself. A call without one, in an answer that was cut, was not run."""
        outcome = self.outcome
        if not self._ran:
            self.run(arguments)
        if outcome is None:
            final: str = status if status == "completed" else self._cut
        else:
            final = "failed" if outcome.failed else "completed"
        outcome = outcome or CallOutcome()
        members = {"status": final, **self._members(arguments, outcome)}
        self._writer.close_hosted(self._place, members, end=final, sources=outcome.sources, text=outcome.text)

    @property
    def _cut(self) -> str:
        return "incomplete"

    def _shown(self, arguments: str) -> str:
        """Return the whole of what the kind shows while it comes."""
        return ""

    def _write(self, text: str) -> None:
        self._deltas += 1
        self._writer.write_delta(self._place, text)

    def _empty(self) -> dict[str, Any]:
        """Return the members of the item when it is added."""
        return {}

    def _members(self, arguments: str, outcome: CallOutcome) -> dict[str, Any]:
        """Return the members of the item when it is done."""
        return dict(outcome.item)


class McpCallItem(HostedItem):
    """`mcp_call`: the arguments go through as they come."""

    prefix = "mcp"
    kind = "mcp_call"

    __slots__ = ("_approval",)

    def __init__(
        self, writer: EventWriter, item_id: str, target: ToolTarget, options: HostedOptions, approval: str | None = None
    ) -> None:
        """Add the item. `approval` is the id of the request that the client approved."""
        self._approval = approval
        super().__init__(writer, item_id, target, options)

    def append(self, text: str) -> None:
        """Write a piece of the arguments."""
        self._write(text)

    def _shown(self, arguments: str) -> str:
        return arguments

    def _empty(self) -> dict[str, Any]:
        return self._members("", CallOutcome())

    def _members(self, arguments: str, outcome: CallOutcome) -> dict[str, Any]:
        return {
            "server_label": self._target.namespace,
            "name": self._target.name,
            "arguments": arguments,
            "approval_request_id": self._approval,
            "output": None,
            "error": None,
            **outcome.item,
        }


class WebSearchItem(HostedItem):
    """`web_search_call`: a search, a page that is opened, or a text that is sought in a page."""

    prefix = "ws"
    kind = "web_search_call"

    __slots__ = ()

    @property
    def _cut(self) -> str:
        return "failed"  # the type has no other status for it

    def _members(self, arguments: str, outcome: CallOutcome) -> dict[str, Any]:
        action = dict(outcome.item.get("action") or asked_action(self._target.name, arguments))
        if SEARCH_SOURCES not in self._options.include:
            action.pop("sources", None)
        return {**outcome.item, "action": action}


class FileSearchItem(HostedItem):
    """`file_search_call`."""

    prefix = "fs"
    kind = "file_search_call"

    __slots__ = ()

    def _empty(self) -> dict[str, Any]:
        return {"queries": [], "results": None}

    def _members(self, arguments: str, outcome: CallOutcome) -> dict[str, Any]:
        members = {"queries": asked_queries(arguments), "results": None, **outcome.item}
        if SEARCH_RESULTS not in self._options.include:
            members["results"] = None
        elif members["results"]:
            members["results"] = scored(members["results"])
        return members


class CodeInterpreterItem(HostedItem):
    """`code_interpreter_call`: the code is decoded out of the arguments while they arrive."""

    prefix = "ci"
    kind = "code_interpreter_call"

    __slots__ = ("_decoder", "_pieces")

    def __init__(self, writer: EventWriter, item_id: str, target: ToolTarget, options: HostedOptions) -> None:
        self._pieces: list[str] = []
        self._decoder = CustomInput(member="code")
        super().__init__(writer, item_id, target, options)

    def append(self, text: str) -> None:
        """Write the code in a piece of the arguments."""
        self._write_code(self._decoder.feed(text))

    def run(self, arguments: str) -> None:
        """Write the rest of the code, and that it runs."""
        self._write_code(self._decoder.finish(arguments))
        super().run(arguments)

    def _write_code(self, code: str) -> None:
        if code:
            self._pieces.append(code)
            self._write(code)

    def _shown(self, arguments: str) -> str:
        return "".join(self._pieces)

    def _empty(self) -> dict[str, Any]:
        return {"code": "", "container_id": self._options.container_id, "outputs": None}

    def _members(self, arguments: str, outcome: CallOutcome) -> dict[str, Any]:
        members = {"code": "".join(self._pieces), "container_id": self._options.container_id, "outputs": None, **outcome.item}
        if CODE_OUTPUTS not in self._options.include:
            members["outputs"] = None
        return members


class ImageGenerationItem(HostedItem):
    """`image_generation_call`: the image is in the item when it is done."""

    prefix = "ig"
    kind = "image_generation_call"

    __slots__ = ()

    @property
    def _cut(self) -> str:
        return "failed"  # the type has no other status for it

    def _empty(self) -> dict[str, Any]:
        return {"result": None}

    def _members(self, arguments: str, outcome: CallOutcome) -> dict[str, Any]:
        return {"result": None, **outcome.item}


class ApprovalRequestItem:
    """`mcp_approval_request`: the client decides whether the call is made. It is added when it is whole."""

    prefix = "mcpr"

    __slots__ = ("_id", "_target", "_writer")

    def __init__(self, writer: EventWriter, item_id: str, target: ToolTarget, _options: HostedOptions) -> None:
        self._writer = writer
        self._id = item_id
        self._target = target

    def append(self, text: str) -> None:
        """Write nothing: a request has no deltas."""

    def close(self, status: ItemStatus, arguments: str) -> None:
        """Write the item if the call is whole."""
        if status == "completed":
            place = {"name": self._target.name, "server_label": self._target.namespace or ""}
            self._writer.write_item("mcp_approval_request", self._id, {"arguments": arguments, **place})


_ITEMS: dict[str, type[HostedItem]] = {
    "mcp": McpCallItem,
    "web_search": WebSearchItem,
    "file_search": FileSearchItem,
    "code_interpreter": CodeInterpreterItem,
    "image_generation": ImageGenerationItem,
}
# Types of the items of calls that the gateway runs.
HOSTED_ITEMS = frozenset(item.kind for item in _ITEMS.values())


def new_hosted_item(
    writer: EventWriter, new_id: Callable[[str], str], target: ToolTarget, options: HostedOptions
) -> HostedItem | ApprovalRequestItem:
    """Return the item for a call of a hosted tool; `new_id` makes its id of a prefix."""
    kind = ApprovalRequestItem if target.needs_approval else _ITEMS[target.kind]
    return kind(writer, new_id(kind.prefix), target, options)


def write_tool_list(writer: EventWriter, item_id: str, listing: ToolListing) -> None:
    """Write the events and the item of a list of an MCP server's tools."""
    ok = listing.error is None
    found: dict[str, Any] = {"tools": listing.tools} if ok else {"tools": [], "error": listing.error}
    place = writer.open_hosted("mcp_list_tools", item_id, {"server_label": listing.label, "tools": []})
    writer.close_hosted(place, {"server_label": listing.label, **found}, end="completed" if ok else "failed")


def write_approved_call(writer: EventWriter, item_id: str, call: ApprovedCall, options: HostedOptions) -> None:
    """Write the events and the item of a call that the client has approved, with its outcome."""
    item = McpCallItem(writer, item_id, ToolTarget("mcp", call.name, call.label), options, approval=call.request_id)
    arguments = call.arguments or "{}"
    item.append(arguments)
    item.outcome = call.outcome
    item.close("completed" if call.outcome is not None else "incomplete", arguments)


def scored(results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return results that all have a score, since a client requires it: the reciprocal of its rank for one without."""
    return [{"score": round(1 / rank, 4), **result} for rank, result in enumerate(results, 1)]


def asked_action(operation: str, arguments: str) -> dict[str, Any]:
    """Return the `action` that the arguments of a call of `operation` ask for, as far as they can be read."""
    asked = read_object(arguments) or {}
    if operation == "open_page":
        return {"type": "open_page", "url": _text(asked.get("url"))}
    if operation == "find_in_page":
        return {"type": "find_in_page", "url": _text(asked.get("url")), "pattern": _text(asked.get("pattern"))}
    queries = asked_queries(arguments)
    return {"type": "search", "query": queries[0] if queries else "", "queries": queries}


def asked_queries(arguments: str) -> list[str]:
    """Return the queries in the arguments of a search."""
    asked = read_object(arguments) or {}
    queries = asked.get("queries")
    found = queries if isinstance(queries, list) else [queries, asked.get("query")]
    return [query for query in found if isinstance(query, str)]


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
