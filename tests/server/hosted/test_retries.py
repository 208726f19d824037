"""Clients repeat what has failed, by themselves: what a tool has done is not done again."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from openai import AsyncOpenAI

from responses_gateway.server.generation.responses import Creation
from tests.server.hosted.model import DOCS, MCP, calls, model, says
from tests.server.hosted.test_hosted_mcp import kinds, runs_tools
from tests.server.resources.test_websocket_resource import connect
from tests.server.running_gateway import Answer, Served, ask, assert_error, post, run, until

ASKING = {"docs": {**DOCS["docs"], "require_approval": "always"}}
PAY = calls(("docs__pay", {}))
NO_OBJECT = "The arguments are not a JSON object. Call the tool again."
QUESTION = {"type": "message", "role": "user", "content": "Pay"}


@asynccontextmanager
async def sdk(served: Served) -> AsyncIterator[AsyncOpenAI]:
    """The official SDK, with the retries that it makes by default."""
    async with AsyncOpenAI(base_url=f"{served.url}/v1", api_key="sk-test") as client:
        assert client.max_retries == 2
        yield client


async def create(client: AsyncOpenAI, *, stream: bool, **asked: Any) -> dict[str, Any]:
    """Return the response that the SDK gives to its user."""
    if not stream:
        return dict((await client.responses.create(model="m", **asked)).model_dump())
    async for event in await client.responses.create(model="m", stream=True, **asked):
        last = event
    return dict(last.response.model_dump())


def approve(request: dict[str, Any]) -> dict[str, Any]:
    return {"type": "mcp_approval_response", "approval_request_id": request["id"], "approve": True}


async def asked_to_approve(served: Served, **fields: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a response that waits for an approval, and what approves it."""
    first = (await post(served, tools=[MCP], **fields)).final
    return first, approve(first["output"][-1])


def paid(response: dict[str, Any]) -> list[str | None]:
    return [item["output"] for item in response["output"] if item["type"] == "mcp_call"]


def has_begun_a_call(served: Served) -> bool:
    """Tell whether a tool runs. Before that, the phase of its request says so while the approval is used up."""
    creations = served.parts.in_flight.activities
    return runs_tools(served) and any(isinstance(made, Creation) and made.prepared.tools_ran for made in creations)


def runs(served: Served) -> float:
    """How often a tool was run."""
    return served.metric("hosted_calls_total", tool="mcp", outcome="completed")


@pytest.mark.parametrize("stored", [True, False])
@pytest.mark.parametrize("stream", [True, False])
def test_the_official_sdk_runs_an_approved_call_once_where_the_backend_fails_behind_it(stream: bool, stored: bool) -> None:
    async def test() -> None:
        async with model(PAY, 500, mcp_servers=ASKING, store="memory", retries=0) as (served, _), sdk(served) as client:
            key = {"Authorization": "Bearer sk-test"}
            first, approval = await asked_to_approve(served, store=stored, headers=key)
            asked: dict[str, Any] = {"input": [approval], "previous_response_id": first["id"]}
            if not stored:
                asked = {"input": [QUESTION, *first["output"], approval], "store": False}
            answer = await create(client, stream=stream, tools=[MCP], **asked)
            assert (answer["status"], kinds(answer), paid(answer)) == ("failed", ["mcp_call"], ["paid 1 times"])
            assert answer["error"]["code"] == "server_error"
            assert answer["output"][0]["approval_request_id"] == approval["approval_request_id"]
            assert runs(served) == 1
            if stored:
                found = (await ask(served, "GET", f"/v1/responses/{answer['id']}", headers=key)).json
                assert (found["status"], paid(found)) == ("failed", ["paid 1 times"])

    run(test())


@pytest.mark.parametrize("stream", [True, False])
def test_the_official_sdk_runs_a_call_once_where_a_later_turn_fails(stream: bool) -> None:
    async def test() -> None:
        async with model(PAY, 500, mcp_servers=DOCS, store="memory", retries=0) as (served, _), sdk(served) as client:
            answer = await create(client, stream=stream, tools=[MCP], input="Pay")
            assert (answer["status"], kinds(answer)) == ("failed", ["mcp_list_tools", "mcp_call"])
            assert runs(served) == 1

    run(test())


@pytest.mark.parametrize("background", [True, False])
def test_a_response_that_goes_on_without_its_client_fails_in_its_stream(background: bool, tmp_path: Path) -> None:
    async def test() -> None:
        settings: dict[str, Any] = {"store": str(tmp_path / "s.db"), "on_disconnect": "continue", "retries": 0}
        async with model(PAY, 500, mcp_servers=ASKING, **settings) as (served, _):
            first, approval = await asked_to_approve(served)
            more = {"input": [approval], "previous_response_id": first["id"], "background": background}
            answer = await post(served, tools=[MCP], **more)
            assert (answer.status, answer.final["status"], paid(answer.final)) == (200, "failed", ["paid 1 times"])

    run(test())


