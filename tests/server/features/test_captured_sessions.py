"""Captured sessions of Codex as a whole, through the front door: each request as sent, answered as the next one shows."""

from __future__ import annotations

import json
from typing import Any

from pydantic import SecretStr

from tests.data_folder import DATA
from tests.request.builders import function
from tests.server.features.agent_cases import pieces
from tests.server.running_gateway import ask, gateway, post, run
from tests.server.scripted_backend import HEAD, Connection, backend

ADMIN = {"Authorization": "Bearer the-admin-key-of-this-gateway"}
Row = dict[str, Any]


def captured(name: str) -> list[Row]:
    requests: list[Row] = json.loads((DATA / "sessions" / f"{name}.json").read_text())
    return requests


def declared(names: list[str]) -> list[Row]:
    """Return the declarations of tools of these names, those of a namespace within it."""
    tools: dict[str, Row] = {}
    for name in names:
        space, _, own = name.rpartition(".")
        if not space:
            tools[name] = function(name)
            continue
        members = tools.setdefault(space, {"type": "namespace", "name": space, "description": "", "tools": []})
        members["tools"].append(function(own))
    return list(tools.values())


def answers(requests: list[Row]) -> list[list[Row]]:
    """Return what was answered to each request: the items that the next request of its thread has of it, else a text."""
    found: list[list[Row]] = []
    for number, request in enumerate(requests):
        thread = request["expect"]["thread"]
        later = (each for each in requests[number + 1 :] if each["expect"]["thread"] == thread)
        items = next(later, {"body": {"input": []}})["body"]["input"][len(request["body"]["input"]) :]
        found.append([item for item in items if item["type"] == "function_call"])
    return found


def calling(item: Row) -> Row:
    """Return the delta of a call as a chat server sends it, with the id that the client has of it."""
    function = {"name": f"{item['namespace']}__{item['name']}", "arguments": item["arguments"]}
    return {"tool_calls": [{"index": 0, "id": item["call_id"], "type": "function", "function": function}]}


async def played(name: str, rollout: str) -> tuple[Row, Row]:
    """Play a captured session as one rollout. Return it, and the rollout."""
    requests = captured(name)
    script = iter(answers(requests))

    async def play(connection: Connection) -> None:
        if b"/chat/completions" not in connection.request.partition(b"\r\n")[0]:
            connection.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
            return
        deltas = [calling(item) for item in next(script)]
        connection.write(HEAD)
        connection.send(*pieces(*(deltas or [{"content": "answer"}]), usage=(100, 10)))
        connection.end()

    settings: Row = {"admin_key": SecretStr(ADMIN["Authorization"].split()[1]), "store": "memory"}
    async with backend(play) as running, gateway(running.url, **settings) as served:
        for request in requests:
            body = {**request["body"], "tools": declared(request["body"]["tools"])}
            headers = {**request["headers"], "X-Rollout-Id": rollout}
            assert (await post(served, headers=headers, **body)).final["status"] == "completed"
        (row,) = (await ask(served, "GET", "/admin/sessions", headers=ADMIN)).json["data"]
        session = (await ask(served, "GET", f"/admin/sessions/{row['id']}", headers=ADMIN)).json
        return session, (await ask(served, "GET", f"/rollouts/{rollout}")).json


def test_a_child_of_a_child_is_below_the_call_that_began_it_and_in_a_chain_of_its_own() -> None:
    async def test() -> None:
        session, rollout = await played("codex-nested", "ep-1")
        (root,) = session["threads"]
        (child,) = root["threads"]
        (grandchild,) = child["threads"]
        shown = [
            [(each["kind"], each.get("spawned", 0), "tools" in each) for each in thread["requests"]]
            for thread in (root, child, grandchild)
        ]
        assert shown == [
            [("main", 1, False), ("main", 0, True), ("main", 0, True)],
            [("subagent", 1, False), ("subagent", 0, True), ("subagent", 0, True)],
            [("subagent", 0, False)],
        ]
        assert root["began_by"] is None
        assert child["began_by"] == root["requests"][0]["id"]
        assert grandchild["began_by"] == child["requests"][0]["id"]
        parents = {call["id"]: call["parent"] for call in rollout["calls"]}
        for thread in (root, child, grandchild):
            chain = [request["response_id"] for request in thread["requests"]]
            assert [parents.pop(call) for call in chain] == [None, *chain[:-1]]
        assert parents == {}
        named = {(call["thread"], call.get("parent_thread")) for call in rollout["calls"]}
        assert named == {(each["thread"], each["parent"]) for each in (root, child, grandchild)}

    run(test())


def test_a_rollout_is_named_beside_the_session_and_metadata_of_its_client() -> None:
    """What the client's user has put into the metadata of turns names none."""

    async def test() -> None:
        session, rollout = await played("codex-rollout-metadata", "ep-2")
        (expected,) = [request["expect"] for request in captured("codex-rollout-metadata")]
        (request,) = session["threads"][0]["requests"]
        (call,) = rollout["calls"]
        assert (session["session"], request["turn"], request["kind"]) == (expected["session"], expected["turn"], "main")
        assert (call["response_id"], call["session"], call["kind"]) == (request["response_id"], expected["session"], "main")

    run(test())
