"""What hosted calls told the model is kept beside their items, and the model is told again in later turns."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from responses_gateway.commands.replay import replay
from responses_gateway.server.recording.recorder import PATTERN
from responses_gateway.settings.keys import hash_of
from tests.server.hosted.model import DOCS, MCP, calls, model, says
from tests.server.hosted.test_hosted_mcp import kinds
from tests.server.hosted.test_hosted_web import SEARCH, results, web_of
from tests.server.resources.test_websocket_resource import connect
from tests.server.running_gateway import Served, ask, gateway, post, run
from tests.server.scripted_backend import HEAD, Connection, backend, chunk

CLOCK = {"type": "function", "name": "clock", "parameters": {"type": "object", "properties": {}}}
QUESTION = {"type": "message", "role": "user", "content": "How high is it?"}
LOOK = ("web_search", {"queries": ["tower height"]})
FOUND = "It is 321 metres high."
NOT_KEPT = "They are not kept."


def compact(name: str, arguments: dict[str, Any]) -> list[bytes]:
    """A turn that calls a tool with arguments as no JSON encoder of ours writes them."""
    text = json.dumps(arguments, separators=(" ,", " :"))
    call = {"index": 0, "id": "c", "type": "function", "function": {"name": name, "arguments": text}}
    return [chunk({"tool_calls": [call]}), chunk({}, "tool_calls"), b"data: [DONE]\n\n"]


def is_beginning(earlier: dict[str, Any], later: dict[str, Any]) -> bool:
    """Tell whether the messages of a request are the beginning of those of a later one."""
    before = earlier["messages"]
    return bool(later["messages"][: len(before)] == before)


def test_the_next_response_is_told_what_a_search_has_found() -> None:
    async def test() -> None:
        turns = compact("web_search", {"queries": ["tower height"], "recency": 7}), says("High."), says("321 metres.")
        async with web_of(*turns, store="memory") as (served, talking, _, _site):
            first = (await post(served, tools=[SEARCH])).final
            second = await post(served, tools=[SEARCH], input="How high?", previous_response_id=first["id"])
            assert is_beginning(talking.requests[1], talking.requests[2])
            assert FOUND in results(talking.requests[2])[0]
            for shown in (first, second.final, (await ask(served, "GET", f"/v1/responses/{first['id']}")).json):
                assert FOUND not in json.dumps(shown)
            listed = (await ask(served, "GET", f"/v1/responses/{second.final['id']}/input_items")).json
            assert FOUND not in json.dumps(listed)

    run(test())


@pytest.mark.parametrize("how", ["previous", "conversation", "items", "websocket"])
def test_a_turn_with_a_search_and_a_call_of_the_client_loses_nothing(how: str) -> None:
    async def test() -> None:
        turns = calls(LOOK, ("clock", {}), ("web_search", {"queries": ["other"]}), thought="Hm."), says("Noon."), says("Yes.")
        async with web_of(*turns, store="memory") as (served, talking, _, _site):
            tools: Any = [SEARCH, CLOCK]
            place: dict[str, Any] = {}
            if how == "conversation":
                place = {"conversation": (await ask(served, "POST", "/v1/conversations", json={})).json["id"]}
            if how == "websocket":
                async with connect(served) as socket:
                    await socket.send("Hi", tools=tools, store=False)
                    first = (await socket.rest())[-1]["response"]
                    answer = {"type": "function_call_output", "call_id": first["output"][2]["call_id"], "output": "noon"}
                    more = {"previous_response_id": first["id"], "store": False}
                    await socket.send([answer], tools=tools, **more)
                    second = (await socket.rest())[-1]["response"]
                    assert kinds(second) == ["message"]
                    await socket.send("Sure?", tools=tools, previous_response_id=second["id"], store=False)
                    await socket.rest()
            else:
                first = (await post(served, tools=tools, input=[QUESTION], **place)).final
                assert kinds(first) == ["reasoning", "web_search_call", "function_call", "web_search_call"]
                answer = {"type": "function_call_output", "call_id": first["output"][2]["call_id"], "output": "noon"}
                given = [QUESTION, *first["output"], answer] if how == "items" else [answer]
                if how == "previous":
                    place = {"previous_response_id": first["id"]}
                second = (await post(served, tools=tools, input=given, **place)).final
                if how == "previous":
                    place = {"previous_response_id": second["id"]}
                sure = {"type": "message", "role": "user", "content": "Sure?"}
                given = [*given, *second["output"], sure] if how == "items" else [sure]
                await post(served, tools=tools, input=given, **place)
            said, *told = talking.requests[1]["messages"][-4:]
            assert (said["role"], said["reasoning"]) == ("assistant", "Hm.")
            assert [call["function"]["name"] for call in said["tool_calls"]] == ["web_search", "clock", "web_search"]
            assert [call["id"] for call in said["tool_calls"]] == [message["tool_call_id"] for message in told]
            assert [FOUND in told[0]["content"], told[1]["content"], FOUND in told[2]["content"]] == [True, "noon", True]
            assert is_beginning(talking.requests[1], talking.requests[2])

    run(test())


@pytest.mark.parametrize("stored", [True, False])
def test_the_calls_of_a_turn_are_one_message_then_and_later(stored: bool) -> None:
    async def test() -> None:
        add = [("docs__add", {"a": number, "b": 1}) for number in range(4)]
        fail = ("docs__fail", {})
        turns = calls(add[0], add[1]), calls(fail), calls(add[2], add[3], thought="More."), says("Done."), says("Yes.")
        async with model(*turns, mcp_servers=DOCS, store="memory") as (served, talking):
            first = (await post(served, tools=[MCP], input=[QUESTION], store=stored)).final
            more: dict[str, Any] = {"input": [QUESTION], "previous_response_id": first["id"]}
            if not stored:
                more = {"input": [QUESTION, *first["output"], QUESTION], "store": False}
            again = await post(served, tools=[MCP], **more)
            roles = [message["role"] for message in talking.requests[3]["messages"]]
            one = ["assistant", "tool"]
            assert roles == ["user", "assistant", "tool", "tool", *one, "assistant", "tool", "tool"]
            assert [is_beginning(*pair) for pair in zip(talking.requests, talking.requests[1:], strict=False)] == [True] * 4
            assert "mcp_list_tools" not in again.headers.get("x-responses-gateway-losses", "")

    run(test())


@pytest.mark.parametrize("stored", [True, False])
def test_an_approved_call_stays_where_the_model_made_it(stored: bool) -> None:
    async def test() -> None:
        always = {**MCP, "require_approval": {"always": {"tool_names": ["add", "fail"]}, "never": {"tool_names": ["running"]}}}
        servers = {"docs": {**DOCS["docs"], "require_approval": None}}
        made = [("docs__add", {"a": number, "b": 1}) for number in range(3)]
        asking = calls(*made[:2], ("docs__fail", {}), thought="Let me add.")
        turns = asking, calls(("docs__running", {}), thought="Hm."), says("Done."), says("Yes.")
        async with model(*turns, mcp_servers=servers, store="memory") as (served, talking):
            first = (await post(served, tools=[always], input=[QUESTION], store=stored)).final
            requests = [item["id"] for item in first["output"] if item["type"] == "mcp_approval_request"]
            decided = [
                {"type": "mcp_approval_response", "approval_request_id": request_id, "approve": number != 1}
                for number, request_id in enumerate(requests)
            ]
            given: list[Any] = [*decided, {"type": "message", "role": "user", "content": "Go on"}]
            more: dict[str, Any] = {"input": given, "previous_response_id": first["id"]}
            if not stored:
                more = {"input": [QUESTION, *first["output"], *given], "store": False}
            second = (await post(served, tools=[always], **more)).final
            assert kinds(second) == ["mcp_call", "mcp_call", "reasoning", "mcp_call", "message"]
            _, said, *told, went_on = talking.requests[1]["messages"]
            assert said["reasoning"] == "Let me add."
            assert [call["id"] for call in said["tool_calls"]] == requests
            assert [message["tool_call_id"] for message in told] == requests
            assert told[0]["content"] == "1"
            assert "did not approve" in told[1]["content"]
            assert told[2]["content"].startswith("Error: ")
            assert went_on["content"] == "Go on"
            # The same answers again run nothing a second time.
            more = {"input": [*decided, QUESTION], "previous_response_id": second["id"]}
            if not stored:
                everything = [QUESTION, *first["output"], *given, *second["output"], *decided, QUESTION]
                more = {"input": everything, "store": False}
            third = (await post(served, tools=[always], **more)).final
            assert kinds(third) == ["message"]
            assert [is_beginning(*pair) for pair in zip(talking.requests[1:], talking.requests[2:], strict=False)] == [True] * 2

    run(test())


def test_sources_of_earlier_responses_keep_their_numbers_and_are_cited() -> None:
    async def test() -> None:
        turns = (
            calls(LOOK),
            says("High."),
            says("As it says【1】."),
            calls(LOOK),
            says("That【1】 and this【2】."),
            says("So【2】."),
        )
        async with web_of(*turns, store="memory") as (served, talking, engine, site):
            first = (await post(served, tools=[SEARCH])).final

            def cited(response: dict[str, Any]) -> list[str]:
                return [found["url"] for found in response["output"][-1]["content"][0]["annotations"]]

            second = (await post(served, tools=[SEARCH], input="Why?", previous_response_id=first["id"])).final
            assert second["output"][-1]["content"][0]["text"] == "As it says."
            assert cited(second) == [f"{site.url}/tower"]
            engine.results = [{"title": "Another", "url": f"{site.url}/other", "content": "More."}]
            third = (await post(served, tools=[SEARCH], input="And?", previous_response_id=second["id"])).final
            assert "【2】 Another" in results(talking.requests[4])[1]
            assert cited(third) == [f"{site.url}/tower", f"{site.url}/other"]
            # Without the tool the marks mean the same.
            last = (await post(served, input="Well?", previous_response_id=third["id"])).final
            assert cited(last) == [f"{site.url}/other"]

    run(test())


def test_a_page_of_an_earlier_response_is_opened_by_its_number() -> None:
    async def test() -> None:
        turns = calls(LOOK), says("High."), calls(("open_page", {"url": "1"})), says("Yes.")
        async with web_of(*turns, store="memory") as (served, _, _engine, site):
            first = (await post(served, tools=[SEARCH])).final
            second = (await post(served, tools=[SEARCH], input="Open it", previous_response_id=first["id"])).final
            assert second["output"][0]["action"] == {"type": "open_page", "url": f"{site.url}/tower"}

    run(test())


async def told(served: Served, talking: Any, given: Any, **members: Any) -> list[str]:
    """Return what the model is told of earlier calls in a request."""
    await post(served, tools=[SEARCH], input=given, **members)
    return results(talking.requests[-1])


def test_results_go_with_their_response(tmp_path: Path) -> None:
    path = tmp_path / "s.db"

    async def test() -> None:
        async with web_of(calls(LOOK), says("High."), store=str(path)) as (served, talking, _, _site):
            first = (await post(served, tools=[SEARCH])).final
            sent_back = [QUESTION, *first["output"], QUESTION]
            assert FOUND in (await told(served, talking, sent_back, store=False))[0]
            assert (await ask(served, "DELETE", f"/v1/responses/{first['id']}")).status == 200
            assert NOT_KEPT in (await told(served, talking, sent_back, store=False))[0]

    run(test())
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("SELECT count(*) FROM items WHERE result IS NOT NULL").fetchone() == (0,)
    assert FOUND.encode() not in path.read_bytes()


def test_another_key_is_not_told() -> None:
    async def test() -> None:
        keys = {"api_keys": {name: hash_of(f"key-of-{name}-0123456789") for name in ("ada", "bob")}}
        async with web_of(calls(LOOK), says("High."), store="memory", **keys) as (served, talking, _, _site):
            ada, bob = ({"Authorization": f"Bearer key-of-{name}-0123456789"} for name in ("ada", "bob"))
            first = (await post(served, headers=ada, tools=[SEARCH])).final
            sent_back = [QUESTION, *first["output"], QUESTION]
            assert FOUND in (await told(served, talking, sent_back, headers=ada))[0]
            assert NOT_KEPT in (await told(served, talking, sent_back, headers=bob))[0]

    run(test())


def test_nothing_is_kept_of_a_response_that_is_not_stored() -> None:
    async def test() -> None:
        async with web_of(calls(LOOK), says("High."), store="memory") as (served, talking, _, _site):
            first = (await post(served, tools=[SEARCH], store=False)).final
            answer = await post(served, tools=[SEARCH], input=[QUESTION, *first["output"], QUESTION])
            assert NOT_KEPT in results(talking.requests[-1])[0]
            assert "web_search_call" in answer.headers["x-responses-gateway-losses"]

    run(test())


def test_a_model_that_searched_beside_a_call_of_the_client_is_not_told_that_it_has_seen_the_results() -> None:
    """Codex has nothing stored, and sends the search back without them."""

    async def test() -> None:
        async with web_of(calls(LOOK, ("clock", {})), says("Noon."), store="memory") as (served, talking, _, _site):
            tools = [SEARCH, CLOCK]
            first = (await post(served, tools=tools, input=[QUESTION], store=False)).final
            assert kinds(first) == ["web_search_call", "function_call"]
            answer = {"type": "function_call_output", "call_id": first["output"][1]["call_id"], "output": "noon"}
            await post(served, tools=tools, input=[QUESTION, *first["output"], answer], store=False)
            assert FOUND not in json.dumps(talking.requests)
            (search, _) = results(talking.requests[-1])
            assert "were shown" not in search
            assert "Call again" in search

    run(test())


@pytest.mark.parametrize(("most", "shown"), [(1500, [False, True]), (262_144, [True, True])])
def test_no_more_than_a_number_of_bytes_is_told_again(most: int, shown: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("responses_gateway.server.generation.preparation.context.SHOWN_AGAIN_BYTES", most)

    async def test() -> None:
        search = calls(LOOK)
        turns = search, says("High."), search, says("Yes."), says("Done.")
        async with web_of(*turns, store="memory") as (served, talking, engine, site):
            engine.results = [{"title": "A", "url": f"{site.url}/a", "content": f"{FOUND} {'a' * 700}"}]
            first = (await post(served, tools=[SEARCH])).final
            second = (await post(served, tools=[SEARCH], input="Again", previous_response_id=first["id"])).final
            again = await told(served, talking, "So?", previous_response_id=second["id"])
            assert [FOUND in text for text in again] == shown
            size = len(json.dumps(talking.requests[-1]))
            assert size < 10_000

    run(test())


def test_a_background_response_keeps_its_results(tmp_path: Path) -> None:
    async def test() -> None:
        async with web_of(calls(LOOK), says("High."), store=str(tmp_path / "s.db")) as (served, talking, _, _site):
            first = (await post(served, tools=[SEARCH], background=True, stream=True)).final
            assert FOUND in (await told(served, talking, "So?", previous_response_id=first["id"]))[0]

    run(test())


def test_files_and_code_are_told_again_without_include() -> None:
    async def test() -> None:
        settings: dict[str, Any] = {"file_search_tools": {"*": "docs/search"}, "code_interpreter": "mcp:docs/shout_code"}
        raw = {"index": 0, "id": "c", "type": "function", "function": {"name": "python", "arguments": "1 + 2"}}
        code = [chunk({"tool_calls": [raw]}), chunk({}, "tool_calls"), b"data: [DONE]\n\n"]
        turns = calls(("file_search", {"queries": ["valves"]})), code, says("3"), says("Yes.")
        async with model(*turns, mcp_servers=DOCS, store="memory", **settings) as (served, talking):
            tools: Any = [{"type": "file_search", "vector_store_ids": ["vs_1"]}]
            tools.append({"type": "code_interpreter", "container": {"type": "auto"}})
            first = (await post(served, tools=tools)).final
            await post(served, tools=tools, input="Sure?", previous_response_id=first["id"])
            assert is_beginning(talking.requests[2], talking.requests[3])
            searched, ran = results(talking.requests[3])
            assert "valves 0" in searched
            assert ran == "ran: 1 + 2"
            made = talking.requests[3]["messages"][3]["tool_calls"][0]["function"]
            assert json.loads(made["arguments"]) == {"code": "1 + 2"}

    run(test())


def test_the_turns_of_a_response_go_to_one_backend() -> None:
    """Which has the beginning in its cache; also where nothing is stored and nobody names a key."""

    async def test() -> None:
        asked: list[tuple[str, int]] = []

        def playing(name: str) -> Any:
            async def play(connection: Connection) -> None:
                if not connection.request.startswith(b"POST /v1/chat/completions"):
                    connection.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
                    return
                body = json.loads(connection.request.partition(b"\r\n\r\n")[2])
                asked.append((name, len(body["messages"])))
                connection.write(HEAD)
                for piece in calls(("docs__add", {"a": 1, "b": 2})) if len(body["messages"]) == 1 else says("3."):
                    connection.send(piece)
                connection.end()

            return play

        async with (
            backend(playing("one")) as one,
            backend(playing("other")) as other,
            gateway(one.url, other.url, adapt=False, mcp_servers=DOCS) as served,
        ):
            for number in range(12):
                await post(served, tools=[MCP], input=f"Question {number}", store=False)
            backends = [name for name, _ in asked]
            assert backends[::2] == backends[1::2]
            assert set(backends) == {"one", "other"}

    run(test())


def test_a_record_of_what_is_told_again_replays_identically(tmp_path: Path) -> None:
    async def test() -> None:
        turns = calls(LOOK), says("High."), says("As it says【1】.")
        async with web_of(*turns, store="memory", record=tmp_path) as (served, _, _engine, _site):
            first = (await post(served, tools=[SEARCH])).final
            second = (await post(served, tools=[SEARCH], input="So?", previous_response_id=first["id"])).final
            assert second["output"][-1]["content"][0]["annotations"]

    run(test())
    paths = sorted(tmp_path.glob(PATTERN))
    assert len(paths) == 2
    for path in paths:
        done = replay(path)
        assert (done.differences, done.notes, done.ending) == ([], [], "response.completed")