@pytest.mark.parametrize("more", [{}, {"store": False}])
def test_over_a_websocket_the_response_fails_with_its_call(more: dict[str, Any]) -> None:
    async def test() -> None:
        async with (
            model(PAY, 500, says("It was paid."), mcp_servers=ASKING, store="memory", retries=0) as (served, talking),
            connect(served) as socket,
        ):
            first, approval = await asked_to_approve(served)
            await socket.send([approval], tools=[MCP], previous_response_id=first["id"], **more)
            last = (await socket.rest())[-1]
            assert (last["type"], paid(last["response"])) == ("response.failed", ["paid 1 times"])
            # The connection goes on behind it, also where nothing is stored.
            await socket.send("And?", tools=[MCP], previous_response_id=last["response"]["id"], **more)
            assert (await socket.rest())[-1]["response"]["output"][-1]["type"] == "message"
            assert talking.requests[-1]["messages"][-2]["content"] == "paid 1 times"

    run(test())


def test_a_backend_that_fails_before_a_call_is_an_error_that_may_be_tried_again() -> None:
    async def test() -> None:
        async with model(500, mcp_servers=DOCS, retries=0) as (served, _):
            assert (await post(served, tools=[MCP], stream=False)).status in (500, 502)

    run(test())


def assert_used(refused: Answer, approval: dict[str, Any], used_by: str) -> None:
    message = assert_error(refused, 400, "approval_already_used")
    assert approval["approval_request_id"] in message
    assert used_by in message
    assert refused.json["error"]["param"].endswith(".approval_request_id")


@pytest.mark.parametrize("store", ["memory", "none"])
def test_of_two_requests_with_one_approval_at_once_one_takes_it(store: str) -> None:
    async def test() -> None:
        async with model(PAY, says("Done."), mcp_servers=ASKING, store=store) as (served, _):
            first, approval = await asked_to_approve(served)
            given = [QUESTION, *first["output"], approval]
            both = await asyncio.gather(*(post(served, tools=[MCP], input=given, store=False) for _ in range(2)))
            done, refused = sorted(both, key=lambda answer: answer.status)
            assert (done.final["status"], paid(done.final)) == ("completed", ["paid 1 times"])
            assert_used(refused, approval, done.final["id"])
            assert runs(served) == 1
            # It stays used up; the answer to it does not.
            again = await post(served, tools=[MCP], input=given, store=False)
            assert_used(again, approval, done.final["id"])
            assert again.json["error"]["param"] == f"input[{len(given) - 1}].approval_request_id"
            known = [*given, *done.final["output"], QUESTION]
            assert kinds((await post(served, tools=[MCP], input=known, store=False)).final) == ["message"]

    run(test())


def test_another_gateway_with_the_same_store_knows_that_an_approval_was_used(tmp_path: Path) -> None:
    async def test() -> None:
        path = str(tmp_path / "s.db")
        async with model(PAY, says("Done."), mcp_servers=ASKING, store=path) as (served, _):
            first, approval = await asked_to_approve(served)
            more = {"input": [approval], "previous_response_id": first["id"]}
            done = (await post(served, tools=[MCP], **more)).final
        async with model(says("Done."), mcp_servers=ASKING, store=path) as (served, _):
            assert_used(await post(served, tools=[MCP], **more), approval, done["id"])
            assert runs(served) == 0

    run(test())


@pytest.mark.parametrize("broken", ['{"a": 1, "b":', '{"a": one}', "[1, 2]"])
@pytest.mark.parametrize("behind", [True, False])
def test_a_call_that_cannot_run_fails_for_the_model_and_no_approval_is_asked_for(behind: bool, broken: str) -> None:
    async def test() -> None:
        made: list[tuple[str, Any]] = [("docs__add", broken), ("docs__pay", {})]
        turns = calls(made[0]), calls(*(made[::-1] if behind else made)), says("Done.")
        async with model(*turns, mcp_servers=ASKING, store="memory") as (served, talking):
            first = (await post(served, tools=[MCP])).final
            (_, alone, *both) = first["output"]
            assert sorted(item["type"] for item in both) == ["mcp_approval_request", "mcp_call"]
            failed = next(item for item in both if item["type"] == "mcp_call")
            for call in (alone, failed):
                assert (call["arguments"], call["status"], call["error"]["content"][0]["text"]) == (broken, "failed", NO_OBJECT)
            assert talking.requests[1]["messages"][-1]["content"] == f"Error: {NO_OBJECT}"
            approval = approve(next(item for item in both if item["type"] == "mcp_approval_request"))
            last = (await post(served, tools=[MCP], previous_response_id=first["id"], input=[approval])).final
            assert (last["status"], paid(last), runs(served)) == ("completed", ["paid 1 times"], 1)
            told = [message["content"] for message in talking.requests[-1]["messages"] if message["role"] == "tool"]
            assert sorted(told[1:]) == [f"Error: {NO_OBJECT}", "paid 1 times"]

    run(test())


