"""One response's calls: whatever a tool returns, its result can be sent on."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import msgspec

from responses_gateway.hosted.interface import HostedResult, Source
from responses_gateway.hosted.tool_runner import HostedLimits, SourceNumbers, ToolRunner
from responses_gateway.wire.hosted import CitedSource
from responses_gateway.wire.tools import ToolTarget

TARGET = ToolTarget("web_search", "web_search")


class Returns:
    """A tool that returns this."""

    def __init__(self, result: HostedResult) -> None:
        self._result = result

    async def run(self, arguments: Mapping[str, Any]) -> HostedResult:
        return self._result


def result_of(result: HostedResult, most: int = 1000) -> tuple[HostedResult, list[str]]:
    """Return what comes of a result, and what the log says of it."""
    tools = {TARGET: Returns(result)}
    hosted = ToolRunner(tools, HostedLimits(result_bytes=most), SourceNumbers(), lambda *_: None, lambda *_: None)
    found = asyncio.run(hosted.run(TARGET, "{}"))
    return found, [loss.reason for loss in hosted.losses]


def test_half_surrogate_pairs_are_replaced() -> None:
    """Servers may write them in JSON, as escapes."""
    odd = "a\ud800b"
    source = Source(odd, f"https://a.example/{odd}")
    found, _ = result_of(HostedResult(odd, {"action": {"sources": [{"url": odd}]}}, [source]))
    assert found == HostedResult("a?b", {"action": {"sources": [{"url": "a?b"}]}}, [Source("a?b", "https://a.example/a?b")])
    assert json.loads(msgspec.json.encode(found.item)) == found.item


def test_a_long_text_is_cut_on_record() -> None:
    found, losses = result_of(HostedResult("é" * 1000))
    assert len(found.text.encode()) <= 1000
    assert found.text.endswith("may have]")
    assert losses == ["a result was cut at 1000 bytes"]


def test_sources_that_the_model_still_sees_keep_their_numbers() -> None:
    earlier = [CitedSource(3, "A", "https://a.example"), CitedSource(7, "B", "https://b.example")]
    numbers = SourceNumbers(earlier)
    assert numbers.number(Source("A", "https://a.example")) == 3
    assert numbers.number(Source("C", "https://c.example")) == 8
    assert numbers.number(Source("C", "https://c.example")) == 8


def test_a_number_of_two_sources_is_of_neither() -> None:
    """A client may put the items of two conversations together."""
    both = [CitedSource(1, "A", "https://a.example"), CitedSource(1, "B", "https://b.example")]
    numbers = SourceNumbers(both)
    assert numbers.known == {}
    assert {numbers.number(Source(title, f"https://{title}.example")) for title in ("a", "b")} == {2, 3}


def test_only_so_many_calls_run_at_once_and_none_when_the_time_is_used_up() -> None:
    running: list[int] = []
    most = 0

    class Slow:
        async def run(self, arguments: Mapping[str, Any]) -> HostedResult:
            nonlocal most
            running.append(1)
            most = max(most, len(running))
            try:
                await asyncio.sleep(0.02)
            finally:
                running.pop()
            return HostedResult("done")

    async def test() -> list[HostedResult]:
        limits = HostedLimits(calls_at_once=4, total_seconds=0.5)
        hosted = ToolRunner({TARGET: Slow()}, limits, SourceNumbers(), lambda *_: None, lambda *_: None)
        return await asyncio.gather(*(hosted.run(TARGET, "{}") for _ in range(200)))

    found = asyncio.run(test())
    assert most == 4
    done = [result.text for result in found if not result.failed]
    assert 1 <= len(done) <= 25 + 4  # the time of each counts, and four were running when it was used up
    assert found[-1].text == "Error: The time for the tools of this response is used up. Answer without calling any."
