"""What all gateways of a fleet count together about a client: the vocabulary, without a server (`redis_counters.py`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

# Why a request is refused; empty if it is not.
Refusal = Literal["", "requests", "tokens", "concurrency"]


class CountersUnavailable(Exception):
    """The counters of the fleet cannot be reached. The message is for operators."""


@dataclass(frozen=True, slots=True)
class LimitRequest:
    """One client's limits and usage in a process.

    `requests` (per minute), `tokens_per_minute` and `concurrent` are the limits; 0 for none.

    `requests_left` and `tokens_left` are what the process believes to be left: used where the fleet has no counters (any more)
    and, with `stale`, where the fleet's counters have more. `tokens` were used since the previous report, `returned` requests
    were refused that the fleet had let in; `running` is the number of the client's requests here, with the one to admit."""

    client: str
    requests: int
    tokens_per_minute: int
    concurrent: int
    requests_left: float
    tokens_left: float
    stale: bool
    tokens: int
    running: int
    returned: int = 0


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer to a `LimitRequest`: why one more request may not run, what is left, and how many gateways share that."""

    refused: Refusal
    requests_left: float
    tokens_left: float
    gateways: int


class FleetCounters(Protocol):
    """Counters that the processes of several gateways share. What a process reports as running is forgotten when it has not
    joined again for `seconds`. Every method but `close` raises `CountersUnavailable`."""

    async def join(self, member: str, seconds: float) -> int:
        """Take part for so long; return how many gateways do. `member` is `GATEWAY:PROCESS`."""

    async def take(self, member: str, request: LimitRequest) -> Verdict:
        """Let one more request run, if the limits allow it, in one round trip. What is refused is not counted."""

    async def report(self, member: str, requests: Sequence[LimitRequest]) -> None:
        """Count what was used and what runs, in one round trip for all."""

    async def leave(self, member: str) -> None:
        """Take part no longer."""

    async def close(self) -> None:
        """Disconnect."""
