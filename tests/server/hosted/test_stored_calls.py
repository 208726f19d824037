"""What is kept of hosted calls: stored responses and their streams, conversations, references, compaction, records."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from responses_gateway.commands.replay import replay
from responses_gateway.request.input.approvals import INTERRUPTED
from responses_gateway.request.input.calls import SEARCH_FAILED
from responses_gateway.server.recording.recorder import PATTERN
from tests.judges import judge_stream
from tests.server.hosted.model import DOCS, MCP, calls, model, says
from tests.server.hosted.test_hosted_mcp import kinds, runs_tools
from tests.server.hosted.test_hosted_web import results
from tests.server.running_gateway import Served, ask, events_of, final_of, post, run, until

ADD = ("docs__add", {"a": 1, "b": 2})
SUM = calls(ADD, thought="Let me add."), says("It is 3.")
FILES: dict[str, Any] = {"mcp_servers": DOCS, "file_search_tools": {"vs_1": "docs/search"}}
FILE_SEARCH = {"type": "file_search", "vector_store_ids": ["vs_1"]}
RESULTS = ["file_search_call.results"]
CODE = {"type": "code_interpreter", "container": {"type": "auto"}}
WAITS = "mcp:docs/wait_for_ever"


async def stored(served: Served, response_id: str, query: str = "") -> bytes:
    return (await ask(served, "GET", f"/v1/responses/{response_id}?stream=true{query}")).body


def test_a_stored_response_is_streamed_with_the_events_of_its_calls() -> None:
    async def test() -> None:
        turns = calls(ADD, ("docs__fail", {})), calls(("file_search", {"queries": ["x"]})), says("See【1】.")
        async with model(*turns, **FILES, store="memory") as (served, _):
            answer = await post(served, tools=[MCP, FILE_SEARCH], include=RESULTS)
            again = await stored(served, answer.final["id"])
            assert final_of(again) == answer.final
            assert kinds(answer.final) == ["mcp_list_tools", "mcp_call", "mcp_call", "file_search_call", "message"]
            assert answer.final["output"][-1]["content"][0]["annotations"]

            def steps(body: bytes) -> list[str]:
                return [event["type"] for event in events_of(body) if not event["type"].endswith(".delta")]

            assert steps(again) == steps(answer.body)

    run(test())


def test_a_response_in_the_background_is_read_from_any_event_on(tmp_path: Path) -> None:
    async def test() -> None:
        async with model(*SUM, mcp_servers=DOCS, store=str(tmp_path / "s.db")) as (served, _):
            begun = (await post(served, tools=[MCP], background=True, stream=True)).body
            final = final_of(begun)
            events = events_of(begun)
            assert kinds(final) == ["mcp_list_tools", "reasoning", "mcp_call", "message"]
            middle = next(event for event in events if event["type"] == "response.mcp_call.in_progress")["sequence_number"]
            rest = await stored(served, final["id"], f"&starting_after={middle}")
            assert events_of(rest) == events[middle + 1 :]

    run(test())


def test_conversations_references_and_input_items() -> None:
    async def test() -> None:
        turns = *SUM, says("Yes."), says("And again."), says("Once more.")
        async with model(*turns, mcp_servers=DOCS, store="memory") as (served, talking):
            made = (await ask(served, "POST", "/v1/conversations", json={})).json["id"]
            first = (await post(served, tools=[MCP], conversation=made)).final
            listed = (await ask(served, "GET", f"/v1/conversations/{made}/items?order=asc")).json["data"]
            assert [item["type"] for item in listed] == ["message", *kinds(first)]
            assert listed[1:] == first["output"]
            await post(served, tools=[MCP], input="Sure?", conversation=made)
            before = talking.requests[1]["messages"]
            assert talking.requests[2]["messages"][: len(before)] == before

            call = next(item for item in first["output"] if item["type"] == "mcp_call")
            question = {"type": "message", "role": "user", "content": "Hm"}
            second = (await post(served, tools=[MCP], input=[question, *first["output"]])).final
            asked = (await ask(served, "GET", f"/v1/responses/{second['id']}/input_items?order=asc")).json["data"]
            assert [item["type"] for item in asked] == ["message", *kinds(first)]

            question = {"type": "message", "role": "user", "content": "What was the sum?"}
            reference = {"type": "item_reference", "id": call["id"]}
            await post(served, tools=[MCP], input=[reference, question])
            said, result, _ = talking.requests[-1]["messages"]
            assert said["tool_calls"][0]["function"]["name"] == "docs__add"
            assert (result["role"], result["content"]) == ("tool", "3")

    run(test())


def test_an_approval_is_honoured_in_strict_mode() -> None:
    async def test() -> None:
        always = {**MCP, "require_approval": "always"}
        servers = {"docs": {**DOCS["docs"], "require_approval": None}}
        async with model(calls(ADD), says("3."), mcp_servers=servers, store="memory", strict=True) as (served, _):
            first = (await post(served, tools=[always])).final
            decision = {"type": "mcp_approval_response", "approval_request_id": first["output"][1]["id"], "approve": True}
            second = (await post(served, tools=[always], input=[decision], previous_response_id=first["id"])).final
            assert kinds(second) == ["mcp_call", "message"]

    run(test())


@pytest.mark.parametrize("strict", [True, False])
def test_a_conversation_with_hosted_calls_is_compacted(strict: bool) -> None:
    async def test() -> None:
        turns = *SUM, says("The sum was 3."), says("Yes.")
        async with model(*turns, mcp_servers=DOCS, store="memory", strict=strict) as (served, talking):
            first = (await post(served, tools=[MCP])).final
            management = [{"type": "compaction", "compact_threshold": 1000}]
            long = "Are you sure? " * 1000
            again = await post(served, tools=[MCP], input=long, previous_response_id=first["id"], context_management=management)
            assert kinds(again.final)[0] == "compaction"
            assert again.final["status"] == "completed"
            roles = [message["role"] for message in talking.requests[2]["messages"]]
            assert "tool" in roles
            assert "tools" not in talking.requests[2]
            assert talking.requests[3]["tools"] == talking.requests[0]["tools"]
            question = {"type": "message", "role": "user", "content": "Hi"}
            compacted = await ask(
                served, "POST", "/v1/responses/compact", json={"model": "m", "input": [question, *first["output"]]}
            )
            assert compacted.status == 200, compacted.body
            assert compacted.json["output"][-1]["type"] == "compaction"

    run(test())


def test_input_tokens_count_hosted_tools() -> None:
    async def test() -> None:
        seen: list[dict[str, Any]] = []

        async def tokenize(request: web.Request) -> web.Response:
            seen.append(await request.json())
            return web.json_response({"count": 7, "tokens": []})

        async with model(says("Hi."), mcp_servers=DOCS, paths={"/tokenize": tokenize}) as (served, talking):
            await post(served, tools=[MCP])
            body = {"model": "simulator", "input": "hi", "tools": [MCP]}
            counted = await ask(served, "POST", "/v1/responses/input_tokens", json=body)
            assert counted.json["input_tokens"] == 7
            assert seen[0]["tools"] == talking.requests[0]["tools"]

    run(test())


def test_a_record_of_hosted_calls_replays_identically_and_has_no_secrets(tmp_path: Path) -> None:
    secret = "a-secret-of-the-server"
    servers = {
        "docs": {**DOCS["docs"], "env": {"DOCS_KEY": secret}, "require_approval": None},
    }
    always = {**MCP, "require_approval": {"always": {"tool_names": ["fail"]}, "never": {"tool_names": ["add", "search"]}}}
    far = {"type": "mcp", "server_label": "far", "server_url": "http://127.0.0.1:9/mcp", "authorization": "far-token-1"}

    async def test() -> None:
        turns = (
            calls(ADD, ("docs__add", {"a": 3, "b": 4}), thought="Hm."),
            calls(("file_search", {"queries": ["x"]})),
            says("See【1】. And more."),
            calls(("docs__fail", {})),
            says("It failed."),
        )
        settings: dict[str, Any] = {**FILES, "mcp_servers": servers, "mcp_allowed_hosts": ["127.0.0.1:9"]}
        async with model(*turns, **settings, store="memory", record=tmp_path) as (served, _):
            tools = [always, FILE_SEARCH, {**far, "headers": {"x-key": "far-header-secret"}}]
            first = (await post(served, tools=tools, include=RESULTS)).final
            assert kinds(first)[-2:] == ["file_search_call", "message"]
            second = (await post(served, tools=tools, previous_response_id=first["id"])).final
            assert kinds(second) == ["mcp_approval_request"]
            decision = {"type": "mcp_approval_response", "approval_request_id": second["output"][0]["id"], "approve": True}
            third = (await post(served, tools=tools, input=[decision], previous_response_id=second["id"])).final
            assert kinds(third) == ["mcp_call", "message"]

    run(test())
    paths = sorted(tmp_path.glob(PATTERN))
    assert len(paths) == 3
    for path in paths:
        done = replay(path)
        assert (done.differences, done.notes, done.ending) == ([], [], "response.completed")
        text = path.read_text()
        assert [word for word in (secret, "far-token-1", "far-header-secret") if word in text] == []


def test_a_stopped_response_is_stored_with_the_call_that_was_cut(tmp_path: Path) -> None:
    async def test() -> None:
        waiting = calls(("docs__wait_for_ever", {}))
        async with model(waiting, mcp_servers=DOCS, store=str(tmp_path / "s.db")) as (served, _):
            begun = (await post(served, tools=[MCP], background=True, stream=False)).json
            path = f"/v1/responses/{begun['id']}"
            await until(lambda: runs_tools(served))
            await ask(served, "POST", f"{path}/cancel")
            await until(lambda: not served.parts.in_flight.activities)
            found = (await ask(served, "GET", path)).json
            assert found["status"] == "cancelled"
            body = (await ask(served, "GET", f"{path}?stream=true")).body
            assert [word for word in judge_stream(body, unfinished_allowed=True) if "SDK" not in word] == []
            assert json.dumps(found["output"]).count("in_progress") == 0

    run(test())


@pytest.mark.parametrize(
    ("settings", "tool", "asked", "told"),
    [
        ({"web_search_provider": WAITS}, {"type": "web_search"}, ("web_search", {"queries": ["x"]}), SEARCH_FAILED),
        ({"code_interpreter": WAITS}, CODE, ("python", {"code": "1 + 2"}), INTERRUPTED),
        ({}, MCP, ("docs__wait_for_ever", {}), INTERRUPTED),
    ],
)
def test_the_model_is_not_told_of_results_that_it_never_had(
    settings: dict[str, Any], tool: dict[str, Any], asked: tuple[str, dict[str, Any]], told: str
) -> None:
    async def test() -> None:
        async with model(calls(asked), says("Hm."), mcp_servers=DOCS, store="memory", **settings) as (served, talking):
            begun = (await post(served, tools=[tool], background=True, stream=False)).json
            await until(lambda: runs_tools(served))
            cancelled = (await ask(served, "POST", f"/v1/responses/{begun['id']}/cancel")).json
            assert cancelled["status"] == "cancelled"
            await post(served, tools=[tool], input="And now?", previous_response_id=begun["id"])
            assert results(talking.requests[-1]) == [told]

    run(test())
