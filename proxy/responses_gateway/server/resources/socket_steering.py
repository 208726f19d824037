"""The steers of one lane, between its messages, its responses and what it sends."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any

import msgspec

from responses_gateway.server.generation.responses import Creation
from responses_gateway.server.http.event_stream import WebSocketSender
from responses_gateway.server.http.exchange import Bodies, Body
from responses_gateway.server.resources.socket_messages import Message, event_of
from responses_gateway.server.steering.given_input import required_input
from responses_gateway.server.steering.steering import Accepted, Failed, Notice, Steer, Steering
from responses_gateway.wire.errors import ApiError
from responses_gateway.wire.requests import ResponsesRequest, user_message

_REASON = "steered"


class SocketSteering:
    """Steers what a lane makes: see `Steering` for the order of events. `steers` knows those that wait."""

    def __init__(self, outbox: WebSocketSender, bodies: Bodies) -> None:
        self._outbox = outbox
        self._bodies = bodies
        self.steers = Steering()
        self._held: dict[str, Body] = {}  # counts the input of each steer that waits, by its id
        self._early: list[Notice] = []  # of the response whose terminal event is still to come
        self.unsent_bytes = 0  # of the messages that these answer
        self._asked: ResponsesRequest | None = None  # the settings of the response that is to be continued unasked
        self._next_number = 0  # behind the terminal event of the last response
        self._stream_id: str | None = None  # the client's name of that response

    # ---- messages ------------------------------------------------------------------------------------------------------

    def answer(self, message: Message, size: int, running: Creation | None, elsewhere: Sequence[Steer]) -> None:
        """Answer a `response.steer`. `elsewhere`: those that wait in other lanes."""
        notice = self._take(message, size, elsewhere)
        if running is not None and message["previous_response_id"] == running.translator.response_id:
            if running.translator.ended:
                self._early.append(notice)
                self.unsent_bytes += size
                return
            number = running.translator.take_number()
            running.log.sent(self._send(notice, number, running.prepared.context.request.stream_id))
            if isinstance(notice, Accepted):
                running.stop_after_item(_REASON)
        elif isinstance(notice, Failed) and notice.code == "response_not_found":
            self._send(notice, 0, None)
        else:
            self._send_behind(notice)

    def _take(self, message: Message, size: int, elsewhere: Sequence[Steer]) -> Accepted | Failed:
        notice = self.steers.steer(message, size, f"steer_{secrets.token_hex(16)}", elsewhere)
        if isinstance(notice, Accepted):
            body = self._bodies.open()
            try:
                body.add(size)
            except ApiError as error:
                return self.steers.take_back(notice.steer, error.message)
            self._held[notice.steer.id] = body
        return notice

    # ---- responses -----------------------------------------------------------------------------------------------------

    def with_input(self, request: ResponsesRequest) -> ResponsesRequest:
        """Return a request of the client with the steers before its input that wait for it."""
        items = self.steers.take(request.previous_response_id)
        if not items:
            return request
        entries = request.input or []
        if isinstance(entries, str):
            entries = [user_message(entries)]
        return request.model_copy(update={"input": [*items, *entries]})

    def successor(self) -> ResponsesRequest | None:
        """Return the request that continues the last response unasked, if that has to be."""
        due = self.steers.due
        request = self._asked
        self._asked = None
        if due is None or request is None:
            return None
        return request.model_copy(update={"previous_response_id": due, "input": self.steers.take(due)})

    def begin(self, creation: Creation) -> None:
        """Take notice that a response begins."""
        self.steers.applied()
        self.steers.begin(creation.translator.response_id, _obstacle(creation))
        self._release()

    def end(self, creation: Creation) -> None:
        """Take notice that the terminal event of a response was sent."""
        translator = creation.translator
        self._next_number = translator.writer.next_number
        self._stream_id = creation.prepared.context.request.stream_id
        early = self._early
        self._early = []
        self.unsent_bytes = 0
        waiting = self.steers.waits_for(translator.response_id)
        required = required_input(msgspec.json.decode(item) for item in translator.response.output) if waiting else ()
        self._tell([*early, *self.steers.end(translator.response_id, translator.status, required)])
        if self.steers.due is not None:
            self._asked = creation.prepared.context.request.model_copy(update={"input": None})

    def not_applied(self, error: ApiError | None = None) -> None:
        """Take notice that a response could not begin. `error`: nobody had asked for it."""
        self._tell(self.steers.not_applied("" if error is None else error.message, unasked=error is not None))

    def forget(self, response_id: str) -> None:
        """Take notice that a response cannot be continued any more."""
        self._tell(self.steers.forget(response_id))

    def close(self) -> None:
        """Count nothing any more."""
        for body in self._held.values():
            body.close()
        self._held.clear()

    # ---- what is sent --------------------------------------------------------------------------------------------------

    def _tell(self, notices: Sequence[Notice]) -> None:
        for notice in notices:
            self._send_behind(notice)
        self._release()

    def _send_behind(self, notice: Notice) -> None:
        """Send a notice behind the last response, whose numbers go on."""
        self._send(notice, self._next_number, self._stream_id)
        self._next_number += 1

    def _send(self, notice: Notice, number: int, stream_id: str | None) -> bytes:
        """Send a notice, and return its event."""
        frame: dict[str, Any] = notice.event()
        frame["sequence_number"] = number
        if stream_id is not None:
            frame["stream_id"] = stream_id
        event = event_of(frame)
        self._outbox.write(event)
        return event

    def _release(self) -> None:
        """Count the input no longer of steers that were applied or given back."""
        if not self._held:
            return
        waiting = {steer.id for steer in self.steers.waiting}
        for steer_id in [steer_id for steer_id in self._held if steer_id not in waiting]:
            self._held.pop(steer_id).close()


def _obstacle(creation: Creation) -> str | None:
    """Return why a response cannot be steered; None if it can."""
    request = creation.prepared.context.request
    if request.conversation is not None:
        return "A response of a conversation cannot be steered."
    if request.context_management:
        return "A response with automatic compaction cannot be steered."
    if creation.prepared.options.hides_answer:
        return "A response without an answer of the model cannot be steered."
    return None
