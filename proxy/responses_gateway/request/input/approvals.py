"""Calls of MCP tools that need the client's approval: what it has decided.

A response ends with an `mcp_approval_request`; the client answers with an `mcp_approval_response` in a later request. Clients
without stored responses send all of that again and again, so a call that has been run is never run once more: its `mcp_call`
names the request."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from responses_gateway.request.fields import Entry, filled_text, missing, optional_flag, optional_text, quote, text
from responses_gateway.wire.errors import invalid_request

APPROVAL_TYPES = frozenset({"mcp_approval_request", "mcp_approval_response"})


# The result of a call of which nothing is known but that it was made, or approved.
INTERRUPTED = "The call was interrupted. Whether it was carried out is not known."
# The types of items that refer to an approval request, and the member with its id.
REQUEST_ID = {"mcp_approval_request": "id", "mcp_approval_response": "approval_request_id", "mcp_call": "approval_request_id"}


class Approval(NamedTuple):
    """A call that the client has approved, and that was not run yet. `path` is where the client said so (`input[0]`),
    `request_id` is the id of the request. `followed`: a message stands behind it."""

    path: str
    request_id: str
    server_label: str
    name: str
    arguments: str
    followed: bool = False


class Approvals(NamedTuple):
    """What the client has decided, by the ids of the requests: the calls to run now, what the model is told of those that are
    not run, and the items of those that were made."""

    approved: Mapping[str, Approval]
    not_run: Mapping[str, str]
    made: Mapping[str, Entry]


NO_APPROVALS = Approvals({}, {}, {})


def read_approvals(entries: Iterable[Entry]) -> Approvals:
    """Read the approvals in the items. Raises `ApiError` 400 for an answer to a request that is not there, and for a request
    with the id of another one."""
    reader = _ApprovalReader()
    for entry in entries:
        reader.read(entry)
    return Approvals(reader.approved, reader.not_run, reader.made)


@dataclass(slots=True)
class _ApprovalReader:
    """Reads items in order; `requests` are those that were read, by id, the others as in `Approvals`."""

    requests: dict[str, Entry] = field(default_factory=dict)
    approved: dict[str, Approval] = field(default_factory=dict)
    not_run: dict[str, str] = field(default_factory=dict)
    made: dict[str, Entry] = field(default_factory=dict)
    last: list[str] = field(default_factory=list)  # what was approved behind the last message

    def read(self, entry: Entry) -> None:
        if entry.kind == "mcp_approval_request":
            self._request(entry)
        elif entry.kind == "mcp_call":
            request_id = str(entry.item.get("approval_request_id"))
            if request_id in self.requests:
                self.made.setdefault(request_id, entry)
                self.approved.pop(request_id, None)
        elif entry.kind == "mcp_approval_response":
            self._decision(entry)
        elif _is_of_model(entry):  # which has gone on since the client decided
            self.not_run.update(dict.fromkeys(self.approved, INTERRUPTED))
            self.approved.clear()
        elif entry.kind == "message":
            for request_id in self.approved.keys() & self.last:
                self.approved[request_id] = self.approved[request_id]._replace(followed=True)
            self.last.clear()

    def _request(self, entry: Entry) -> None:
        request_id = filled_text(entry.item, "id", entry.path)
        first = self.requests.setdefault(request_id, entry).item
        if any(first.get(member) != entry.item.get(member) for member in ("server_label", "name", "arguments")):
            message = f"Another approval request has the id {quote(request_id)} already. The client decides about that one."
            raise invalid_request(message, f"{entry.path}.id", "duplicate_approval_request")

    def _decision(self, entry: Entry) -> None:
        item = entry.item
        request_id = text(item, "approval_request_id", entry.path)
        request = self.requests.get(request_id)
        if request is None:
            message = f"No approval request with the id {quote(request_id)} was found before its answer."
            raise invalid_request(message, f"{entry.path}.approval_request_id", "approval_request_not_found")
        approves = optional_flag(item, "approve", entry.path)
        if approves is None:
            raise missing(f"{entry.path}.approve")
        if request_id in self.made:  # an answer that comes again changes nothing
            return
        if approves:
            self.approved[request_id] = _approval(entry.path, request, request_id)
            self.last.append(request_id)
            self.not_run.pop(request_id, None)
        else:
            reason = optional_text(item, "reason", entry.path) or ""
            self.not_run[request_id] = f"The user did not approve this call. {reason}".rstrip()
            self.approved.pop(request_id, None)


def _is_of_model(entry: Entry) -> bool:
    is_message = entry.kind == "message" and entry.item.get("role") == "assistant"
    return is_message or entry.kind == "reasoning" or entry.kind.endswith("_call")


def _approval(decided_at: str, request: Entry, request_id: str) -> Approval:
    item = request.item
    path = request.path
    label = filled_text(item, "server_label", path)
    return Approval(decided_at, request_id, label, filled_text(item, "name", path), text(item, "arguments", path))
