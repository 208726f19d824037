"""Calls of the model whose client leaves in the middle: a trainer reads what was sampled up to there, and the rest of the tree
is what it would be without them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

import aiohttp
import pytest

from tests.hosted.websites import searched_web
from tests.server.features.test_rollouts import ARRAYS
from tests.server.fleet_of_simulators import fleet
from tests.server.resources.test_socket_steering import end_of
from tests.server.resources.test_websocket_resource import Socket, connect
from tests.server.running_gateway import Served, ask, post, run, simulated
from tests.waiting import PATIENCE, until

Json = dict[str, Any]
ROLLOUT = {"X-Rollout-Id": "ep1", "X-Session-Id": "s1"}
# Words that take a second, so that somebody may leave meanwhile; the model says the same each time.
LONG = "tokens: 200 tps: 200"
SOON = aiohttp.ClientTimeout(0.5)


def turn(path: str, text: str) -> Json:
    """Return the body of a request for a stream."""
    question = [{"role": "user", "content": text}]
    if path.endswith("messages"):
        return {"model": "simulator", "max_tokens": 1000, "stream": True, "messages": question}
    return {"model": "simulator", "input": question, "stream": True}


async def leave(served: Served, path: str, body: Json, headers: Mapping[str, str], *, behind: int) -> None:
    """Ask, and leave behind so many bytes of the answer."""
    async with aiohttp.ClientSession() as session:
        answer = await session.post(served.url + path, json=body, headers=headers)
        assert answer.status == 200
        got = 0
        while got < behind:
            got += len(await answer.content.readany())
        answer.close()


async def calls_of(served: Served, number: int, name: str = "ep1") -> list[Json]:
    """Return the calls of a rollout once there are so many."""
    deadline = time.monotonic() + PATIENCE
    while True:
        answer = await ask(served, "GET", f"/rollouts/{name}")
        found: list[Json] = answer.json["calls"] if answer.status == 200 else []
        if len(found) >= number or time.monotonic() > deadline:
            assert len(found) == number
            return found
        await asyncio.sleep(0.02)


def is_begun(call: Json, whole: Json, reason: str = "client_left") -> bool:
    """Tell whether a call has the tokens of another one up to some place, and says so."""
    ids = call["generation_token_ids"]
    assert (call.get("finish_reason"), call["reason"]) == (None, reason)
    spans = None if reason == "client_left" else [(0, len(ids))]  # of the item that was open
    assert (call["item_spans"] and [(span["from"], span["to"]) for span in call["item_spans"]]) == spans
    assert call["generation_log_probs"] == whole["generation_log_probs"][: len(ids)]
    assert call["prompt_token_ids"] == whole["prompt_token_ids"]
    return ids == whole["generation_token_ids"][: len(ids)] and 0 < len(ids) < len(whole["generation_token_ids"])


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/messages"])
@pytest.mark.parametrize("dialect", ["vllm", "vllm-raw"])
def test_a_call_whose_client_leaves_has_the_tokens_up_to_there_and_nothing_continues_it(path: str, dialect: str) -> None:
    """Its client asks again, and goes on from that answer."""

    async def test() -> None:
        async with fleet(dialect, size=1, store="memory") as served:
            await leave(served, path, turn(path, LONG), ROLLOUT, behind=6000)
            await calls_of(served, 1)
            body = turn(path, LONG)
            for _ in range(2):
                answer = await ask(served, "POST", path, json={**body, "stream": False}, headers=ROLLOUT)
                name = "messages" if path.endswith("messages") else "input"
                said = answer.json["output"] if name == "input" else [{"role": "assistant", "content": answer.json["content"]}]
                body[name] += [*said, {"role": "user", "content": "go on"}]
            begun, again, last = await calls_of(served, 3)
            assert is_begun(begun, again)
            assert [call["parent"] for call in (begun, again, last)] == [None, None, again["id"]]
            assert {call["thread"] for call in (begun, again, last)} == {"s1"}
            assert (again["reason"], last["reason"]) == (None, None)
            chain = (await ask(served, "GET", f"/rollouts/ep1?chain={last['id']}")).json
            assert chain["call_ids"] == [again["id"], last["id"]]
            own = (await ask(served, "GET", f"/rollouts/ep1?chain={begun['id']}")).json
            assert own["token_ids"] == begun["prompt_token_ids"] + begun["generation_token_ids"]
            assert sum(own["mask"]) == len(begun["generation_token_ids"])

    run(test())


def test_a_client_that_leaves_a_whole_answer_or_a_websocket_has_its_call_kept() -> None:
    async def test() -> None:
        async with simulated(store="memory") as served, aiohttp.ClientSession() as session:
            whole = {**turn("/v1/responses", LONG), "stream": False}
            with pytest.raises(TimeoutError):
                await session.post(f"{served.url}/v1/responses", json=whole, headers=ROLLOUT, timeout=SOON)
            await calls_of(served, 1)
            async with session.ws_connect(f"{served.url}/v1/responses", headers=ROLLOUT) as socket:
                await socket.send_json({"type": "response.create", **whole})
                for _ in range(40):
                    await socket.receive()
            await calls_of(served, 2)
            await post(served, **whole, headers=ROLLOUT)
            *begun, full = await calls_of(served, 3)
            assert [is_begun(call, full) for call in begun] == [True, True]

    run(test())


def test_a_response_that_goes_on_without_its_client_is_kept_whole() -> None:
    """With `on_disconnect: continue`; one that is not stored ends with its client all the same."""

    async def test() -> None:
        async with simulated(store="memory", on_disconnect="continue") as served:
            for number, store in enumerate((True, False), 1):
                body = {**turn("/v1/responses", LONG), "store": store}
                await leave(served, "/v1/responses", body, ROLLOUT, behind=6000)
                await calls_of(served, number)
            whole, begun = await calls_of(served, 2)
            assert (whole["reason"], whole["finish_reason"]) == (None, "stop")
            assert is_begun(begun, whole)

    run(test())


@pytest.mark.slow
def test_of_a_response_with_hosted_tools_the_calls_that_ended_are_whole() -> None:
    """The last one is whole, too, if its client leaves while a tool runs."""
    question = "scenario: research How high is the tower? tps: 20"

    async def test() -> None:
        async with searched_web() as searched, fleet("vllm", size=1, **searched.settings) as served:
            body = {**turn("/v1/responses", question), "tools": [{"type": "web_search"}]}
            async with aiohttp.ClientSession() as session:
                answer = await session.post(f"{served.url}/v1/responses", json=body, headers=ROLLOUT)
                async for line in answer.content:
                    if line.startswith(b"event: response.output_text.delta"):
                        break
                answer.close()
            *ended, last = await calls_of(served, 3)
            assert [call["reason"] for call in ended] == [None, None]
            assert (last["reason"], last["parent"]) == ("client_left", ended[-1]["id"])
            assert last["id"] == last["response_id"]
            path = f"/v1/responses/{last['id']}/trajectory"
            assert (await ask(served, "GET", path)).json["calls"] == [*ended, last]

    run(test())


def test_a_prompt_as_ids_continues_no_call_whose_client_left() -> None:
    async def test() -> None:
        async with simulated(store="memory") as served:
            headers = {**ROLLOUT, "X-Token-True": "1"}
            answer = await post(served, **{**turn("/v1/responses", "hi"), "stream": False}, headers=headers)
            history = [{"role": "user", "content": "hi"}, *answer.json["output"], {"role": "user", "content": LONG}]
            body = {"model": "simulator", "input": history, "stream": True}
            await leave(served, "/v1/responses", body, headers, behind=6000)
            await calls_of(served, 2)
            # What the client keeps of the answer is part of its next prompt, behind what it continues.
            await post(served, **{**body, "stream": False}, headers=headers)
            first, begun, again = await calls_of(served, 3)
        assert is_begun(begun, again)
        assert [call["parent"] for call in (begun, again)] == [first["id"]] * 2
        assert [call["token_true"] for call in (begun, again)] == [True, True]

    run(test())


@pytest.mark.parametrize("fault", ["slow-headers", "delay"])
def test_a_call_of_which_nothing_came_is_kept_as_that(fault: str) -> None:
    async def test() -> None:
        async with simulated(store="memory") as served, aiohttp.ClientSession() as session:
            await post(served, model="simulator", input="hi", stream=False, headers=ROLLOUT)
            body = {**turn("/v1/responses", f"fault: {fault}=5"), "stream": False}
            with pytest.raises(TimeoutError):
                await session.post(f"{served.url}/v1/responses", json=body, headers=ROLLOUT, timeout=SOON)
            await until(lambda: not served.parts.in_flight.activities, "it is gone")
            await post(served, model="simulator", input="go on", stream=False, headers=ROLLOUT)
            first, begun, last = await calls_of(served, 3)
            assert (begun["reason"], begun["generation_token_ids"]) == ("client_left", None)
            assert (last["reason"], last["parent"]) == (None, first["id"])

    run(test())


async def deltas(socket: Socket, number: int) -> str:
    """Read so many pieces of an answer; return the id of its response."""
    response_id = ""
    while number:
        event = await socket.next()
        response_id = event.get("response", {}).get("id", response_id)
        number -= event["type"].endswith(".delta")
    return response_id


@pytest.mark.parametrize("dialect", ["vllm", "vllm-raw"])
def test_a_response_that_is_cancelled_has_the_tokens_up_to_there(dialect: str) -> None:
    """In the background, over a WebSocket, and by its id over another connection; its client asks again."""

    async def test() -> None:
        async with fleet(dialect, size=1, store="memory") as served, connect(served, **ROLLOUT) as socket:
            body = turn("/v1/responses", LONG)
            started = await post(served, **{**body, "stream": False, "background": True}, headers=ROLLOUT)
            path = f"/v1/responses/{started.json['id']}"
            await asyncio.sleep(0.4)
            cancelled = await ask(served, "POST", f"{path}/cancel", headers=ROLLOUT)
            assert cancelled.json["status"] == "cancelled"
            await socket.send(**body)
            response_id = await deltas(socket, 20)
            await socket.raw.send_json({"type": "response.cancel", "response_id": response_id})
            await end_of(socket)
            await calls_of(served, 2)
            answer = await post(served, **{**body, "stream": False}, headers=ROLLOUT)
            body["input"] += [*answer.json["output"], {"role": "user", "content": "go on"}]
            await post(served, **{**body, "stream": False}, headers=ROLLOUT)
            *begun, whole, last = await calls_of(served, 4)
            assert [is_begun(call, whole, "cancelled") for call in begun] == [True, True]
            assert [call["parent"] for call in (*begun, whole, last)] == [None, None, None, whole["id"]]
            shown = (await ask(served, "GET", f"{path}/trajectory")).json["calls"]
            assert shown == begun[:1]

    run(test())


def test_a_response_that_is_cancelled_before_its_first_token_is_kept_as_that() -> None:
    async def test() -> None:
        async with simulated(store="memory") as served:
            body = {**turn("/v1/responses", "fault: slow-headers=5"), "stream": False, "background": True}
            started = await post(served, **body, headers=ROLLOUT)
            await asyncio.sleep(0.2)
            await ask(served, "POST", f"/v1/responses/{started.json['id']}/cancel", headers=ROLLOUT)
            [call] = await calls_of(served, 1)
            assert (call["reason"], call["generation_token_ids"]) == ("cancelled", None)

    run(test())


def test_a_client_that_leaves_a_response_which_may_be_steered_has_left_and_not_cancelled() -> None:
    async def test() -> None:
        async with simulated(store="memory") as served:
            async with connect(served, **ROLLOUT) as socket:
                await socket.send(**turn("/v1/responses", LONG), store=True)
                await deltas(socket, 20)
            await calls_of(served, 1)
            await post(served, **{**turn("/v1/responses", LONG), "stream": False}, headers=ROLLOUT)
            begun, whole = await calls_of(served, 2)
            assert is_begun(begun, whole)

    run(test())


def test_a_response_that_is_steered_has_its_tokens_and_its_successor_continues_it() -> None:
    async def test() -> None:
        async with simulated(store="memory") as served, connect(served, **ROLLOUT) as socket:
            asked = "scenario: reasoning tokens: 400 tps: 800"
            await socket.send(asked, include=["token_ids"])
            response_id = await deltas(socket, 5)
            await socket.raw.send_json({"type": "response.steer", "previous_response_id": response_id, "input": "shorter"})
            stopped = await end_of(socket)
            assert stopped["incomplete_details"] == {"reason": "steered"}
            assert (await end_of(socket))["status"] == "completed"
            whole = await post(served, model="simulator", input=asked, stream=False, headers=ROLLOUT)
            assert whole.status == 200
            begun, successor, full = await calls_of(served, 3)
            assert successor["parent"] == begun["id"]
            ids = begun["generation_token_ids"]
            assert (begun["reason"], begun.get("finish_reason")) == ("stopped", None)
            assert 0 < len(ids) < len(full["generation_token_ids"])
            assert ids == full["generation_token_ids"][: len(ids)]
            shown = {name: stopped["output"][-1].get(name) for name in ARRAYS}
            assert shown == {name: begun[name] for name in ARRAYS}

    run(test())
