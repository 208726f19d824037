"""What steers the responses of one lane of a connection: a value without I/O. Events in, notices for the client out.

    begin(response)       a response runs, and may be steered
    steer(message)        -> Accepted: the open item is to be the last one; or Failed
    end(response, ...)    -> a notice for each steer that cannot be applied now; `due` names a response to be continued unasked
    take(response)        -> the input that goes before that of the response which continues it
    applied()             that response has begun
    not_applied(...)      it could not begin -> a notice for each steer that is given back

The life of a steer:

    accepted  --end, nothing is missing-->        due      --take-->  taken  --applied-->      gone
    accepted  --end, the client has to answer-->  waiting  --take-->  taken  --not_applied-->  waiting, or failed
    accepted  --end, the response failed-->       failed

A steer is gone only when it was applied or given back: `Failed` has its input."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

from responses_gateway.bounded_memory import BoundedDict
from responses_gateway.server.steering.given_input import Item, has_too_many, read_input
from responses_gateway.wire.errors import ApiError

# Steers of one connection that may wait, and their bytes together.
MOST_STEERS = 32
MOST_BYTES = 4 * 1024 * 1024
_REMEMBERED = 64  # of so many responses that have ended a lane knows that they were its own

Code: TypeAlias = Literal[
    "response_not_found",
    "invalid_input",
    "steering_not_supported",
    "too_many_pending_steers",
    "response_already_completed",
    "response_not_active",
    "successor_creation_failed",
]


class Steer(NamedTuple):
    """One that was accepted: the `given` input as it came, which is returned if it cannot be applied, and as items."""

    id: str
    response_id: str
    given: Any
    items: Sequence[Item]
    size: int

    @property
    def _reference(self) -> dict[str, Any]:
        return {"id": self.id, "previous_response_id": self.response_id}


class Accepted(NamedTuple):
    """The steer waits."""

    steer: Steer

    def event(self) -> dict[str, Any]:
        """Return the event without its number."""
        return {"type": "response.steer.accepted", "steer": self.steer._reference}


class Pending(NamedTuple):
    """The steer waits until the client sends what the response has asked it for."""

    steer: Steer
    required: Sequence[Mapping[str, Any]]

    def event(self) -> dict[str, Any]:
        """Return the event without its number."""
        reason = {"reason": "waiting_for_required_input", "required_input": list(self.required)}
        return {"type": "response.steer.pending", "steer": self.steer._reference, **reason}


class Failed(NamedTuple):
    """The steer was refused, or cannot be applied any more. One that was never accepted has no id."""

    response_id: str
    given: Any
    code: Code
    message: str
    id: str | None = None

    def event(self) -> dict[str, Any]:
        """Return the event without its number."""
        steer: dict[str, Any] = {"previous_response_id": self.response_id, "input": self.given}
        if self.id is not None:
            steer["id"] = self.id
        error = {"type": "invalid_request_error", "code": self.code, "message": self.message}
        return {"type": "response.steer.failed", "steer": steer, "error": error}


Notice: TypeAlias = Accepted | Pending | Failed


class Steering:
    """The steers of one lane. `due` is the response that is to be continued unasked."""

    def __init__(self, most: int = MOST_STEERS, most_bytes: int = MOST_BYTES) -> None:
        self.due: str | None = None
        self._most = most
        self._most_bytes = most_bytes
        self._running: str | None = None
        self._obstacle: str | None = None  # why the running response cannot be steered
        self._ended: BoundedDict[str, str] = BoundedDict(_REMEMBERED)  # status by id
        self._steers: dict[str, list[Steer]] = {}  # those that are not applied, by the response that they steer
        self._taken: str | None = None  # the response whose steers are being applied

    @property
    def waiting(self) -> Sequence[Steer]:
        """All that were accepted, and are neither applied nor given back."""
        return [steer for steers in self._steers.values() for steer in steers]

    # ---- the responses -------------------------------------------------------------------------------------------------

    def begin(self, response_id: str, obstacle: str | None = None) -> None:
        """Take notice that a response runs. `obstacle`: why it cannot be steered."""
        self._running = response_id
        self._obstacle = obstacle

    def end(self, response_id: str, status: str, required: Sequence[Mapping[str, Any]] = ()) -> list[Notice]:
        """Take notice that a response has ended, and `required` these inputs. Return what becomes of steers not due."""
        self._running = None
        self._ended[response_id] = status
        steers = self._steers.get(response_id, [])
        if status not in ("completed", "incomplete"):
            return self._give_back(response_id, f"The response ended with the status '{status}', and is not continued.")
        ids = {item.get("call_id") for steer in steers for item in steer.items if item["type"] == "function_call_output"}
        missing = [stub for stub in required if stub.get("call_id", "") not in ids]
        if missing:
            return [Pending(steer, missing) for steer in steers]
        if steers:
            self.due = response_id
        return []

    # ---- a steer -------------------------------------------------------------------------------------------------------

    def knows(self, response_id: str) -> bool:
        """Tell whether a response runs here, or did."""
        return response_id == self._running or response_id in self._ended

    def steer(self, message: Mapping[str, Any], size: int, steer_id: str, elsewhere: Sequence[Steer] = ()) -> Accepted | Failed:
        """Take a `response.steer` of so many bytes. One that is accepted gets the id. One that could never be accepted for its
        size is neither looked at nor returned: that would take too long. `elsewhere`: those that wait in other lanes."""
        response_id = message["previous_response_id"]
        content = message.get("input")
        if not isinstance(content, str | list) or size > self._most_bytes or has_too_many(content):
            content = ""
        refused = self._refusal(response_id)
        items: Sequence[Item] = ()
        if refused is None or refused[0] != "response_not_found":
            excess = self._excess(size, elsewhere)
            try:
                items = () if excess is not None else read_input(message)
                refused = refused or excess
            except ApiError as error:
                refused = ("invalid_input", error.message)
        if refused is not None:
            return Failed(response_id, content, *refused)
        steer = Steer(steer_id, response_id, content, items, size)
        self._steers.setdefault(response_id, []).append(steer)
        return Accepted(steer)

    def _refusal(self, response_id: str) -> tuple[Code, str] | None:
        if response_id == self._running:
            return None if self._obstacle is None else ("steering_not_supported", self._obstacle)
        status = self._ended.get(response_id)
        if status is None:
            return "response_not_found", f"Response with id '{response_id[:100]}' not found on this connection."
        if status == "completed":
            return "response_already_completed", "The response has completed: send the input with 'response.create'."
        return "response_not_active", f"The response has ended with the status '{status}'."

    def _excess(self, size: int, elsewhere: Sequence[Steer]) -> tuple[Code, str] | None:
        waiting = [*self.waiting, *elsewhere]
        if len(waiting) >= self._most:
            return "too_many_pending_steers", f"At most {self._most} steers may wait on a connection."
        if sum(steer.size for steer in waiting) + size > self._most_bytes:
            return "too_many_pending_steers", f"The steers that wait on a connection have at most {self._most_bytes} bytes."
        return None

    def take_back(self, steer: Steer, reason: str) -> Failed:
        """Refuse a steer for which there is no room after all."""
        self._steers[steer.response_id].remove(steer)
        return Failed(steer.response_id, steer.given, "too_many_pending_steers", reason)

    def waits_for(self, response_id: str) -> bool:
        """Tell whether a response has steers that are not applied."""
        return bool(self._steers.get(response_id))

    # ---- applying them -------------------------------------------------------------------------------------------------

    def take(self, response_id: str | None) -> list[Item]:
        """Return the input of all steers of a response that is being continued, in order; `applied` or `not_applied` has to
        follow, if there is any."""
        self.due = None
        if response_id is None or response_id not in self._steers:
            return []
        self._taken = response_id
        return [item for steer in self._steers[response_id] for item in steer.items]

    @property
    def taken_bytes(self) -> int:
        """The size of the steers that were taken, for a response that has not begun."""
        return 0 if self._taken is None else sum(steer.size for steer in self._steers[self._taken])

    @property
    def applies(self) -> bool:
        """Whether steers were taken, for a response that has not begun."""
        return self._taken is not None

    def applied(self) -> None:
        """Forget the steers that were taken: the response that has them has begun."""
        if self._taken is not None:
            self._steers.pop(self._taken, None)
        self._taken = None

    def not_applied(self, reason: str, *, unasked: bool) -> list[Notice]:
        """Take notice that the response could not begin which the steers were taken for. One that its client asked for leaves
        them waiting: it may ask again."""
        response_id = self._taken
        self._taken = None
        return self._give_back(response_id, reason) if unasked and response_id is not None else []

    def forget(self, response_id: str) -> list[Notice]:
        """Take notice that a response cannot be continued any more."""
        return self._give_back(response_id, "The response was not stored, and this connection has gone on without it.")

    def _give_back(self, response_id: str, reason: str) -> list[Notice]:
        given_back = self._steers.pop(response_id, [])
        return [Failed(response_id, steer.given, "successor_creation_failed", reason, steer.id) for steer in given_back]
