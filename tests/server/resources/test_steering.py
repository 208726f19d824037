"""What steers wait on a connection, and what becomes of each: a script of what goes in and what comes out."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from openai.types.responses import (
    ResponseSteerAcceptedEvent,
    ResponseSteerEvent,
    ResponseSteerFailedEvent,
    ResponseSteerPendingEvent,
)

from responses_gateway.server.steering.given_input import required_input
from responses_gateway.server.steering.steering import Accepted, Failed, Notice, Pending, Steering
from tests.thoroughness import examples

MODELS = {
    "response.steer.accepted": ResponseSteerAcceptedEvent,
    "response.steer.pending": ResponseSteerPendingEvent,
    "response.steer.failed": ResponseSteerFailedEvent,
}
CLOCK = {"type": "function_call_output", "call_id": "call_1", "name": "clock"}


class Script:
    """A connection's steers; `say` steers by a text, which is the steer's id, too."""

    def __init__(self, **limits: int) -> None:
        self.steering = Steering(**limits)

    def say(self, given: Any, response_id: str = "resp_1", size: int = 10, **fields: Any) -> str:
        """Return how the steer was answered, in short."""
        message = {"type": "response.steer", "previous_response_id": response_id, "input": given, **fields}
        return in_short(self.steering.steer(message, size, f"id of {given}"))

    def end(self, status: str = "completed", *required: dict[str, Any]) -> list[str]:
        return [in_short(notice) for notice in self.steering.end("resp_1", status, required)]

    def taken(self, response_id: str = "resp_1") -> list[str]:
        return [item["content"][0]["text"] for item in self.steering.take(response_id)]


def in_short(notice: Notice) -> str:
    """Return a notice in short, after its event was judged by the SDK. Input that is not valid is returned as it came."""
    frame = {**notice.event(), "sequence_number": 0}
    if not isinstance(notice, Failed) or notice.code != "invalid_input":
        MODELS[frame["type"]].model_validate(frame, strict=True)
    match notice:
        case Accepted(steer):
            return f"accepted {steer.given}"
        case Pending(steer, required):
            return f"pending {steer.given}: {[stub['type'] for stub in required]}"
        case Failed(_, given, code, _, _):
            return f"{code}: {given}"


def running(obstacle: str | None = None, **limits: int) -> Script:
    script = Script(**limits)
    script.steering.begin("resp_1", obstacle)
    return script


def test_steers_are_applied_together_in_order() -> None:
    script = running()
    assert [script.say("a"), script.say("b")] == ["accepted a", "accepted b"]
    assert script.end("incomplete") == []
    assert script.steering.due == "resp_1"
    assert script.taken() == ["a", "b"]
    script.steering.applied()
    assert (script.steering.due, script.steering.waiting) == (None, [])
    script.steering.begin("resp_2")
    assert [script.say("c"), script.say("c", "resp_2")] == ["response_not_active: c", "accepted c"]


def test_a_client_that_has_to_answer_is_waited_for() -> None:
    script = running()
    script.say("a")
    assert script.end("completed", CLOCK) == ["pending a: ['function_call_output']"]
    assert script.steering.due is None
    assert script.say("b") == "response_already_completed: b"
    assert script.taken("resp_other") == []
    script.steering.applied()
    assert script.taken() == ["a"]
    assert script.steering.not_applied("", unasked=False) == []  # its client may correct the request
    assert script.taken() == ["a"]
    script.steering.applied()
    assert script.taken() == []


def test_the_output_that_is_waited_for_may_come_as_a_steer() -> None:
    script = running()
    script.say([{"type": "function_call_output", "call_id": "call_1", "output": "noon"}])
    assert script.end("completed", CLOCK) == []
    assert script.steering.due == "resp_1"


@pytest.mark.parametrize("status", ["failed", "cancelled"])
def test_a_response_that_failed_gives_its_steers_back(status: str) -> None:
    script = running()
    script.say("a")
    assert script.end(status) == ["successor_creation_failed: a"]
    assert (script.steering.due, script.steering.waiting) == (None, [])
    assert script.say("b") == "response_not_active: b"


def test_what_cannot_be_continued_gives_its_steers_back() -> None:
    script = running()
    script.say("a")
    script.end()
    script.taken()
    assert [in_short(notice) for notice in script.steering.not_applied("no backend", unasked=True)] == [
        "successor_creation_failed: a"
    ]
    other = running()
    other.say("b")
    other.end("completed", CLOCK)
    assert [in_short(notice) for notice in other.steering.forget("resp_1")] == ["successor_creation_failed: b"]


def test_the_steers_of_other_lanes_count() -> None:
    here = running(most=2, most_bytes=100)
    other = running()
    other.say("other", size=80)
    message = {"type": "response.steer", "previous_response_id": "resp_1", "input": "a"}
    elsewhere = other.steering.waiting
    assert in_short(here.steering.steer(message, 30, "id", elsewhere)) == "too_many_pending_steers: a"
    assert in_short(here.steering.steer(message, 20, "id", elsewhere)) == "accepted a"
    assert in_short(here.steering.steer(message, 0, "id", elsewhere)) == "too_many_pending_steers: a"


def test_limits() -> None:
    script = running(most=2, most_bytes=100)
    assert script.say("a", size=90) == "accepted a"
    assert script.say("b", size=20) == "too_many_pending_steers: b"
    assert script.say("huge", size=101) == "too_many_pending_steers: "
    assert [script.say("c"), script.say("d", size=0)] == ["accepted c", "too_many_pending_steers: d"]
    script.end()
    script.taken()
    script.steering.applied()
    script.steering.begin("resp_2")
    assert script.say("e", "resp_2") == "accepted e"


def test_only_the_last_responses_are_remembered() -> None:
    script = Script()
    for number in range(100):
        script.steering.begin(f"resp_{number}")
        script.steering.end(f"resp_{number}", "completed")
    assert script.say("x", "resp_0") == "response_not_found: x"
    assert script.say("x", "resp_99") == "response_already_completed: x"


def test_a_response_that_cannot_be_steered() -> None:
    assert running("It is of a conversation.").say("a") == "steering_not_supported: a"


PART = {"type": "input_text", "text": "Stop."}
TAKEN: list[Any] = [
    "Stop.",
    [{"role": "user", "content": "Stop."}],
    [{"type": "message", "role": "user", "content": [PART], "id": "msg_1", "status": "completed"}],
    [{"type": "message", "role": "user", "content": [PART, {"type": "input_image", "image_url": "data:"}]}],
    [{"type": "message", "role": "user", "content": [{"type": "input_file", "file_data": "data:"}]}],
    [{"type": "function_call_output", "call_id": "call_1", "output": "x"}],
]
REFUSED: list[Any] = [
    "",
    [],
    7,
    None,
    {"type": "message"},
    ["Stop."],
    [{"type": "message", "role": "developer", "content": "x"}],
    [{"type": "message", "role": "user", "content": []}],
    [{"type": "message", "role": "user", "content": "x", "phase": "commentary"}],
    [{"type": "message", "role": "user", "content": [{"type": "output_text", "text": "x"}]}],
    [{"type": "custom_tool_call_output", "call_id": "c", "output": "x"}],
    [{"type": "function_call_output", "output": "x"}],
    [{"type": []}],
]


@pytest.mark.parametrize("given", TAKEN, ids=str)
def test_what_the_type_of_the_sdk_takes_is_taken(given: Any) -> None:
    typed = [{"type": "message", **item} for item in given] if isinstance(given, list) else given
    ResponseSteerEvent.model_validate({"type": "response.steer", "previous_response_id": "resp_1", "input": typed})
    assert running().say(given).startswith("accepted")


@pytest.mark.parametrize("content", ["x", [PART] * 10], ids=["messages", "parts"])
def test_more_than_can_be_looked_at_in_no_time_is_neither_taken_nor_returned(content: Any) -> None:
    message = {"role": "user", "content": content}
    assert running().say([message] * 1001) == "invalid_input: "
    assert running().say([message] * 1000).startswith("accepted" if content == "x" else "invalid_input: ")


@pytest.mark.parametrize("given", REFUSED, ids=str)
def test_anything_else_is_returned(given: Any) -> None:
    script = running()
    assert script.say(given) == f"invalid_input: {given if isinstance(given, str | list) else ''}"
    assert script.steering.waiting == []


def test_a_steer_has_no_other_fields() -> None:
    assert running().say("x", stream_id="lane") == "invalid_input: x"


def test_every_open_call_of_a_client_is_named() -> None:
    kinds = ["custom_tool", "computer", "shell", "apply_patch", "local_shell"]
    output = [{"type": f"{kind}_call", "id": "x", "call_id": kind, "status": "completed"} for kind in kinds]
    output += [
        {"type": "function_call", "call_id": "f", "name": "clock", "status": "completed"},
        {"type": "function_call", "call_id": "cut", "name": "clock", "status": "incomplete"},
        {"type": "function_call", "call_id": "later", "name": "clock", "status": "completed", "async": True},
        {"type": "tool_search_call", "call_id": "t", "status": "completed"},
        {"type": "mcp_approval_request", "id": "mcpr_1"},
        {"type": "mcp_call", "id": "mcp_1", "status": "completed"},
        {"type": "message", "id": "msg_1"},
    ]
    assert required_input(output) == [
        *({"type": f"{kind}_call_output", "call_id": kind} for kind in kinds),
        {"type": "function_call_output", "call_id": "f", "name": "clock"},
        {"type": "tool_search_output", "call_id": "t", "execution": "client"},
        {"type": "mcp_approval_response", "approval_request_id": "mcpr_1"},
    ]


class Connection(RuleBasedStateMachine):
    """Any order of events that a connection may have: each accepted steer is applied once or given back once, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.script = Script(most=4)
        self.number = 0
        self.steers = 0
        self.running = False
        self.open: list[str] = []
        self.settled: list[str] = []
        self.parents: set[str] = set()

    @property
    def name(self) -> str:
        return f"resp_{self.number}"

    def settle(self, notices: list[Notice]) -> None:
        for notice in notices:
            if isinstance(notice, Failed):
                self.open.remove(notice.given)
                self.settled.append(notice.given)

    def begin(self, parent: str | None) -> None:
        """Create a response of the client, or unasked."""
        taken = self.script.taken(parent or "")
        assert taken == [text for text in self.open if text in taken]
        self.script.steering.applied()
        self.open = [text for text in self.open if text not in taken]
        self.settled += taken
        self.number += 1
        self.running = True
        self.script.steering.begin(self.name)

    @precondition(lambda self: not self.running)
    @rule(data=st.data())
    def create(self, data: st.DataObject) -> None:
        self.begin(data.draw(st.sampled_from([None, *sorted(self.parents)])))

    @rule(late=st.booleans())
    def steer(self, late: bool) -> None:
        self.steers += 1
        text = f"{self.steers:03}"
        if self.script.say(text, self.name if not late else "resp_0").startswith("accepted"):
            self.open.append(text)

    @precondition(lambda self: self.running)
    @rule(status=st.sampled_from(["completed", "incomplete", "failed"]), asks=st.booleans(), begins=st.booleans())
    def end(self, status: str, asks: bool, begins: bool) -> None:
        steering = self.script.steering
        self.running = False
        self.settle(steering.end(self.name, status, [CLOCK] if asks else []))
        if asks and status != "failed":
            self.parents.add(self.name)
        due = steering.due
        if due is not None and begins:
            self.begin(due)
        elif due is not None:
            steering.take(due)
            self.settle(steering.not_applied("the backend is away", unasked=True))

    @precondition(lambda self: self.parents and not self.running)
    @rule(data=st.data())
    def fail_to_continue(self, data: st.DataObject) -> None:
        parent = data.draw(st.sampled_from(sorted(self.parents)))
        if self.script.taken(parent):
            assert self.script.steering.not_applied("", unasked=False) == []
        if data.draw(st.booleans()):
            self.parents.discard(parent)
            self.settle(self.script.steering.forget(parent))

    @invariant()
    def nothing_is_lost(self) -> None:
        waiting = sorted(steer.given for steer in self.script.steering.waiting)
        assert waiting == sorted(self.open)
        assert len(set(self.settled)) == len(self.settled)
        assert len(waiting) <= 4


TestConnection = Connection.TestCase
TestConnection.settings = settings(deadline=None, max_examples=examples(60), stateful_step_count=20)
