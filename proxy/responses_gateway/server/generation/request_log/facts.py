"""What is known of one request, while it runs and afterwards. Plain data: `RequestLog` fills it in.

Times are the loop's, in seconds, unless they are said to be Unix times."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from responses_gateway.request import Loss
from responses_gateway.request.who_asks import NOBODY, Asker, session_id
from responses_gateway.server.generation.request_log.metrics import GAP_BUCKETS
from responses_gateway.server.protocols.interface import ClientProtocol
from responses_gateway.server.protocols.responses import RESPONSES
from responses_gateway.stream.lifecycle.turn import Turn
from responses_gateway.stream.translator import Translator
from responses_gateway.stream.writer.interface import Span
from responses_gateway.telemetry.logs import CLIENT_LEFT
from responses_gateway.wire.deltas import Usage
from responses_gateway.wire.errors import ApiError
from responses_gateway.wire.hosted import MadeCall

Phase = Literal["request", "backend", "stream", "tools"]
# No gap in any bucket, or in the one for longer gaps.
NO_GAPS = (0,) * (len(GAP_BUCKETS) + 1)


class StreamTimes(msgspec.Struct, eq=False):
    """When events of the backend came.

    `reads` are the reads that brought events and are not counted yet: appended to from outside. `first` is the first one,
    `turn_first` the first one of this turn of the model, and `last` the last one that was counted. `visible_at`: when the first
    text, refusal or call began. `gaps` counts the times between two reads by the buckets of the metrics, `gap_sum` is their
    sum, `gap_count` their number, `turn_gaps` the number of those of this turn."""

    last: float
    gaps: list[int]
    gap_count: int = 0
    gap_sum: float = 0.0
    first: float | None = None
    turn_first: float | None = None
    turn_gaps: int = 0
    visible_at: float | None = None
    between_turns: bool = False
    reads: list[float] = msgspec.field(default_factory=list)

    @property
    def turn_gap(self) -> float | None:
        """The mean time between two reads of this turn; None if there were none."""
        return (self.last - self.turn_first) / self.turn_gaps if self.turn_first is not None and self.turn_gaps else None

    def count_gaps(self) -> None:
        """Count the gaps between the reads so far. Counting them together is cheaper than one by one."""
        reads = self.reads
        if not reads:
            return
        if self.first is None or self.between_turns:
            self.turn_first = reads.pop(0)
            self.last = self.turn_first
            self.turn_gaps = 0
            self.between_turns = False
            if self.first is None:
                self.first = self.turn_first
        last = self.last
        for now in reads:
            self.gaps[bisect_left(GAP_BUCKETS, now - last)] += 1
            last = now
        self.gap_sum += last - self.last
        gaps = len(reads)
        self.gap_count += gaps
        self.turn_gaps += gaps
        self.last = last
        del reads[:]


class Account(NamedTuple):
    """The name of the client's key and of its team, as far as it has any."""

    key: str | None = None
    team: str | None = None


class ClientCalls(NamedTuple):
    """The calls of an answer that the client runs: the id of the last one, and how many begin sub-agents, as far as their tools
    are known. `answered`: the id of the last call of the answer before, if the request has brought its result."""

    last: str | None = None
    spawned: int = 0
    answered: str | None = None


NO_CALLS = ClientCalls()


class AnswerFacts(msgspec.Struct, frozen=True, eq=False):
    """What is known of an answer. `state` is the kind of the open item. `chunks`, `usage`, `repairs`: see `Translator`; `turns`
    are those of the model. `items` and `events` are numbers by type, `spans` the items themselves. `reason`: why
    it is not complete. `cut_unasked`: it ended at a limit though the client asked for none. `disagrees`: the backend reports
    another number of tokens than was counted. `diverged`: why the rest of another backend did not fit."""

    response_id: str
    status: str
    ended: bool
    state: str
    chunks: int
    usage: Usage | None
    turns: Sequence[Turn]
    reasoning_from: str | None
    disagrees: bool
    finish_reason: str | None
    cut_unasked: bool
    reason: str | None
    items: Mapping[str, int]
    events: Mapping[str, int]
    spans: Mapping[int, Span]
    repairs: Mapping[str, int]
    malformed: int
    diverged: str
    service_tier: str | None


