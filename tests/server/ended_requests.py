"""Facts of requests that have ended, for tests of what is remembered of them."""

from __future__ import annotations

import time
from collections.abc import Sequence

import msgspec

from responses_gateway.server.generation.request_log.facts import NO_GAPS, Account, RequestFacts, StreamTimes, answer_facts
from responses_gateway.server.generation.request_log.recent_requests import Interval, RecentRequests
from responses_gateway.stream.options import StreamOptions
from responses_gateway.stream.translator import Translator
from responses_gateway.telemetry.instruments import LATENCY_BUCKETS
from responses_gateway.wire.deltas import Usage
from responses_gateway.wire.errors import ApiError

NO_LATENCIES = (0,) * (len(LATENCY_BUCKETS) + 1)


def remember_intervals(
    recent: RecentRequests | None, *intervals: tuple[int, int, int], first_token: Sequence[int] = NO_LATENCIES
) -> None:
    """Replace the intervals of the plots. Of each: how many seconds before the present one it began (less than 0: behind it),
    how many requests were completed in it, and how many ran. `first_token`: the counts of latencies in each."""
    assert recent is not None
    now = int(time.time()) // 10 * 10
    recent.intervals.clear()
    recent.intervals.extend(
        Interval(now - ago, {"completed": completed}, [*first_token], [*NO_GAPS], in_flight=running)
        for ago, completed, running in intervals
    )


def ended_facts(name: str, status: str = "completed", first_token: float | None = None, **usage: int) -> RequestFacts:
    """Return the facts of a request that has ended."""
    facts = RequestFacts(name, name, "", Account(), False, 0.0, 0.0, StreamTimes(0.0, [*NO_GAPS]), ended=1.0)
    facts.times.first = first_token
    if status == "rejected":
        facts.refusal = ApiError(400, "no")
        return facts
    answer = answer_facts(Translator(StreamOptions(response_id=name, model="m"), lambda: 0.0))
    tokens = Usage(usage.get("input_tokens", 0), usage.get("output_tokens", 0))
    facts.answer = msgspec.structs.replace(answer, status=status, ended=True, usage=tokens)
    return facts


def refused(name: str) -> RequestFacts:
    """Return the facts of a request that was refused before a response began."""
    facts = ended_facts(name, "rejected")
    facts.rejected = {"outcome": "rejected"}
    return facts


def relayed(name: str, path: str) -> RequestFacts:
    """Return the facts of a request that was relayed to a backend as it came."""
    facts = RequestFacts(name, name, "", Account(), False, 0.0, 0.0, StreamTimes(0.0, [*NO_GAPS]), ended=1.0)
    facts.relayed = Usage(1, 1)
    facts.path = path
    return facts
