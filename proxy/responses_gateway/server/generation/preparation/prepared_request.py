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
from responses_gateway.server.generation.preparation.kept_response import Beginning, Journal, KeptResponse, digest, keep
from responses_gateway.server.generation.preparation.known_inputs import Growing
from responses_gateway.server.generation.preparation.live_settings import InForce
from responses_gateway.server.generation.upstream.chat_call import AnswerFilter, ChatCall
from responses_gateway.server.generation.upstream.continuation import Obstacle
from responses_gateway.server.protocols.interface import Reading
from responses_gateway.server.recording.recording import Recording
from responses_gateway.state import ResponseRecord
from responses_gateway.stream.options import StreamOptions
from responses_gateway.stream.tape import Tape
from responses_gateway.stream.writer.responses import AtEnd


class RequestScope(msgspec.Struct, frozen=True):
    """What holds for one request: who asks, the settings in force, and its recording. `kept`: the response was kept in the
    store until now. `reading`: the request was made in another protocol. `growing`: it may be one of a growing thread."""

    caller: Caller
    in_force: InForce
    recording: Recording | None
    kept: KeptResponse | None = None
    reading: Reading | None = None
    growing: Growing | None = None

    @property
    def beginning(self) -> Beginning | None:
        """How the response began in another gateway; None if it begins now."""
        return None if self.kept is None else self.kept.beginning


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

    def kept(self, created: float, beginning: Beginning | None = None) -> KeptResponse:
        """Return what the store keeps of the response, which was created at this Unix time in seconds. Raise `ValueError` for
        half a surrogate pair."""
        return keep(self.options.response_id, created, self.caller, self.context, beginning)

    def journalled(self, created: float) -> bytes | None:
        """Return the same for another gateway that takes the response over, encoded; None if none may."""
        if self.continuable.journal is None:
            return None
        beginning = Beginning(self.start, digest(self.call.data), self.continuable.checkpoint)
        try:
            return self.kept(created, beginning).encoded()
        except ValueError:
            return None

    def begins_like(self, beginning: Beginning) -> bool:
        """Tell whether the backends are asked what they were asked before, and serve what they served."""
        checkpoint = self.continuable.checkpoint
        return digest(self.call.data) == beginning.chat and checkpoint in ("", beginning.checkpoint)
