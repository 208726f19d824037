"""A backend breaks off in one of the turns in which hosted tools are used, and another one goes on: the client notices
nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from responses_gateway.conformance.checker import check_stream
from tests.hosted.websites import SearchEngine, searched_web
from tests.server.fleet_of_simulators import fleet, said
from tests.server.running_gateway import Answer, Served, ask, post, run
from tests.thoroughness import one_in

DIALECTS = ["vllm", "vllm-interval", "vllm-raw", "vllm-raw-xml"]
# The model searches, opens a page, and cites it.
TURNS = range(3)
NEVER = "drop=000,times=0,step=0"


@asynccontextmanager
async def scene(dialect: str = "vllm", **settings: Any) -> AsyncIterator[tuple[Served, SearchEngine]]:
    async with searched_web() as web, fleet(dialect, **web.settings, **settings) as served:
        yield served, web.engine


async def research(served: Served, fault: str, **fields: Any) -> Answer:
    question = f"scenario: research fault: {fault} How high is the tower?"
    return await post(served, input=question, tools=[{"type": "web_search"}], **fields)


@pytest.mark.slow
@pytest.mark.parametrize("turn", TURNS)
@pytest.mark.parametrize("dialect", DIALECTS)
def test_cut_anywhere_in_any_turn_the_response_is_the_same(dialect: str, turn: int) -> None:
    async def test() -> None:
        async with scene(dialect) as (served, engine):
            whole = said(await research(served, NEVER))
            assert whole["output"][-1]["content"][0]["annotations"]
            step = 2 if dialect == "vllm-interval" else 7
            positions = one_in(3, range((len(dialect) + turn) % step, 6 * step, step))
            for position in positions:
                assert said(await research(served, f"drop={position:03},times=1,step={turn}")) == whole, position
            assert served.metric("continuations_total", outcome="continued", reason="broke") >= 1
            assert len(engine.queries) == 1 + len(positions)  # no tool is run once more

    run(test())


@pytest.mark.parametrize(("fault", "cause"), [("eof", "eof"), ("abort", "abort"), ("error", "engine")])
@pytest.mark.parametrize("dialect", ["vllm", "vllm-raw"])
def test_whatever_way_it_breaks_off_in_a_call(dialect: str, fault: str, cause: str) -> None:
    async def test() -> None:
        async with scene(dialect) as (served, _):
            whole = said(await research(served, NEVER))
            place = {"vllm": "call", "vllm-raw": "half"}[dialect]
            assert said(await research(served, f"{fault}={place},times=1,step=1")) == whole
            assert served.metric("continuations_total", outcome="continued", reason=cause) == 1

    run(test())


@pytest.mark.parametrize("attempts", [1, 2])
def test_the_turns_of_a_response_share_its_attempts(attempts: int) -> None:
    async def test() -> None:
        async with scene(continue_answers=attempts) as (served, _):
            answer = (await research(served, "drop=half,times=1")).final  # in each turn
            assert answer["status"] == "failed"
            statuses = [item["status"] for item in answer["output"] if item["type"] == "web_search_call"]
            assert statuses.count("completed") == attempts
            assert served.metric("continuations_total", outcome="continued", reason="broke") == attempts
            assert served.metric("continuations_total", outcome="failed", reason="attempts") == 1

    run(test())


@pytest.mark.slow
def test_a_response_in_the_background_is_continued_and_stored(tmp_path: Path) -> None:
    async def test() -> None:
        async with scene(store=str(tmp_path / "s.db")) as (served, _):
            whole = said(await research(served, NEVER))
            begun = (await research(served, "drop=020,times=1,step=2", background=True, stream=False)).json
            answer = await ask(served, "GET", f"/v1/responses/{begun['id']}?stream=true")
            assert said(answer) == whole
            assert check_stream(answer.body) == []
            assert served.metric("continuations_total", outcome="continued", reason="broke") == 1
            found = (await ask(served, "GET", f"/v1/responses/{begun['id']}")).json
            assert (found["status"], found["output"]) == ("completed", answer.final["output"])

    run(test())
