"""A model goes on from an early end however its response is asked for, kept, repeated and continued."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from responses_gateway.conformance.checker import check_stream
from responses_gateway.request.turns import GO_ON
from responses_gateway.server.generation.replay import replay
from tests.server.features.agent_cases import CODEX, calling, pieces
from tests.server.features.test_early_ends import BROKEN, CALL, MESSAGES, READ, REQUEST, TASK, THOUGHT, early_ends
from tests.server.fleet_of_simulators import WEATHER, fleet
from tests.server.generation.test_moderation import BLOCK, SCORE, moderating, told
from tests.server.generation.test_takeover import ended, events_in_store, expire, silence, streamed, two
from tests.server.hosted.model import Turn, model, says
from tests.server.resources.test_websocket_resource import connect
from tests.server.running_gateway import ask, events_of, post, run

ON: dict[str, Any] = {"continue_early_ends": "certain"}


def test_over_a_websocket() -> None:
    async def test() -> None:
        async with model(THOUGHT, CALL, THOUGHT, THOUGHT, **ON) as (served, talking), connect(served, **CODEX) as socket:
            for expected in (["reasoning", "function_call"], ["reasoning", "reasoning"]):
                final = await socket.ask("", input=TASK, tools=[READ])
                assert [item["type"] for item in final["output"]] == expected
                assert final["status"] == "completed"
            assert len(talking.requests) == 4

    run(test())


@pytest.mark.parametrize("second", [CALL, 500, BROKEN])
def test_in_the_background_and_stored(second: Turn) -> None:
    async def test() -> None:
        async with model(THOUGHT, second, says("Done."), store="memory", **ON) as (served, talking):
            begun = (await post(served, REQUEST | {"background": True, "stream": False})).json
            response = await ended(served, begun["id"])
            assert response["status"] == "completed"
            assert response["output"][0]["type"] == "reasoning"
            body = await streamed(served, begun["id"])
            assert check_stream(body) == []
            assert events_of(body)[-1]["response"]["output"] == response["output"]
            asked = len(talking.requests)
            await post(served, input="And now?", previous_response_id=begun["id"], tools=[READ])
            assert GO_ON not in str(talking.requests[asked:])
            listed = (await ask(served, "GET", f"/v1/responses/{begun['id']}/input_items")).json["data"]
            assert GO_ON not in str(listed)

    run(test())


RECORDED: list[list[Turn]] = [
    [THOUGHT, CALL],
    [THOUGHT, THOUGHT],
    [THOUGHT, 500],
    [THOUGHT, BROKEN],
    [pieces(calling("read_file", '{"path": "a')), CALL],
    [pieces(calling("read_file", '{"path": "a')), 400],
]


@pytest.mark.parametrize("turns", RECORDED)
def test_a_record_replays(turns: list[Turn], tmp_path: Path) -> None:
    async def test() -> None:
        async with model(*turns, record=str(tmp_path), **ON) as (served, _):
            assert (await post(served, REQUEST)).final["status"] == "completed"
        async with model(*turns, record=str(tmp_path), **ON) as (served, _):
            assert (await ask(served, "POST", "/v1/messages", json={**MESSAGES, "stream": True})).status == 200

    run(test())
    records = list(tmp_path.glob("exchange-*.jsonl"))
    assert len(records) == 2
    assert [replay(path).differences for path in records] == [[], []]
    assert all(GO_ON in path.read_text() for path in records)


async def played(asked: str, fault: str = "", dialect: str = "vllm") -> tuple[list[Any], float]:
    """Have simulators answer in the middle of a task, with a fault in all that they are asked; return the items without their
    ids, and how many answers were continued."""
    headers = {"x-simulator": fault} if fault else {}
    async with fleet(dialect, backend_headers=headers, **ON) as served:
        items = [{"role": "user", "content": asked}, *TASK[1:]]
        final = (await post(served, input=items, tools=[WEATHER])).final
        assert final["status"] == "completed"
        assert sum(count for (_, action, _), count in early_ends(served).items() if action == "continue") == 1
        output = [{name: value for name, value in item.items() if name not in ("id", "call_id")} for item in final["output"]]
        return output, served.metric("continuations_total", outcome="continued", reason="broke")


@pytest.mark.parametrize("dialect", ["vllm", "vllm-raw"])
@pytest.mark.parametrize("position", ["003", "007"])
def test_an_answer_that_broke_off_and_was_continued_may_end_early(dialect: str, position: str) -> None:
    async def test() -> None:
        scenario = "scenario: reasoning_only fault: drop"
        whole, _ = await played(f"{scenario}=000,times=0", dialect=dialect)
        broken, continued = await played(f"{scenario}={position},times=1", dialect=dialect)
        assert [item["type"] for item in broken] == [item["type"] for item in whole]
        assert broken[0]["content"][0]["text"].endswith("and thinking on.")  # it quotes what it is asked
        assert len(whole) > 1
        assert continued == 1

    run(test())


def test_the_answer_after_an_early_end_is_continued_elsewhere() -> None:
    async def test() -> None:
        whole, _ = await played("scenario: empty")
        broken, continued = await played("scenario: empty", "fault: drop=020,times=1")
        assert broken == whole
        assert continued == 1

    run(test())


def test_another_gateway_ends_it_as_it_was(tmp_path: Path) -> None:
    async def test() -> None:
        async with two(tmp_path, speed=20, common=ON) as (one, other):
            asked = {"input": "scenario: empty", "tools": [WEATHER], "background": True, "stream": False}
            name = str((await post(one, asked)).json["id"])
            async with asyncio.timeout(60):
                while b"output_text.delta" not in await events_in_store(one, name):  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            await silence(one)
            await expire(one)
            response = await ended(other, name)
            assert response["status"] == "completed"
            assert [item["status"] for item in response["output"]] == ["completed"] * len(response["output"])
            assert check_stream(await streamed(other, name)) == []
            await one.parts.pool.close()

    run(test())


def test_a_cancelled_response_stays_what_it_was() -> None:
    async def test() -> None:
        async with model(THOUGHT, CALL, store="memory", **ON) as (served, talking):
            begun = (await post(served, REQUEST | {"background": True, "stream": False})).json
            assert (await ask(served, "POST", f"/v1/responses/{begun['id']}/cancel")).status == 200
            assert (await ended(served, begun["id"]))["status"] in ("cancelled", "completed")
            assert len(talking.requests) <= 2

    run(test())


@pytest.mark.parametrize("moderation", [BLOCK, SCORE])
@pytest.mark.parametrize("stream", [True, False])
def test_a_moderated_answer_goes_on_and_all_of_it_is_judged(moderation: dict[str, Any], stream: bool) -> None:
    async def test() -> None:
        async with moderating(THOUGHT, says("All is done."), **ON) as (served, models):
            answer = await post(served, REQUEST, model="m", moderation=moderation, stream=stream)
            response = answer.final if stream else answer.json
            assert [item["type"] for item in response["output"]] == ["reasoning", "message"]
            assert (response["status"], len(models.asked["m"])) == ("completed", 2)
            judged = str([body["messages"][-1]["content"] for body in models.asked["guard"]])
            assert "I have to open it." in judged
            assert "All is done." in judged

    run(test())


@pytest.mark.parametrize("stream", [True, False])
def test_a_flagged_answer_does_not_go_on(stream: bool) -> None:
    async def test() -> None:
        async with moderating(pieces({"reasoning": "EVIL"}), says("All is done."), **ON) as (served, models):
            answer = await post(served, REQUEST, model="m", moderation=BLOCK, stream=stream)
            response = answer.final if stream else answer.json
            assert (response["status"], response["incomplete_details"]) == ("incomplete", {"reason": "content_filter"})
            assert len(models.asked["m"]) == 1

    run(test())


def test_what_is_flagged_behind_an_early_end_does_not_pass() -> None:
    async def test() -> None:
        async with moderating(THOUGHT, says("EVIL"), says("All is done."), **ON) as (served, models):
            answer = await post(served, REQUEST, model="m", moderation=BLOCK)
            assert [item["type"] for item in answer.final["output"]] == ["reasoning"]  # it ends as it was
            assert told(answer.final) == {"input": False, "output": True}
            assert b"EVIL" not in answer.body
            assert len(models.asked["m"]) == 2

    run(test())