class RequestFacts(msgspec.Struct, eq=False):
    """One request. `id` is unique among the requests of all workers, which the client's `request_id` may not be; it is empty
    where no requests are remembered. `client` is the client's name of itself, `account` says who it is. `protocol`: that of
    the client. `asker`: the session and thread for which the client asks, as far as it says; its ids are those of the `tenant`.
    `client_calls`: what is known of the calls that the client runs. `relayed`: what a request to this `path` has used that was
    only relayed.

    `detached`: the response continues without its client, so that its delivery is logged by another request. `handed_over`: it
    continues in another gateway, or waits for its completion window. `pod`: the server behind a router. `refusal` is the HTTP
    error that was the answer, `error` whatever error there was in the end. `quotes_backends`: the log may repeat what a backend
    says. `outcome` is a label of the metrics. `tokens_by_kind` and `unseen_tokens` are counted at the end. `record` names the
    file with the recorded exchange. `exchange`: what the log says of the HTTP exchange. `notes`: what features say of the
    answer. `rejected`: what the window shows of a request that was refused before a response began."""

    request_id: str
    id: str
    client: str
    account: Account
    quotes_backends: bool
    began: float
    started: float  # a Unix time, like `ended`
    times: StreamTimes
    protocol: ClientProtocol = RESPONSES
    phase: Phase = "request"
    model: str = ""
    tenant: str = ""
    asker: Asker = NOBODY
    client_calls: ClientCalls = NO_CALLS
    relayed: Usage | None = None
    path: str | None = None
    streamed: bool = False
    detached: bool = False
    handed_over: bool = False
    client_left: bool = False
    refusal: ApiError | None = None
    backend: str | None = None
    pod: str | None = None
    backend_called: float | None = None
    continued: int = 0
    not_continued: str | None = None
    losses: list[Loss] = msgspec.field(default_factory=list)
    calls: Sequence[MadeCall] = ()
    answer: AnswerFacts | None = None
    tokens_by_kind: Mapping[str, int] = msgspec.field(default_factory=dict)
    unseen_tokens: int = 0
    outcome: str = "running"
    error: ApiError | None = None
    ended_at: float = 0.0
    ended: float | None = None
    record: str | None = None
    exchange: Mapping[str, Any] = msgspec.field(default_factory=dict)
    notes: dict[str, Any] = msgspec.field(default_factory=dict)
    rejected: Mapping[str, Any] | None = None

    @property
    def session_id(self) -> str | None:
        """The opaque id of the session, if there is one."""
        return None if self.asker.session is None else session_id(self.tenant, self.asker.session)


def origin_of(facts: RequestFacts) -> dict[str, str | None]:
    """Return who asks, as the log names it: the key and its team, the session and thread of an agent, and the thread's kind."""
    account = facts.account
    asker = facts.asker
    return {"key": account.key, "team": account.team, "session": asker.session, "thread": asker.thread, "kind": asker.kind}


def outcome_of(facts: RequestFacts) -> str:
    """Return the outcome whether or not the response was delivered."""
    answer = facts.answer
    if facts.rejected is not None:
        return str(facts.rejected["outcome"])
    if facts.refusal is not None:
        return "rejected" if facts.refusal.status < 500 else "failed"
    if facts.handed_over:
        return "handed_over"
    if answer is None:
        relayed = facts.relayed is not None and facts.error is None
        return "cancelled" if facts.client_left else "completed" if relayed else "failed"
    return answer.status if answer.ended else "cancelled"


def is_cancelled(translator: Translator) -> bool:
    """Tell whether the client has asked for the end of the answer."""
    return translator.error is not None and translator.error.status == CLIENT_LEFT


def answer_facts(translator: Translator) -> AnswerFacts:
    """Return what is known of an answer so far."""
    lifecycle = translator.lifecycle
    options = translator.options
    writer = translator.writer
    finish_reason = lifecycle.turn.finish_reason
    error = None if is_cancelled(translator) else translator.error
    return AnswerFacts(
        response_id=options.response_id,
        status=translator.status if error is translator.error else "cancelled",
        ended=translator.ended,
        state=lifecycle.state,
        chunks=translator.chunks,
        usage=translator.usage,
        turns=lifecycle.turns,
        reasoning_from=translator.tokens.reasoning_from,
        disagrees=translator.tokens.disagrees,
        finish_reason=finish_reason,
        cut_unasked=finish_reason == "length" and not options.discarded and options.echo.get("max_output_tokens") is None,
        reason=translator.incomplete_reason or (None if error is None else error.code),
        items=writer.items,
        events=writer.deltas,
        spans=writer.spans,
        repairs=translator.repairs,
        malformed=translator.malformed,
        diverged=translator.answer.diverged,
        service_tier=options.echo.get("service_tier"),
    )
