"""The items of hosted tools: calls that the gateway runs itself, so that the item of a call has its result, too.

A call for which the client's approval is needed is an `mcp_approval_request`, which has no events of its own."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from responses_gateway.stream.writer.interface import EventWriter, ItemStatus
from responses_gateway.wire.hosted import CitedSource, ImageUsage
from responses_gateway.wire.hosted_kinds import HOSTED, TOOL_LIST
from responses_gateway.wire.json_text import CustomInput, read_object
from responses_gateway.wire.tools import ToolTarget


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
    `sources` may be cited from now on. `text` is what the model reads, if `shows_results`. `images`: what images have cost."""

    item: dict[str, Any] = {}
    failed: bool = False
    sources: tuple[CitedSource, ...] = ()
    text: str = ""
    images: ImageUsage | None = None


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

    __slots__ = (
        "_approval", "_decoder", "_deltas", "_form", "_options", "_pieces", "_place", "_ran", "_target", "_writer", "outcome",
    )  # fmt: skip

    def __init__(
        self, writer: EventWriter, item_id: str, target: ToolTarget, options: HostedOptions, approval: str | None = None
    ) -> None:
        """Begin the item. `approval` is the id of the request that the client approved."""
        self._writer = writer
        self._form = HOSTED[target.kind].item
        self._target = target
        self._options = options
        self._approval = approval
        self._decoder = CustomInput(member=self._form.text_argument) if self._form.text_argument else None
        self._pieces: list[str] = []  # of the text, where it is decoded
        self._deltas = 0
        self._ran = False
        self.outcome: CallOutcome | None = None
        members = {"status": "in_progress", **self._form.added(self._told(""))}
        self._place = writer.open_hosted(self._form.type, item_id, members)

    def append(self, text: str) -> None:
        """Write what the kind shows of a piece of the arguments."""
        self._write(text if self._decoder is None else self._decoder.feed(text))

    def run(self, arguments: str) -> None:
        """Write that the arguments are whole and that the call runs."""
        if self._decoder is not None:
            self._write(self._decoder.finish(arguments))
        self._ran = True
        text = arguments if self._decoder is None else "".join(self._pieces)
        self._writer.run_hosted(self._place, text, deltas=self._deltas, members=self._members(arguments, CallOutcome()))

    def close(self, status: ItemStatus, arguments: str, extra: str = "") -> None:
        """Write the result, and the item itself. A call without one, in an answer that was cut, was not run."""
        outcome = self.outcome
        if not self._ran:
            self.run(arguments)
        if outcome is None:
            final: str = status if status == "completed" else self._form.interrupted
        else:
            final = "failed" if outcome.failed else "completed"
        outcome = outcome or CallOutcome()
        members = {"status": final, **self._members(arguments, outcome), **extra_members(extra)}
        self._writer.close_hosted(self._place, members, end=final, sources=outcome.sources, text=outcome.text)

    def _write(self, text: str) -> None:
        if text and self._form.text:
            if self._decoder is not None:
                self._pieces.append(text)
            self._deltas += 1
            self._writer.write_delta(self._place, text)

    def _told(self, arguments: str) -> dict[str, Any]:
        """Return the members that the call itself tells."""
        match self._target.kind:
            case "mcp":
                return {
                    "server_label": self._target.namespace,
                    "name": self._target.name,
                    "arguments": arguments,
                    "approval_request_id": self._approval,
                    "output": None,
                    "error": None,
                }
            case "web_search":
                return {"action": asked_action(self._target.name, arguments)}
            case "file_search":
                return {"queries": asked_queries(arguments), "results": None}
            case "code_interpreter":
                return {"code": "".join(self._pieces), "container_id": self._options.container_id, "outputs": None}
            case _:
                return dict(self._form.empty)

    def _members(self, arguments: str, outcome: CallOutcome) -> dict[str, Any]:
        """Return the members of the item when it is done, without what the client gets on request alone."""
        members = {**self._told(arguments), **outcome.item}
        if self._form.on_request and self._form.include not in self._options.include:
            name, _, inner = self._form.on_request.partition(".")
            outer = members[name]
            members[name] = {key: value for key, value in outer.items() if key != inner} if inner else self._form.empty[name]
        return members


