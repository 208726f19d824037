"""MCP tools through the front door: the model calls them, the gateway runs them, the client sees one response."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from responses_gateway.server.generation.responses import Creation
from responses_gateway.server.process.reloading import Reloading
from tests.server.hosted.model import DOCS, MCP, calls, model, says
from tests.server.resources.test_websocket_resource import connect
from tests.server.running_gateway import Served, ask, assert_error, post, run, until
from tests.server.scripted_backend import chunk


def runs_tools(served: Served) -> bool:
    """Tell whether a response of the gateway waits for a tool."""
    creations = served.parts.in_flight.activities
    return any(isinstance(made, Creation) and made.log.facts.phase == "tools" for made in creations)


def kinds(response: dict[str, Any]) -> list[str]:
    return [item["type"] for item in response["output"]]


@pytest.mark.parametrize("stream", [True, False])
def test_the_model_calls_a_tool_and_answers_with_its_result(stream: bool) -> None:
    async def test() -> None:
        turns = calls(("docs__add", {"a": 1, "b": 2}), thought="Let me add."), says("It is 3.", thought="Good.")
        async with model(*turns, mcp_servers=DOCS) as (served, talking):
            answer = await post(served, tools=[MCP], stream=stream)
            response = answer.final if stream else answer.json
            assert kinds(response) == ["mcp_list_tools", "reasoning", "mcp_call", "reasoning", "message"]
            listed, _, made, _, message = response["output"]
            assert "add" in {tool["name"] for tool in listed["tools"]}
            assert (made["name"], made["server_label"], made["output"], made["status"]) == ("add", "docs", "3", "completed")
            assert message["content"][0]["text"] == "It is 3."
            assert (response["usage"]["input_tokens"], response["usage"]["output_tokens"]) == (20, 10)
            first, second = talking.requests
            assert "docs__add" in {tool["function"]["name"] for tool in first["tools"]}
            assert second["messages"][: len(first["messages"])] == first["messages"]
            said, result = second["messages"][len(first["messages"]) :]
            assert said["reasoning"] == "Let me add."
            assert said["tool_calls"][0]["function"] == {"name": "docs__add", "arguments": '{"a": 1, "b": 2}'}
            assert (result["role"], result["content"], result["tool_call_id"]) == ("tool", "3", said["tool_calls"][0]["id"])
            assert served.metric("hosted_calls_total", tool="mcp", outcome="completed") == 1

    run(test())


@pytest.mark.parametrize("late", [False, True])
def test_what_the_server_wants_back_with_the_calls_of_its_turn_goes_back(late: bool) -> None:
    """Gemini refuses the next turn without the signature of its calls."""
    signed = {"google": {"thought_signature": "U2ln"}}

    async def test() -> None:
        extra = [{"index": index, "extra_content": {**signed, "of": index}} for index in (0, 1)]
        details = [{"type": "reasoning.encrypted", "data": "QUJD", "id": "r1", "index": 0}]
        wanted = [chunk({"tool_calls": extra}), chunk({"reasoning_details": details})]
        *made, end = calls(("docs__add", {"a": 1, "b": 2}), ("docs__add", {"a": 3, "b": 4}))
        turn = [*made, *wanted, end] if late else [*wanted, *made, end]
        async with model(turn, says("Done."), mcp_servers=DOCS) as (served, talking):
            answer = await post(served, tools=[MCP])
            assert sorted(kinds(answer.final)) == ["mcp_call", "mcp_call", "mcp_list_tools", "message", "reasoning"]
            said = next(message for message in talking.requests[1]["messages"] if message["role"] == "assistant")
            assert [call["extra_content"] for call in said["tool_calls"]] == [entry["extra_content"] for entry in extra]
            assert said["reasoning_details"] == details

    run(test())


def test_the_model_goes_on_behind_a_source_whose_address_has_half_a_character() -> None:
    async def test() -> None:
        source = {
            "type": "url_citation",
            "url_citation": {"url": "https://example.com/\ud83d", "start_index": 0, "end_index": 4},
        }
        turn = [chunk({"content": "Look", "annotations": [source]}), *calls(("docs__add", {"a": 1, "b": 2}))]
        async with model(turn, says("Done."), mcp_servers=DOCS) as (served, _):
            answer = (await post(served, tools=[MCP])).final
            assert kinds(answer) == ["mcp_list_tools", "message", "mcp_call", "message"]
            assert answer["output"][1]["content"][0]["annotations"][0]["url"] == "https://example.com/?"

    run(test())


def test_the_next_request_has_the_same_beginning_as_the_last_turn() -> None:
    async def test() -> None:
        turns = calls(("docs__add", {"a": 1, "b": 2})), says("It is 3."), says("You are welcome.")
        async with model(*turns, mcp_servers=DOCS, store="memory") as (served, talking):
            first = (await post(served, tools=[MCP])).final
            second = (await post(served, tools=[MCP], input="Thanks", previous_response_id=first["id"])).final
            assert kinds(second) == ["message"]  # the tools are shown once in a conversation
            before = talking.requests[1]["messages"]
            assert talking.requests[2]["messages"][: len(before)] == before

    run(test())


def test_parallel_calls_and_a_call_of_the_client() -> None:
    async def test() -> None:
        clock = {"type": "function", "name": "clock", "parameters": {"type": "object", "properties": {}}}
        made = ("docs__add", {"a": 1, "b": 2}), ("clock", {}), ("docs__add", {"a": 3, "b": 4})
        async with model(calls(*made), says("Done."), mcp_servers=DOCS) as (served, talking):
            answer = (await post(served, tools=[MCP, clock])).final
            assert kinds(answer) == ["mcp_list_tools", "mcp_call", "function_call", "mcp_call"]
            assert [item["output"] for item in answer["output"] if item["type"] == "mcp_call"] == ["3", "7"]
            assert len(talking.requests) == 1
            output = {"type": "function_call_output", "call_id": answer["output"][2]["call_id"], "output": "noon"}
            question = {"type": "message", "role": "user", "content": "Hi"}
            again = (await post(served, tools=[MCP, clock], input=[question, *answer["output"], output])).final
            assert kinds(again) == ["message"]
            contents = [message["content"] for message in talking.requests[1]["messages"] if message["role"] == "tool"]
            assert contents == ["3", "noon", "7"]

    run(test())


@pytest.mark.parametrize("approve", [True, False])
@pytest.mark.parametrize("stored", [True, False])
def test_a_call_waits_for_the_approval_of_the_client(approve: bool, stored: bool) -> None:
    async def test() -> None:
        always = {**MCP, "require_approval": "always"}
        turns = calls(("docs__add", {"a": 1, "b": 2})), says("Well.")
        async with model(*turns, mcp_servers={"docs": {**DOCS["docs"], "require_approval": None}}, store="memory") as (
            served,
            talking,
        ):
            first = (await post(served, tools=[always])).final
            assert kinds(first) == ["mcp_list_tools", "mcp_approval_request"]
            request = first["output"][1]
            decision = {"type": "mcp_approval_response", "approval_request_id": request["id"], "approve": approve}
            asked: dict[str, Any] = {"input": [decision], "previous_response_id": first["id"]}
            question = {"type": "message", "role": "user", "content": "Hi"}
            if not stored:
                asked = {"input": [question, *first["output"], decision], "store": False}
            second = (await post(served, tools=[always], **asked)).final
            result = talking.requests[-1]["messages"][-1]
            if approve:
                assert kinds(second) == ["mcp_call", "message"]
                made = second["output"][0]
                assert (made["approval_request_id"], made["output"]) == (request["id"], "3")
                assert (result["role"], result["content"]) == ("tool", "3")
            else:
                assert kinds(second) == ["message"]
                assert "did not approve" in result["content"]
            assert served.metric("hosted_calls_total", tool="mcp", outcome="completed") == (1 if approve else 0)
            # An answered approval that comes again runs nothing a second time.
            everything = [question, *first["output"], decision, *second["output"], question]
            third = (await post(served, tools=[always], input=everything, store=False)).final
            assert kinds(third) == ["message"]

    run(test())


def test_an_approved_call_counts_among_the_calls_of_its_response() -> None:
    async def test() -> None:
        always = {"docs": {**DOCS["docs"], "require_approval": {"always": ["add"]}}}
        turns = calls(("docs__add", {"a": 1, "b": 2})), calls(("docs__shout_code", {"code": "x"})), says("Done.")
        async with model(*turns, mcp_servers=always) as (served, talking):
            tool = {"type": "mcp", "server_label": "docs", "require_approval": "never"}
            asked = (await post(served, tools=[tool])).final
            decision = {"type": "mcp_approval_response", "approval_request_id": asked["output"][-1]["id"], "approve": True}
            answer = (await post(served, tools=[tool], input=[*asked["output"], decision], max_tool_calls=1)).final
            assert [item.get("output") for item in answer["output"] if item["type"] == "mcp_call"] == ["3"]
            assert talking.requests[-1]["tool_choice"] == "none"

    run(test())


def test_an_approval_of_nothing_is_refused() -> None:
    async def test() -> None:
        async with model(says("Hi."), mcp_servers=DOCS) as (served, _):
            decision = {"type": "mcp_approval_response", "approval_request_id": "mcpr_x", "approve": True}
            message = assert_error(await post(served, tools=[MCP], input=[decision]), 400, "approval_request_not_found")
            assert "mcpr_x" in message

    run(test())


def test_a_server_that_cannot_be_reached_is_an_item_with_an_error() -> None:
    async def test() -> None:
        broken = {"docs": {"command": "/nowhere/server", "require_approval": "never"}}
        async with model(says("No tools today."), mcp_servers=broken) as (served, talking):
            answer = (await post(served, tools=[MCP])).final
            assert kinds(answer) == ["mcp_list_tools", "message"]
            assert answer["output"][0]["error"]
            assert "/nowhere" not in str(answer)
            assert "tools" not in talking.requests[0]

    run(test())


def test_a_tool_that_crashes_is_an_item_with_an_error() -> None:
    async def test() -> None:
        async with model(calls(("docs__crash", {})), says("Sorry."), mcp_servers=DOCS) as (served, talking):
            answer = (await post(served, tools=[MCP])).final
            made = answer["output"][1]
            assert (made["status"], answer["status"]) == ("failed", "completed")
            assert made["error"]
            assert talking.requests[1]["messages"][-1]["content"].startswith("Error: ")

    run(test())


def test_only_declared_tools_are_run() -> None:
    """A name with the label of a server is a call of that server, and the model is told that there is no such tool."""

    async def test() -> None:
        allowed = {**MCP, "allowed_tools": ["add"]}
        turns = calls(("docs__environment", {}), ("environment", {})), says("Hm.")
        async with model(*turns, mcp_servers=DOCS) as (served, talking):
            answer = (await post(served, tools=[allowed])).final
            assert kinds(answer) == ["mcp_list_tools", "mcp_call", "function_call"]
            made = answer["output"][1]
            assert (made["name"], made["status"], made["output"]) == ("environment", "failed", None)
            assert [tool["function"]["name"] for tool in talking.requests[0]["tools"]] == ["docs__add"]
            assert served.metric("hosted_calls_total", tool="mcp", outcome="completed") == 0

    run(test())


def test_a_wrong_name_does_not_end_the_response() -> None:
    async def test() -> None:
        turns = calls(("docs__sum", {})), calls(("docs__add", {"a": 1, "b": 2})), says("3")
        async with model(*turns, mcp_servers=DOCS) as (served, talking):
            answer = (await post(served, tools=[MCP])).final
            assert kinds(answer) == ["mcp_list_tools", "mcp_call", "mcp_call", "message"]
            wrong, right = answer["output"][1:3]
            assert (wrong["name"], wrong["status"], right["output"]) == ("sum", "failed", "3")
            said, told = talking.requests[1]["messages"][-2:]
            assert said["tool_calls"][0]["function"]["name"] == "docs__sum"
            assert "no such tool" in told["content"]

    run(test())


@pytest.mark.parametrize("tool_choice", ["auto", {"type": "mcp", "server_label": "docs", "name": "add"}])
def test_a_model_may_leave_out_the_label(tool_choice: Any) -> None:
    async def test() -> None:
        turns = calls(("add", {"a": 1, "b": 2}), ("add", {"a": 3, "b": 4})), says("3 and 7")
        async with model(*turns, mcp_servers=DOCS) as (served, talking):
            answer = (await post(served, tools=[MCP], tool_choice=tool_choice)).final
            assert [item["output"] for item in answer["output"] if item["type"] == "mcp_call"] == ["3", "7"]
            said = talking.requests[1]["messages"][-3]
            assert [call["function"]["name"] for call in said["tool_calls"]] == ["docs__add", "docs__add"]

    run(test())


def test_a_function_of_the_client_keeps_its_name() -> None:
    async def test() -> None:
        own = {"type": "function", "name": "add", "parameters": {"type": "object", "properties": {}}}
        async with model(calls(("add", {})), mcp_servers=DOCS) as (served, _):
            assert kinds((await post(served, tools=[MCP, own])).final) == ["mcp_list_tools", "function_call"]

    run(test())


@pytest.mark.parametrize(("written", "meant"), [('{"code": "two\nlines"}', "two\nlines"), ('{"code": "a"}} and so on', "a")])
def test_arguments_that_are_nearly_json_are_read(written: str, meant: str) -> None:
    """Models write line breaks as they are. The second of two calls waits for the first one, and is read in the same way."""

    async def test() -> None:
        turns = calls(("docs__shout_code", written), ("docs__shout_code", written)), says("Done.")
        async with model(*turns, mcp_servers=DOCS) as (served, talking):
            answer = (await post(served, tools=[MCP])).final
            assert [item["output"] for item in answer["output"] if item["type"] == "mcp_call"] == [f"ran: {meant}"] * 2
            for call in talking.requests[1]["messages"][-3]["tool_calls"]:
                assert json.loads(call["function"]["arguments"]) == {"code": meant}

    run(test())


def test_the_number_of_turns_and_of_calls_is_bounded() -> None:
    async def test() -> None:
        async with model(calls(("docs__add", {"a": 1, "b": 2})), mcp_servers=DOCS, hosted_turns=3) as (served, talking):
            answer = (await post(served, tools=[MCP])).final
            assert kinds(answer) == ["mcp_list_tools", "mcp_call", "mcp_call"]
            assert [request.get("tool_choice") for request in talking.requests] == [None, None, "none"]
            limited = (await post(served, tools=[MCP], max_tool_calls=1)).final
            assert kinds(limited) == ["mcp_list_tools", "mcp_call"]

    run(test())


def test_a_long_result_is_cut_for_the_model_and_on_record() -> None:
    async def test() -> None:
        turns = calls(("docs__environment", {})), says("Long.")
        async with model(*turns, mcp_servers=DOCS, hosted_result_bytes=1024) as (served, talking):
            await post(served, tools=[MCP])
            shown = talking.requests[1]["messages"][-1]["content"]
            assert len(shown.encode()) < 1200

    run(test())


def test_secrets_of_a_server_are_not_repeated() -> None:
    async def test() -> None:
        server = {"server_label": "x", "server_url": "http://127.0.0.1:9/mcp", "headers": {"x-key": "another-secret"}}
        tool = {"type": "mcp", **server, "authorization": "very-secret-token"}
        async with model(says("Hi."), mcp_allowed_hosts=["127.0.0.1:9"]) as (served, _):
            answer = await post(served, tools=[tool])
            assert kinds(answer.final) == ["mcp_list_tools", "message"]
            assert b"secret" not in answer.body

    run(test())


def test_a_client_that_leaves_and_a_time_limit_reach_the_running_tool() -> None:
    async def test() -> None:
        waiting = calls(("docs__wait_for_ever", {}))
        async with model(waiting, calls(("docs__running", {})), says("Ok."), mcp_servers=DOCS, hosted_call_timeout=1) as (
            served,
            _talking,
        ):
            answer = (await post(served, tools=[MCP])).final
            stopped, running = (item for item in answer["output"] if item["type"] == "mcp_call")
            assert (stopped["status"], running["output"]) == ("failed", "0")
            assert served.metric("hosted_calls_total", tool="mcp", outcome="completed") == 1

    run(test())


def test_a_cancelled_background_response_stops_its_tool(tmp_path: Path) -> None:
    async def test() -> None:
        waiting = calls(("docs__wait_for_ever", {}))
        async with model(waiting, mcp_servers=DOCS, store=str(tmp_path / "s.db")) as (served, _):
            begun = (await post(served, tools=[MCP], background=True, stream=False)).json
            path = f"/v1/responses/{begun['id']}"

            await until(lambda: runs_tools(served))
            cancelled = await ask(served, "POST", f"{path}/cancel")
            assert cancelled.json["status"] == "cancelled"
            assert served.metric("hosted_calls_total", tool="mcp", outcome="completed") == 0

    run(test())


def test_hosted_tools_work_over_a_websocket() -> None:
    async def test() -> None:
        turns = calls(("docs__add", {"a": 1, "b": 2})), says("It is 3.")
        async with model(*turns, mcp_servers=DOCS) as (served, _), connect(served) as socket:
            await socket.send("Hi", tools=[MCP])
            events = await socket.rest()
            assert "response.mcp_call.completed" in {event["type"] for event in events}
            assert kinds(events[-1]["response"]) == ["mcp_list_tools", "mcp_call", "message"]

    run(test())


def test_what_is_not_turned_on_is_dropped_on_record_or_refused() -> None:
    async def test() -> None:
        async with model(says("Hi.")) as (served, talking):
            tools = [MCP, {"type": "web_search"}, {"type": "code_interpreter", "container": {"type": "auto"}}]
            answer = await post(served, tools=tools)
            assert kinds(answer.final) == ["message"]
            assert "tools" not in talking.requests[0]
            assert "mcp" in answer.headers["x-responses-gateway-losses"]
        async with model(says("Hi."), strict=True) as (served, _):
            message = assert_error(await post(served, tools=[{"type": "web_search"}]), 400)
            assert "web_search_url" in message

    run(test())


def test_the_calls_of_a_turn_and_of_a_response_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls beyond those of a turn are dropped, and beyond those of a response refused: the model learns of both."""
    monkeypatch.setattr("responses_gateway.stream.lifecycle.turn.CALLS_OF_A_TURN", 3)
    monkeypatch.setattr("responses_gateway.server.features.hosted_tools.opening.CALLS_FOR_EACH_TURN", 1)

    async def test() -> None:
        many = calls(*[("docs__add", {"a": number, "b": 0}) for number in range(300)])
        async with model(many, many, says("Done."), mcp_servers=DOCS, hosted_turns=5) as (served, talking):
            answer = (await post(served, tools=[MCP])).final
            made = [item for item in answer["output"] if item["type"] == "mcp_call"]
            assert [item["output"] for item in made] == ["0", "1", "2", "0", "1", None]
            assert "the limit of tool calls in this response (5)" in str(made[-1]["error"])
            assert (answer["status"], served.metric("hosted_calls_total", tool="mcp", outcome="completed")) == ("completed", 5)
            _, second, last = talking.requests
            assert [message["content"] for message in second["messages"][-3:-1]] == ["0", "1"]
            told = second["messages"][-1]["content"]
            assert told.startswith("2\n\n(Calls that were not run, because only 3 are permitted at a time: 297.")
            assert "Answer without calling any" in last["messages"][-1]["content"]
            assert (second.get("tool_choice"), last["tool_choice"]) == (None, "none")

    run(test())