def test_approvals_of_which_one_was_used_are_all_refused_and_the_others_stay() -> None:
    async def test() -> None:
        both = calls(("docs__pay", {}), ("docs__add", {"a": 1, "b": 2}))
        async with model(both, says("Done."), mcp_servers=ASKING, store="memory") as (served, _):
            first = (await post(served, tools=[MCP])).final
            pay, add = (approve(request) for request in first["output"][1:])
            more = {"tools": [MCP], "previous_response_id": first["id"]}
            done = (await post(served, input=[pay], **more)).final
            assert_used(await post(served, input=[add, pay], **more), pay, done["id"])
            last = (await post(served, input=[add], **more)).final
            assert (paid(last), runs(served)) == (["3"], 2)

    run(test())


def test_a_conversation_goes_on_behind_a_failure_with_the_call_that_was_made() -> None:
    async def test() -> None:
        async with model(PAY, 500, says("It was paid."), mcp_servers=ASKING, store="memory", retries=0) as (served, talking):
            conversation = (await ask(served, "POST", "/v1/conversations", json={})).json["id"]
            _, approval = await asked_to_approve(served, conversation=conversation)
            more = {"tools": [MCP], "conversation": conversation, "input": [approval]}
            failed = (await post(served, **more, stream=False)).json
            assert (failed["status"], paid(failed)) == ("failed", ["paid 1 times"])
            # The client answers once more: the call was made, and the model learns what came of it.
            last = (await post(served, **more)).final
            assert (last["status"], kinds(last), runs(served)) == ("completed", ["message"], 1)
            assert talking.requests[-1]["messages"][-1]["content"] == "paid 1 times"

    run(test())


@pytest.mark.slow
def test_an_approved_call_that_a_stop_interrupts_is_on_record_and_not_made_again() -> None:
    async def test() -> None:
        turns = calls(("docs__wait_for_ever", {})), says("Who knows.")
        async with model(*turns, mcp_servers=ASKING, store="memory", header_grace=0.01) as (served, talking):
            first, approval = await asked_to_approve(served)
            asking = asyncio.create_task(post(served, tools=[MCP], input=[approval], previous_response_id=first["id"]))
            await until(lambda: has_begun_a_call(served))
            await served.parts.in_flight.drain(asyncio.Event(), 0.0)
            stopped = (await asking).final
            (made,) = stopped["output"]
            assert (stopped["status"], made["type"], made["status"]) == ("failed", "mcp_call", "incomplete")
            assert made["approval_request_id"] == approval["approval_request_id"]
        async with model(says("Who knows."), mcp_servers=ASKING) as (served, talking):
            given = [QUESTION, *first["output"], approval, made, QUESTION]
            assert kinds((await post(served, tools=[MCP], input=given)).final) == ["message"]
            assert "Whether it was carried out is not known" in json.dumps(talking.requests[-1]["messages"])

    run(test())


def test_an_approval_in_the_history_whose_call_left_no_trace_is_not_made_again() -> None:
    """Its gateway was killed, or its client left: the conversation goes on all the same."""

    async def test() -> None:
        async with model(PAY, says("Done."), says("Well."), mcp_servers=ASKING, store="memory") as (served, talking):
            first, approval = await asked_to_approve(served)
            await post(served, tools=[MCP], input=[QUESTION, *first["output"], approval], store=False)
            conversation = {"items": [QUESTION, first["output"][-1], approval]}
            known = (await ask(served, "POST", "/v1/conversations", json=conversation)).json["id"]
            answer = (await post(served, tools=[MCP], conversation=known, input="And?")).final
            assert (answer["status"], kinds(answer), runs(served)) == ("completed", ["mcp_list_tools", "message"], 1)
            assert "Whether it was carried out is not known" in json.dumps(talking.requests[-1]["messages"])

    run(test())


@pytest.mark.parametrize("store", ["memory", "none"])
def test_a_session_that_keeps_its_history_itself_goes_on_behind_a_failure_that_used_up_an_approval(store: str) -> None:
    """The Agents SDK throws for the failed response, so its user has nothing of it to send back."""

    async def test() -> None:
        async with model(PAY, 500, says("Well."), mcp_servers=ASKING, store=store, retries=0) as (served, talking):
            first, approval = await asked_to_approve(served, input=[QUESTION])
            given = [QUESTION, *first["output"], approval]
            failed = (await post(served, tools=[MCP], input=given, store=False)).final
            assert_used(await post(served, tools=[MCP], input=given, store=False), approval, failed["id"])
            answer = (await post(served, tools=[MCP], input=[*given, QUESTION], store=False)).final
            assert (answer["status"], kinds(answer), runs(served)) == ("completed", ["message"], 1)
            assert "Whether it was carried out is not known" in json.dumps(talking.requests[-1]["messages"])

    run(test())


def test_an_approval_behind_which_the_model_went_on_runs_nothing() -> None:
    """Some clients leave the calls of a server out of the history that they send."""

    async def test() -> None:
        async with model(PAY, says("Well."), mcp_servers=ASKING) as (served, talking):
            first, approval = await asked_to_approve(served)
            said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "It was paid."}]}
            given = [QUESTION, *first["output"], approval, said, QUESTION]
            answer = (await post(served, tools=[MCP], input=given, store=False)).final
            assert (answer["status"], kinds(answer), runs(served)) == ("completed", ["message"], 0)
            assert "Whether it was carried out is not known" in json.dumps(talking.requests[-1]["messages"])

    run(test())