@dataclass(slots=True)
class ApprovalRequestItem:
    """`mcp_approval_request`: the client decides whether the call is made. It is added when it is whole."""

    _writer: EventWriter
    _id: str
    _target: ToolTarget

    def append(self, text: str) -> None:
        """Write nothing: a request has no deltas."""

    def as_call(self, item_id: str, arguments: str, options: HostedOptions) -> HostedItem:
        """Return the item of the call itself in the place of the request, which was not written."""
        item = HostedItem(self._writer, item_id, self._target, options)
        item.append(arguments)
        return item

    def close(self, status: ItemStatus, arguments: str, extra: str = "") -> None:
        """Write the item if the call is whole."""
        if status == "completed":
            place = {"name": self._target.name, "server_label": self._target.namespace or ""}
            members = {"arguments": arguments, **place, **extra_members(extra)}
            self._writer.write_item("mcp_approval_request", self._id, members)


def extra_members(extra: str) -> dict[str, Any]:
    """Return the member of an item with what the server wants back with its call, given as JSON; none if there is nothing."""
    return {"extra_content": json.loads(extra)} if extra else {}


def new_hosted_item(
    writer: EventWriter, new_id: Callable[[str], str], target: ToolTarget, options: HostedOptions
) -> HostedItem | ApprovalRequestItem:
    """Return the item for a call of a hosted tool; `new_id` makes its id of a prefix."""
    item_id = new_id(hosted_id_prefix(target))
    return (
        ApprovalRequestItem(writer, item_id, target) if target.needs_approval else HostedItem(writer, item_id, target, options)
    )


def hosted_id_prefix(target: ToolTarget) -> str:
    """Return how the id of the item of a call of a hosted tool begins."""
    return "mcpr" if target.needs_approval else HOSTED[target.kind].item.id_prefix


def write_tool_list(writer: EventWriter, item_id: str, listing: ToolListing) -> None:
    """Write the events and the item of a list of an MCP server's tools."""
    ok = listing.error is None
    place = writer.open_hosted(TOOL_LIST.type, item_id, {"server_label": listing.label, **TOOL_LIST.empty})
    members: dict[str, Any] = {"server_label": listing.label, "tools": listing.tools if ok else []}
    if not ok:
        members["error"] = listing.error
    writer.close_hosted(place, members, end="completed" if ok else "failed")


def write_approved_call(writer: EventWriter, item_id: str, call: ApprovedCall, options: HostedOptions) -> None:
    """Write the events and the item of a call that the client has approved, with its outcome."""
    item = HostedItem(writer, item_id, ToolTarget("mcp", call.name, call.label), options, call.request_id)
    arguments = call.arguments or "{}"
    item.append(arguments)
    item.outcome = call.outcome
    item.close("completed" if call.outcome is not None else "incomplete", arguments)


def asked_action(operation: str, arguments: str) -> dict[str, Any]:
    """Return the `action` that the arguments of a call of `operation` ask for, as far as they can be read."""
    members = read_object(arguments) or {}
    if operation == "open_page":
        return {"type": "open_page", "url": _text(members.get("url"))}
    if operation == "find_in_page":
        return {"type": "find_in_page", "url": _text(members.get("url")), "pattern": _text(members.get("pattern"))}
    queries = asked_queries(arguments)
    return {"type": "search", "query": queries[0] if queries else "", "queries": queries}


def asked_queries(arguments: str) -> list[str]:
    """Return the queries in the arguments of a search."""
    members = read_object(arguments) or {}
    queries = members.get("queries")
    candidates = queries if isinstance(queries, list) else [queries, members.get("query")]
    return [query for query in candidates if isinstance(query, str)]


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
