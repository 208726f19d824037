"""A request that is ready to be sent, and what it was prepared from, as plain values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from responses_gateway.request import Loss
from responses_gateway.server.generation.hosted_tools.turns import FurtherTurns, HostedTurns
from responses_gateway.server.generation.parser_choice.choice import AnswerStart
from responses_gateway.server.generation.preparation.compaction import AutomaticCompaction
from responses_gateway.server.generation.preparation.context import Caller, Context
from responses_gateway.server.generation.preparation.journal import Charged, Journal, ResponseStart, ResumedResponse, digest
from responses_gateway.server.generation.preparation.live_settings import InForce
from responses_gateway.server.generation.upstream.answer_filter import AnswerFilter
from responses_gateway.server.generation.upstream.chat_call import ChatCall
from responses_gateway.server.generation.upstream.continuation_request import Obstacle
from responses_gateway.server.protocols.interface import Reading
from responses_gateway.server.recording.recording import Recording
from responses_gateway.state import ResponseRecord
from responses_gateway.stream.options import StreamOptions
from responses_gateway.stream.tape import Tape
from responses_gateway.stream.writer.response import AtEnd

# Headers of a client's request that a gateway needs which takes the response over.
_KEPT_HEADERS = ("originator", "User-Agent")


class AcceptedResponse(NamedTuple):
    """A response that was accepted earlier: its id, and the Unix time in seconds at which it was created."""

    response_id: str
    created: float


class RequestScope(msgspec.Struct, frozen=True):
    """What holds for one request: who asks, the settings in force, and its recording. `resumed`: the response has begun in
    another gateway. `reading`: the request was made in another protocol. `accepted`: the response has waited."""

    caller: Caller
    in_force: InForce
    recording: Recording | None
    resumed: ResumedResponse | None = None
    reading: Reading | None = None
    accepted: AcceptedResponse | None = None


class Continuable(NamedTuple):
    """Whether another backend may continue the answer: `attempts` times, unless there is an `obstacle`. `journal`: another
    gateway may take it over, too. `checkpoint`: what the backends list of the model, where that is why they may."""

    attempts: int = 0
    obstacle: Obstacle | None = None
    journal: Journal | None = None
    checkpoint: str = ""

    @property
    def now(self) -> bool:
        """Nothing is in the way."""
        return self.attempts > 0 and self.obstacle is None


NOT_CONTINUABLE = Continuable()


class PreparedRequest(msgspec.Struct, frozen=True, eq=False):
    """A request that is ready to be sent.

    `call` asks the backend. `options` are those of the translator of its answer, which begins as `start` tells. `record` is to
    be stored; None: nothing is. `turns` are those after the first one. `compaction` comes before the answer.
    `answer_filter` decides what of the answers of backends passes."""

    caller: Caller
    context: Context
    call: ChatCall
    options: StreamOptions
    start: AnswerStart
    losses: Sequence[Loss]
    record: ResponseRecord | None
    turns: FurtherTurns | None  # of a response that may have several turns
    compaction: AutomaticCompaction | None
    continuable: Continuable
    tape: Tape | None  # of a response that is recorded, or that another gateway may take over
    answer_filter: AnswerFilter | None = None

    @property
    def hosted(self) -> HostedTurns | None:
        """What runs the tools that the gateway runs itself."""
        return self.turns.hosted if self.turns is not None else None

    @property
    def tools_ran(self) -> bool:
        """Whether a hosted tool was begun: a response that fails then must not have its client repeat the request."""
        hosted = self.hosted
        return hosted is not None and hosted.ran

    def with_end(self, at_end: AtEnd) -> PreparedRequest:
        """Return a request whose response has more to tell at its end."""
        options = msgspec.structs.replace(self.options, at_end=(*self.options.at_end, at_end))
        return msgspec.structs.replace(self, options=options)

    def beginning(self, created: float) -> bytes | None:
        """Return what another gateway needs to begin the response again; None if none may take it over. `created` is the Unix
        time of the response in seconds."""
        if self.continuable.journal is None:
            return None
        caller = self.caller
        headers = {name: caller.headers[name] for name in _KEPT_HEADERS if name in caller.headers}
        try:
            request = self.context.request.model_dump_json(exclude_unset=True).encode()
        except ValueError:  # half a surrogate pair
            return None
        chat = digest(self.call.data)
        checkpoint = self.continuable.checkpoint
        held = caller.reservation
        charged = Charged(held.key, held.team, held.owners) if held is not None and held.key is not None else None
        start = ResponseStart(request, caller.request_id, headers, created, self.start, chat, checkpoint, charged=charged)
        return msgspec.msgpack.encode(start)

    def begins_like(self, beginning: ResponseStart) -> bool:
        """Tell whether the backends are asked what they were asked before, and serve what they served."""
        checkpoint = self.continuable.checkpoint
        return digest(self.call.data) == beginning.chat and checkpoint in ("", beginning.checkpoint)