def test_the_calls_of_a_response_are_those_of_the_settings_in_force(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("responses_gateway.server.features.hosted_tools.opening.CALLS_FOR_EACH_TURN", 1)

    async def test() -> None:
        many = calls(*[("docs__add", {"a": number, "b": 0}) for number in range(4)])
        async with model(many, says("Done."), mcp_servers=DOCS, hosted_turns=2) as (served, _):
            changed = served.parts.settings.model_copy(update={"hosted_turns": 3})
            assert Reloading(served.parts).apply(changed).at_once == ["hosted_turns"]
            answer = (await post(served, tools=[MCP])).final
            outputs = [item["output"] for item in answer["output"] if item["type"] == "mcp_call"]
            assert outputs == ["0", "1", "2", None]

    run(test())


def test_calls_of_the_client_are_not_counted_among_those_of_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("responses_gateway.stream.lifecycle.turn.CALLS_OF_A_TURN", 1)

    async def test() -> None:
        clock = {"type": "function", "name": "clock", "parameters": {"type": "object", "properties": {}}}
        made = [("docs__add", {"a": 1, "b": 2}), *[("clock", {})] * 3, ("docs__add", {"a": 3, "b": 4})]
        async with model(calls(*made), mcp_servers=DOCS) as (served, _):
            answer = (await post(served, tools=[MCP, clock])).final
            assert kinds(answer) == ["mcp_list_tools", "mcp_call", *["function_call"] * 3]

    run(test())


def test_no_more_approved_calls_are_run_than_the_request_permits() -> None:
    async def test() -> None:
        always = {"docs": {**DOCS["docs"], "require_approval": "always"}}
        asks = calls(*[("docs__add", {"a": number, "b": 0}) for number in range(3)])
        async with model(asks, says("Done."), mcp_servers=always, store="memory") as (served, talking):
            first = (await post(served, tools=[MCP])).final
            decided = [
                {"type": "mcp_approval_response", "approval_request_id": request["id"], "approve": True}
                for request in first["output"][1:]
            ]
            more: dict[str, Any] = {"tools": [MCP], "previous_response_id": first["id"], "input": decided}
            second = (await post(served, **more, max_tool_calls=1)).final
            assert kinds(second) == ["mcp_call", "mcp_call", "mcp_call", "message"]
            assert [item["output"] for item in second["output"][:3]] == ["0", None, None]
            assert "the limit of tool calls in this response (1)" in str(second["output"][2]["error"])
            assert served.metric("hosted_calls_total", tool="mcp", outcome="completed") == 1
            assert talking.requests[-1]["tool_choice"] == "none"
            assert "was not run" in talking.requests[-1]["messages"][-1]["content"]

    run(test())


@pytest.mark.parametrize("changed", [{"arguments": '{"a": 100, "b": 2}'}, {"name": "shout"}, {"server_label": "other"}])
def test_an_approval_request_with_the_id_of_another_is_refused(changed: dict[str, Any]) -> None:
    async def test() -> None:
        always = {"docs": {**DOCS["docs"], "require_approval": "always"}}
        async with model(calls(("docs__add", {"a": 1, "b": 2})), says("Done."), mcp_servers=always, store="memory") as (
            served,
            _,
        ):
            first = (await post(served, tools=[MCP])).final
            request = first["output"][-1]
            decision = {"type": "mcp_approval_response", "approval_request_id": request["id"], "approve": True}
            more: dict[str, Any] = {"tools": [MCP], "previous_response_id": first["id"]}
            refused = await post(served, input=[{**request, **changed}, decision], **more)
            assert_error(refused, 400, "duplicate_approval_request")
            assert refused.json["error"]["param"] == "input[0].id"
            # The same one again, as some clients send it, is the one that is stored.
            second = (await post(served, input=[request, decision], **more)).final
            assert [item["output"] for item in second["output"] if item["type"] == "mcp_call"] == ["3"]

    run(test())


@pytest.mark.parametrize("decided", [False, True])
def test_an_open_approval_outlives_a_compaction(decided: bool) -> None:
    async def test() -> None:
        always = {"docs": {**DOCS["docs"], "require_approval": "always"}}
        turns = calls(("docs__add", {"a": 1, "b": 2})), says("They want a sum."), says("It is 3.")
        async with model(*turns, mcp_servers=always) as (served, talking):
            question = {"type": "message", "role": "user", "content": "Add"}
            first = (await post(served, tools=[MCP], input=[question])).final
            request = first["output"][-1]
            decision = {"type": "mcp_approval_response", "approval_request_id": request["id"], "approve": True}
            given = [question, *first["output"], *([decision] if decided else [])]
            compacted = (await ask(served, "POST", "/v1/responses/compact", json={"model": "m", "input": given})).json
            assert [item["type"] for item in compacted["output"]][:2] == ["compaction", "mcp_approval_request"]
            rest = [question] if decided else [decision, question]
            answer = (await post(served, tools=[MCP], input=[*compacted["output"], *rest])).final
            assert [item.get("output") for item in answer["output"] if item["type"] == "mcp_call"] == ["3"]
            assert "They want a sum." in str(talking.requests[-1]["messages"][0])

    run(test())


def test_an_open_approval_in_a_stored_history_outlives_its_compaction() -> None:
    async def test() -> None:
        always = {"docs": {**DOCS["docs"], "require_approval": "always"}}
        turns = calls(("docs__add", {"a": 1, "b": 2})), says("They want a sum."), says("It is 3.")
        async with model(*turns, mcp_servers=always, store="memory") as (served, _):
            first = (await post(served, tools=[MCP])).final
            trigger = [{"type": "compaction_trigger"}]
            second = (await post(served, tools=[MCP], input=trigger, previous_response_id=first["id"])).final
            decision = {"type": "mcp_approval_response", "approval_request_id": first["output"][-1]["id"], "approve": True}
            last = (await post(served, tools=[MCP], input=[decision], previous_response_id=second["id"])).final
            assert [item.get("output") for item in last["output"] if item["type"] == "mcp_call"] == ["3"]

    run(test())


def test_a_program_that_cannot_start_is_told_of_at_the_start(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        broken = {"broken": {"command": sys.executable, "args": ["-c", "import nowhere_to_be_found"]}}
        async with model(says("Hi."), mcp_servers={**DOCS, **broken}) as (served, _):
            await until(lambda: any(record.message == "MCP server cannot be used" for record in caplog.records))
            assert (await post(served)).final["status"] == "completed"

    run(test())
    (warning,) = [record for record in caplog.records if record.message == "MCP server cannot be used"]
    assert "No module named 'nowhere_to_be_found'" in vars(warning)["fields"]["error"]
