"""What is known of one request while it runs. Plain data: `RequestLog` fills it in, and reports it.

Times are the loop's, in seconds, unless they are said to be Unix times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import msgspec

from responses_gateway.request import Loss
from responses_gateway.server.protocols.interface import ClientProtocol
from responses_gateway.server.protocols.responses import RESPONSES
from responses_gateway.wire.deltas import Usage
from responses_gateway.wire.errors import ApiError
from responses_gateway.wire.hosted import MadeCall

Phase = Literal["request", "backend", "stream", "tools"]


class StreamTimes(msgspec.Struct, eq=False):
    """When events of the backend came.

    `reads` are the reads that brought events and are not counted yet: appended to from outside. `first` is the first one,
    `turn_first` the first one of this turn of the model, and `last` the last one that was counted. `visible_at`: when the first
    text, refusal or call began. `gaps` counts the times between two reads by the buckets of the metrics, `gap_sum` is their
    sum."""

    last: float
    gaps: list[int]
    gap_sum: float = 0.0
    first: float | None = None
    turn_first: float | None = None
    visible_at: float | None = None
    between_turns: bool = False
    reads: list[float] = msgspec.field(default_factory=list)


class Account(NamedTuple):
    """The name of the client's key and of its team, as far as it has any."""

    key: str | None = None
    team: str | None = None


class RequestFacts(msgspec.Struct, eq=False):
    """One request. `id` is unique among the requests of all workers, which the client's `request_id` may not be; it is empty
    where no requests are remembered. `client` is the client's name of itself, `account` says who it is. `protocol`: that of
    the client.

    `detached`: the response continues without its client, so that its delivery is logged by another request. `handed_over`: it
    continues in another gateway, or waits for its completion window. `pod`: the server behind a router. `error` is the HTTP
    error that was the answer.
    `quotes_backends`: the log may repeat what a backend says. `chunks`, `usage`, `repairs`: see `Translator`, which is asked
    once, when the request is reported."""

    request_id: str
    id: str
    client: str
    account: Account
    quotes_backends: bool
    began: float
    started: float  # a Unix time
    times: StreamTimes
    protocol: ClientProtocol = RESPONSES
    phase: Phase = "request"
    model: str = ""
    streamed: bool = False
    detached: bool = False
    handed_over: bool = False
    client_left: bool = False
    error: ApiError | None = None
    backend: str | None = None
    pod: str | None = None
    backend_called: float | None = None
    continued: int = 0
    not_continued: str | None = None
    losses: list[Loss] = msgspec.field(default_factory=list)
    calls: Sequence[MadeCall] = ()
    chunks: int = 0
    usage: Usage | None = None
    repairs: Mapping[str, int] = msgspec.field(default_factory=dict)
    tokens_by_kind: Mapping[str, int] = msgspec.field(default_factory=dict)
    unseen_tokens: int = 0
