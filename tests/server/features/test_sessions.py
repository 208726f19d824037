"""Sessions as operators see them, through the front door."""

from __future__ import annotations

import asyncio
import json
from random import Random
from typing import Any

import aiohttp
import msgspec
import pytest
from pydantic import SecretStr

from responses_gateway.request.who_asks import Asker
from responses_gateway.request.who_asks.asker import SessionRoots
from responses_gateway.server.features.sessions.agent_requests import AgentRequest, SessionOwner
from responses_gateway.server.features.sessions.memory import RememberedSessions
from responses_gateway.server.features.sessions.parts import SessionPart, begin, merged
from responses_gateway.settings.keys import hash_of
from tests.data_folder import DATA
from tests.log_lines import log_lines
from tests.server.gateway_process import SEVERAL, program
from tests.server.resources.test_websocket_resource import connect
from tests.server.running_gateway import Answer, Reachable, Served, ask, assert_error, post, run, simulated
from tests.waiting import until

ADMIN = {"Authorization": "Bearer the-admin-key-of-this-gateway"}
ADMIN_KEY = SecretStr("the-admin-key-of-this-gateway")
Row = dict[str, Any]


async def rows(served: Reachable, query: str = "") -> list[Row]:
    answer = await ask(served, "GET", f"/admin/sessions{query}", headers=ADMIN)
    assert answer.status == 200, answer.body
    found: list[Row] = answer.json["data"]
    return found


async def detail(served: Served, session_id: str) -> Row:
    answer = await ask(served, "GET", f"/admin/sessions/{session_id}", headers=ADMIN)
    assert answer.status == 200, answer.body
    found: Row = answer.json
    return found


async def play(served: Served, name: str, **headers: str) -> list[Row]:
    """Send the captured requests of a scenario, in their order, with more headers; return them."""
    requests: list[Row] = json.loads((DATA / "sessions" / f"{name}.json").read_text())
    for request in requests:
        answer = await send(served, {**request, "headers": {**request["headers"], **headers}})
        assert answer.status == 200, answer.body
    return requests


async def send(served: Served, request: Row) -> Answer:
    body = request["body"]
    if request["door"] == "messages":
        asked = {"model": "simulator", "max_tokens": 50, "messages": [{"role": "user", "content": "hi"}]}
        sent = {**asked, "metadata": body["metadata"]}
        return await ask(served, "POST", "/v1/messages", json=sent, headers=request["headers"])
    if request["door"] == "chat":
        tools = [{"type": "function", "function": {"name": name}} for name in body.get("tools", ())]
        sent = {**body, "model": "simulator"} | ({"tools": tools} if tools else {})
        return await ask(served, "POST", "/v1/chat/completions", json=sent, headers=request["headers"])
    return await post(served, client_metadata=body["client_metadata"], headers=request["headers"])


def shape(threads: list[Row]) -> list[Any]:
    """Return the tree of threads: the name of each, how many requests it had, and its children."""
    return [(each["thread"], len(each["requests"]), shape(each["threads"])) for each in threads]


def test_a_session_is_a_row_and_a_tree_of_threads() -> None:
    async def test() -> None:
        async with simulated(admin_key=ADMIN_KEY) as served:
            requests = await play(served, "codex-nested")
            (row,) = await rows(served)
            root, child, grandchild = "018", "01f", "026"
            assert row["session"] == requests[0]["expect"]["session"]
            assert (row["key"], row["client"].split("/")[0], row["running"]) == (None, "codex_exec", False)
            assert (row["requests"], row["turns"], row["agents"]) == (7, 7, 3)
            assert row["input_tokens"] > 0
            assert row["output_tokens"] > 0
            assert row["prefill"] + row["generation"] + row["waiting"] > 0
            shown = await detail(served, row["id"])
            named = {name[-3:]: name for request in requests for name in [request["expect"]["thread"]]}
            assert shape(shown["threads"]) == [
                (named[root], 3, [(named[child], 3, [(named[grandchild], 1, [])])]),
            ]
            assert {name: shown[name] for name in ("id", "session", "turns")} == {
                name: row[name] for name in ("id", "session", "turns")
            }

    run(test())


@pytest.mark.parametrize("scenario", ["claude-nested-hints", "codex-nested", "opencode-child"])
def test_a_session_that_a_router_names_has_the_same_tree(scenario: str) -> None:
    async def tree(**router: str) -> list[Any]:
        async with simulated(admin_key=ADMIN_KEY) as served:
            await play(served, scenario, **router)
            (row,) = await rows(served)
            assert router.get("X-Dynamo-Session-ID") in (None, row["session"])
            return shape((await detail(served, row["id"]))["threads"])

    async def test() -> None:
        assert await tree(**{"X-Dynamo-Session-ID": "router"}) == await tree()

    run(test())


def test_the_same_session_of_two_keys_is_two() -> None:
    keys = {name: f"a-key-of-{name}-that-is-long-enough" for name in ("alice", "bob")}

    async def test() -> None:
        hashes = {name: hash_of(key) for name, key in keys.items()}
        async with simulated(admin_key=ADMIN_KEY, api_keys=hashes) as served:
            for name in ("alice", "bob", "alice"):
                await post(served, headers={"Authorization": f"Bearer {keys[name]}", "x-session-id": "same"})
            found = {row["key"]: row for row in await rows(served)}
            assert {key: (row["session"], row["requests"]) for key, row in found.items()} == {
                "alice": ("same", 2),
                "bob": ("same", 1),
            }
            assert found["alice"]["id"] != found["bob"]["id"]
            assert [row["key"] for row in await rows(served, "?key=bob")] == ["bob"]
            assert len((await detail(served, found["bob"]["id"]))["threads"][0]["requests"]) == 1

    run(test())


def test_sessions_need_the_admin_key() -> None:
    async def test() -> None:
        async with simulated(admin_key=ADMIN_KEY) as served:
            assert_error(await ask(served, "GET", "/admin/sessions"), 401, "invalid_api_key")
            assert_error(await ask(served, "GET", "/admin/sessions/sess_1"), 401, "invalid_api_key")
            assert_error(await ask(served, "GET", "/admin/sessions/sess_1", headers=ADMIN), 404, "not_found")
            for query in ("limit=0", "limit=x", "since=nan", "since=-1"):
                assert_error(await ask(served, "GET", f"/admin/sessions?{query}", headers=ADMIN), 400, "invalid_value")

    run(test())


def test_sessions_survive_a_restart_where_there_is_a_store(tmp_path: Any) -> None:
    store = str(tmp_path / "store.db")

    async def test() -> None:
        async with simulated(admin_key=ADMIN_KEY, store=store) as served:
            await play(served, "claude-nested-hints")
            before = await rows(served)
            tree = await detail(served, before[0]["id"])
        async with simulated(admin_key=ADMIN_KEY, store=store) as served:
            (row,) = await rows(served)
            assert {name: row[name] for name in row.keys() - {"age"}} == {
                name: before[0][name] for name in row.keys() - {"age"}
            }
            assert (await detail(served, row["id"]))["threads"] == tree["threads"]
            await play(served, "claude-nested-hints")
            (row,) = await rows(served)
            assert row["requests"] == 2 * before[0]["requests"]
            assert row["agents"] == before[0]["agents"]

    run(test())


def test_a_session_is_found_by_its_name_however_many_came_after_it(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("responses_gateway.server.features.sessions.pages.MOST_PARTS", 3)
    settings: Any = {"admin_key": ADMIN_KEY, "store": str(tmp_path / "store.sqlite3")}

    async def test() -> None:
        async with simulated(**settings) as served:
            for number in range(6):
                await post(served, headers={"x-session-id": f"s{number}"})
        async with simulated(**settings) as served:
            assert len(await rows(served)) == 3
            for number in range(6):
                assert [row["session"] for row in await rows(served, f"?session=s{number}")] == [f"s{number}"]
            assert await rows(served, "?session=s6") == []

    run(test())


def test_a_chain_of_responses_is_a_session_with_its_first_one() -> None:
    async def test() -> None:
        async with simulated(admin_key=ADMIN_KEY, store="memory") as served:
            first = (await post(served, store=True)).final["id"]
            assert await rows(served) == []
            await post(served, previous_response_id=first, store=True)
            (row,) = await rows(served)
            assert (row["session"], row["requests"], row["agents"]) == (first, 2, 1)
            (thread,) = (await detail(served, row["id"]))["threads"]
            assert thread["requests"][0]["response_id"] == first
            usage = (await ask(served, "GET", "/admin/usage?by=session", headers=ADMIN)).json["data"]
            assert [(each["session"], each["requests"]) for each in usage] == [(first, 2)]
            path = f"/ui/api/requests/{thread['requests'][0]['id']}"
            shown = await ask(served, "GET", path, headers=ADMIN)
            assert shown.json["session_id"] == row["id"]

    run(test())


@pytest.mark.parametrize("ui", ["off", "auto"])
def test_the_first_response_of_a_chain_may_be_of_another_process(ui: str, tmp_path: Any) -> None:
    """One that has ended, and two that run at once, each of which continues its response."""
    settings: dict[str, Any] = {"admin_key": ADMIN_KEY, "store": str(tmp_path / "store.db"), "ui": ui}

    async def continued(served: Served, first: str, requests: int) -> Row:
        await post(served, previous_response_id=first, store=True)
        (row,) = await rows(served, f"?session={first}")
        assert (row["requests"], row["turns"], row["agents"]) == (requests, requests, 1)
        usage = (await ask(served, "GET", "/admin/usage?by=session", headers=ADMIN)).json["data"]
        assert [each["requests"] for each in usage if each["session"] == first] == [requests]
        return row

    async def test() -> None:
        async with simulated(**settings) as served:
            answer = (await post(served, store=True)).final
            shared = (await post(served, store=True)).final["id"]
        first = answer["id"]
        async with simulated(**settings) as served:
            row = await continued(served, first, 2)
            (thread,) = (await detail(served, row["id"]))["threads"]
            assert [each["response_id"] == first for each in thread["requests"]] == [True, False]
            assert thread["requests"][0]["output_tokens"] == answer["usage"]["output_tokens"]
        async with simulated(**settings) as served, simulated(**settings) as other:
            await continued(served, first, 3)
            await asyncio.gather(*[post(each, previous_response_id=shared, store=True) for each in (served, other)])
        async with simulated(**settings) as served:
            (row,) = await rows(served, f"?session={shared}")
            assert row["requests"] == 3  # though both may have known the first one
            (thread,) = (await detail(served, row["id"]))["threads"]
            assert [each["response_id"] == shared for each in thread["requests"]] == [True, False, False]
            usage = (await ask(served, "GET", "/admin/usage?by=session", headers=ADMIN)).json["data"]
            assert [each["requests"] for each in usage if each["session"] == shared] == [3]
            (total,) = (await ask(served, "GET", "/admin/usage?by=model", headers=ADMIN)).json["data"]
            assert total["output_tokens"] == sum(each["output_tokens"] for each in usage)

    run(test())


def test_the_first_response_of_a_chain_that_two_processes_know_counts_once() -> None:
    owner = SessionOwner("tenant", "resp_1", None, "client")
    first = AgentRequest("", "", 1.0, "resp_1", ended=2.0, output_tokens=10)
    parts = []
    for process in (RememberedSessions(), RememberedSessions()):
        request = AgentRequest("", "", 3.0, "resp_1", ended=4.0, output_tokens=1)
        process.add(owner, first, begin)
        parts.append(process.add(owner, request))
    (session,) = merged(parts).values()
    assert (session.requests, session.output_tokens, session.started) == (3, 12, 1.0)


def test_the_first_response_of_a_chain_that_is_not_stored_is_known_to_its_connection() -> None:
    async def test() -> None:
        async with simulated(admin_key=ADMIN_KEY, ui="off") as served, connect(served) as socket:
            first = (await socket.ask())["id"]
            await socket.ask(previous_response_id=first)
            (row,) = await rows(served)
            assert (row["session"], row["requests"]) == (first, 2)

    run(test())


def test_relayed_requests_count_where_they_name_a_session() -> None:
    async def test() -> None:
        async with simulated(admin_key=ADMIN_KEY) as served:
            requests = await play(served, "opencode-child")
            (row,) = await rows(served)
            assert row["session"] == requests[0]["expect"]["session"]
            assert (row["requests"], row["turns"], row["agents"]) == (4, 3, 2)
            assert row["output_tokens"] > 0  # a stream without usage is counted by its events
            threads = (await detail(served, row["id"]))["threads"]
            (backend,) = served.parts.pool.members.by_name
            assert {request["backend"] for request in threads[0]["requests"]} == {backend}
            ((root, number, children),) = shape(threads)
            assert (root, number) == (requests[0]["expect"]["thread"], 3)
            assert children == [(requests[2]["expect"]["thread"], 1, [])]
            usage = await ask(served, "GET", "/admin/usage?by=session", headers=ADMIN)
            assert [(each["session"], each["requests"]) for each in usage.json["data"]] == [(row["session"], 4)]

    run(test())


def test_the_lines_of_relayed_requests_name_their_sessions() -> None:
    async def test() -> None:
        with log_lines() as written:
            async with simulated(access_log=True) as served:
                requests = await play(served, "opencode-child")
                await until(lambda: len(written("request")) == len(requests), "a line for each")
                lines = written("request")
        asked = [(each["expect"]["session"], each["expect"]["thread"]) for each in requests]
        assert [(line["session"], line["thread"]) for line in lines] == asked
        assert [line.get("kind") for line in lines] == ["title", None, "subagent", None]

    run(test())


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ({}, "title"),
        ({"prompt_cache_key": "ses_1"}, "title"),
        ({"client_metadata": {"app": "x"}}, "title"),
        ({"prompt_cache_key": "ses_1", "tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}}]}, None),
    ],
)
def test_a_title_of_opencode_is_one_whatever_else_its_request_says(fields: Row, kind: str | None) -> None:
    async def test() -> None:
        async with simulated(admin_key=ADMIN_KEY) as served:
            asks = [{"role": "developer", "content": "You write titles."}, {"role": "user", "content": "Do it."}]
            headers = {"x-session-affinity": "ses_1", "x-session-id": "ses_1"}
            assert (await post(served, input=asks, headers=headers, **fields)).status == 200
            (row,) = await rows(served)
            ((thread,),) = [(await detail(served, row["id"]))["threads"]]
            assert [request.get("kind") for request in thread["requests"]] == [kind]
            assert row["turns"] == (kind is None)

    run(test())


def test_a_title_of_opencode_is_one_through_every_door() -> None:
    asks = [{"role": "user", "content": "Do it."}]
    body = {"model": "simulator", "max_tokens": 50, "system": "You write titles.", "messages": asks}
    tool = {"name": "f", "input_schema": {"type": "object"}}

    async def test() -> None:
        async with simulated(admin_key=ADMIN_KEY) as served:
            headers = {"x-session-affinity": "ses_1", "x-session-id": "ses_1"}
            for fields in ({}, {"tools": [tool]}):
                sent = {**body, **fields}
                assert (await ask(served, "POST", "/v1/messages", json=sent, headers=headers)).status == 200
            (row,) = await rows(served)
            (thread,) = (await detail(served, row["id"]))["threads"]
            assert [request.get("kind") for request in thread["requests"]] == ["title", None]

    run(test())


def test_a_request_whose_options_only_warm_is_no_turn() -> None:
    async def test() -> None:
        async with simulated(admin_key=ADMIN_KEY) as served:
            headers = {"x-session-id": "s1"}
            for options in ({"prewarm": True}, {"prewarm": False}):
                assert (await post(served, prompt_cache_options=options, headers=headers)).status == 200
            (row,) = await rows(served)
            (thread,) = (await detail(served, row["id"]))["threads"]
            assert [request.get("kind") for request in thread["requests"]] == ["prewarm", None]
            assert (row["requests"], row["turns"]) == (2, 1)

    run(test())


def test_a_request_for_a_summary_alone_is_no_turn_and_nothing_continues_it() -> None:
    """Its client says nothing of that, but its input does."""

    async def test() -> None:
        async with simulated(admin_key=ADMIN_KEY, store="memory") as served:
            headers = {"x-session-id": "s1", "x-rollout-id": "ep1"}
            question = {"role": "user", "content": "hi"}
            first = await post(served, input=[question], headers=headers)
            items = [question, *first.final["output"], {"type": "compaction_trigger"}]
            summary = await post(served, input=items, headers=headers)
            await post(served, input=[*summary.final["output"], question], headers=headers)
            (row,) = await rows(served)
            (thread,) = (await detail(served, row["id"]))["threads"]
            assert [request.get("kind") for request in thread["requests"]] == [None, "compaction", None]
            assert (row["requests"], row["turns"]) == (3, 2)
            calls = (await ask(served, "GET", "/rollouts/ep1")).json["calls"]
            assert [call["parent"] for call in calls] == [None, first.final["id"], first.final["id"]]

    run(test())


def test_a_request_for_a_summary_of_a_chain_is_no_turn_either() -> None:
    """Its client names neither a session nor a kind."""

    async def test() -> None:
        async with simulated(admin_key=ADMIN_KEY, store="memory") as served:
            headers = {"x-rollout-id": "ep1"}
            first = await post(served, headers=headers)
            trigger = [{"type": "compaction_trigger"}]
            await post(served, previous_response_id=first.final["id"], input=trigger, headers=headers)
            (row,) = await rows(served)
            assert row["turns"] == 1
            calls = (await ask(served, "GET", "/rollouts/ep1")).json["calls"]
            assert [call["kind"] for call in calls] == [None, "compaction"]

    run(test())


@pytest.mark.parametrize("padding", [0, 400_000])
def test_a_relayed_request_may_name_its_session_in_its_body_alone(padding: int) -> None:
    async def test() -> None:
        async with simulated(admin_key=ADMIN_KEY) as served:
            said = [{"prompt_cache_key": "s1"}, {"client_metadata": {"session_id": "s2"}}, {"prompt_cache_key": "a" * 257}]
            for fields in said:
                messages = [{"role": "user", "content": "hi" + " " * padding}]
                chat = {"model": "simulator", "messages": messages, **fields}
                assert (await ask(served, "POST", "/v1/chat/completions", json=chat)).status == 200
            assert {row["session"]: row["requests"] for row in await rows(served)} == {"s1": 1, "s2": 1}

    run(test())


def test_what_no_backend_has_read_does_not_hide_what_was_cached() -> None:
    async def test() -> None:
        async with simulated(admin_key=ADMIN_KEY) as served:
            headers = {"x-session-id": "s"}
            for _ in range(2):
                await post(served, headers=headers)
            (before,) = await rows(served)
            assert before["cached_part"] is not None
            await post(served, headers=headers, previous_response_id="resp_of_nobody")
            (after,) = await rows(served)
            assert after["requests"] == 3
            assert after["cached_part"] == before["cached_part"]
            await post(served, headers={"x-session-id": "t"}, previous_response_id="resp_of_nobody")
            assert (await rows(served))[0]["cached_tokens"] == 0

    run(test())


def test_usage_is_divided_by_session() -> None:
    async def test(store: str) -> None:
        async with simulated(admin_key=ADMIN_KEY, store=store) as served:
            for headers in ({"x-session-id": "a"}, {"x-session-id": "a"}, {"x-session-id": "b"}, {}):
                await post(served, headers=headers)
            for by, shown in (("session", {}), ("model,session", {"model": "simulator"})):
                answer = await ask(served, "GET", f"/admin/usage?by={by}", headers=ADMIN)
                assert answer.status == 200, answer.body
                found = {each["session"]: each for each in answer.json["data"]}
                assert {name: each["requests"] for name, each in found.items()} == {"a": 2, "b": 1, "": 1}
                assert all(each.items() >= shown.items() for each in found.values())
                assert all(each["output_tokens"] > 0 for each in found.values())
            (total,) = (await ask(served, "GET", "/admin/usage?by=model", headers=ADMIN)).json["data"]
            assert total["requests"] == 4

    for store in ("none", "memory"):
        run(test(store))


def test_a_tenant_of_many_sessions_pushes_out_its_own_oldest_ones() -> None:
    remembered = RememberedSessions()

    def add(tenant: str, number: int) -> str:
        owner = SessionOwner(tenant, f"session {number}", None, "client")
        remembered.add(owner, AgentRequest(f"{number}", f"request {number}", float(number), "thread", ended=float(number)))
        return owner.id

    quiet = add("quiet", 0)
    busy = [add("busy", number) for number in range(2050)]
    assert remembered.get(quiet) is not None
    assert [remembered.get(session) is not None for session in busy] == [False] * 50 + [True] * 2000


def test_what_a_sub_agent_begins_is_in_the_session_of_its_root_where_only_parents_are_named() -> None:
    def headers(thread: str, parent: str | None = None) -> Row:
        return {"x-session-id": thread} | ({} if parent is None else {"x-parent-session-id": parent})

    async def test() -> None:
        async with simulated(admin_key=ADMIN_KEY) as served:
            await post(served, headers=headers("root"))
            await post(served, headers=headers("child", "root"))
            await post(served, headers=headers("grandchild", "child"))
            chat = {"model": "simulator", "messages": [{"role": "user", "content": "hi"}]}
            answer = await ask(served, "POST", "/v1/chat/completions", json=chat, headers=headers("fourth", "grandchild"))
            assert answer.status == 200
            await post(served, headers=headers("stranger", "nobody"))
            found = {row["session"]: row for row in await rows(served)}
            assert sorted(found) == ["nobody", "root"]
            shown = await detail(served, found["root"]["id"])
            tree = [("root", 1, [("child", 1, [("grandchild", 1, [("fourth", 1, [])])])])]
            assert shape(shown["threads"]) == tree

    run(test())


def test_the_parents_of_another_tenant_place_nobody() -> None:
    asker = Asker("child", "child", "root", source={"session": "header a", "thread": "header a", "parent": "header b"})
    below = Asker("child", "grandchild", "child", source={"session": "header b", "thread": "header a", "parent": "header b"})
    roots = SessionRoots()
    roots.placed("one", msgspec.structs.replace(asker, session="root"))
    assert roots.placed("two", below).session == "child"
    assert roots.placed("one", below).session == "root"


def test_the_threads_that_are_remembered_for_those_below_are_bounded(monkeypatch: Any) -> None:
    monkeypatch.setattr("responses_gateway.request.who_asks.asker.MOST_OF_TENANT", 2)
    monkeypatch.setattr("responses_gateway.request.who_asks.asker.MOST", 3)
    source = {"session": "header b", "thread": "header a", "parent": "header b"}
    roots = SessionRoots()

    def placed(tenant: str, thread: str, parent: str) -> str | None:
        return roots.placed(tenant, Asker(parent, thread, parent, source=source)).session

    assert [placed("other", "x", "root"), placed("one", "a", "root"), placed("one", "b", "a"), placed("one", "c", "b")] == [
        *["root"] * 4
    ]
    assert placed("one", "d", "a") == "a"  # which was the oldest of its tenant
    assert placed("other", "y", "x") == "root"  # whose threads nobody else pushed out


@pytest.mark.slow
@pytest.mark.parametrize("ui", ["auto", "off"])
def test_the_list_has_the_sessions_of_all_workers_also_without_the_window(ui: str) -> None:
    async def test() -> None:
        flags = ("--simulator", *SEVERAL, "--no-adapt", "--store", "none", "--ui", ui)
        async with program(*flags, "--admin-key", ADMIN_KEY.get_secret_value()) as running:
            names = {f"session-{number}" for number in range(12)}
            sent = (post(running, client_metadata={"session_id": name, "thread_id": name}) for name in names)
            assert {answer.status for answer in await asyncio.gather(*sent)} == {200}
            for _ in range(6):  # any worker may answer
                assert {row["session"] for row in await rows(running)} == names

    run(test())


SPAWNS = [{"type": "function", "name": "spawn_agent", "parameters": {"type": "object", "properties": {}}}]


def of_codex(thread: str = "root", **turn: str) -> Row:
    """Return what Codex says of a thread in the session `root`."""
    parent = {} if thread == "root" else {"parent_thread_id": "root"}
    said = {"session_id": "root", "thread_id": thread, "request_kind": "turn", **parent, **turn}
    return {"client_metadata": {"x-codex-turn-metadata": json.dumps(said)}}


async def requests_of(served: Served) -> tuple[Row, dict[str, list[Row]], dict[str, Row]]:
    """Return the one session, the requests of its threads, and the threads below the first one."""
    (row,) = await rows(served)
    (root,) = (await detail(served, row["id"]))["threads"]
    below = {thread["thread"]: thread for thread in root["threads"]}
    return row, {root["thread"]: root["requests"], **{name: each["requests"] for name, each in below.items()}}, below


def test_the_time_of_tools_is_the_pause_before_their_results_and_a_child_is_below_the_call_that_began_it() -> None:
    async def test() -> None:
        async with simulated(admin_key=ADMIN_KEY) as served:
            question: Row = {"role": "user", "content": "scenario: tool"}
            first = (await post(served, input=[question], tools=SPAWNS, **of_codex())).final
            (call,) = [item for item in first["output"] if item["type"] == "function_call"]
            await post(served, **of_codex("child", thread_source="subagent"))
            await post(served, **of_codex(thread_source="thread_title"))  # which waits for no tool
            result = {"type": "function_call_output", "call_id": call["call_id"], "output": "done"}
            items = [question, call, result, {"role": "user", "content": "scenario: plain"}]
            await post(served, input=items, tools=SPAWNS, **of_codex())
            await post(served, **of_codex())
            row, requests, below = await requests_of(served)
            asked, title, told, last = requests["root"]
            assert told["tools"] == pytest.approx(told["started"] - asked["ended"])
            assert [each.get("tools") for each in (asked, title, last, *requests["child"])] == [None] * 4
            assert row["tools"] == pytest.approx(told["tools"])
            assert (asked["calls"], title["kind"], row["turns"], row["requests"]) == (1, "title", 4, 5)
            assert below["child"]["began_by"] == asked["id"]

    run(test())


def with_results(history: list[Row], answer: Row) -> list[Row]:
    """Return a history with an answer and the results of its calls."""
    calls = [item["call_id"] for item in answer["output"] if item["type"] == "function_call"]
    assert calls
    return [
        *history,
        *answer["output"],
        *({"type": "function_call_output", "call_id": call_id, "output": "done"} for call_id in calls),
    ]


def test_a_pause_of_the_user_is_no_time_of_tools() -> None:
    """One behind calls that the user has stopped, whose results never came, and one behind results that the model has read."""

    async def test() -> None:
        async with simulated(admin_key=ADMIN_KEY) as served:
            asked: list[Row] = [{"role": "user", "content": "scenario: tool"}]
            stopped = (await post(served, input=asked, tools=SPAWNS, **of_codex())).final
            items = [*asked, {"role": "user", "content": "scenario: tool"}]
            answer = (await post(served, input=items, tools=SPAWNS, **of_codex())).final
            assert stopped["output"] != answer["output"]
            items = [*with_results(items, answer), {"role": "user", "content": "scenario: plain"}]
            last = (await post(served, input=items, tools=SPAWNS, **of_codex())).final
            items = [*items, *last["output"], {"role": "user", "content": "go on"}]
            await post(served, input=items, tools=SPAWNS, **of_codex())
            _, requests, _ = await requests_of(served)
            assert [each.get("tools") is None for each in requests["root"]] == [True, True, False, True]

    run(test())


def test_the_tools_of_a_chain_and_of_messages_are_those_whose_results_come() -> None:
    async def test() -> None:
        async with simulated(admin_key=ADMIN_KEY, store="memory") as served:
            first = (await post(served, input="scenario: tool", tools=SPAWNS, store=True)).final
            results = with_results([], {**first, "output": [first["output"][-1]]})[1:]
            await post(served, input=results, tools=SPAWNS, previous_response_id=first["id"], store=True)
            _, requests, _ = await requests_of(served)
            asked, told = requests[first["id"]]
            assert told["tools"] == pytest.approx(told["started"] - asked["ended"])
        async with simulated(admin_key=ADMIN_KEY) as served:
            tools = [{"name": "run", "input_schema": {"type": "object", "properties": {}}}]
            body = {"model": "simulator", "max_tokens": 200, "tools": tools}
            messages: list[Row] = [{"role": "user", "content": "scenario: tool"}]
            headers = {"x-claude-code-session-id": "s"}
            answer = await ask(served, "POST", "/v1/messages", json={**body, "messages": messages}, headers=headers)
            content = answer.json["content"]
            results = [
                {"type": "tool_result", "tool_use_id": block["id"], "content": "done"}
                for block in content
                if block["type"] == "tool_use"
            ]
            messages += [{"role": "assistant", "content": content}, {"role": "user", "content": results}]
            await ask(served, "POST", "/v1/messages", json={**body, "messages": messages}, headers=headers)
            _, requests, _ = await requests_of(served)
            asked, told = requests["s"]
            assert told["tools"] == pytest.approx(told["started"] - asked["ended"])

    run(test())


def test_the_time_of_tools_does_not_depend_on_the_processes_that_had_the_turns() -> None:
    owner = SessionOwner("tenant", "s", None, "client")
    random = Random(39)
    for processes in (1, 2, 3) * 10:
        remembered = [RememberedSessions() for _ in range(processes)]
        parts: dict[str, SessionPart] = {}
        now = 0.0
        expected: list[float | None] = []
        for number in range(12):
            answered = f"call {number - 1}" if number and random.random() < 0.8 else None
            told = answered is not None and random.random() < 0.2
            pause = random.random()
            expected.append(7.0 if told else None if answered is None else pytest.approx(pause))
            request = AgentRequest(
                str(number),
                "",
                now + pause,
                "t",
                ended=now + pause + 1,
                answered=answered,
                last_call=f"call {number}",
                tools=7.0 if told else None,
                told=told,
            )
            now += pause + 1
            part = random.choice(remembered).add(owner, request)
            parts[part.name] = part
        (session,) = merged(parts.values()).values()
        assert [request.tools for request in session.kept] == expected
        assert session.tools == pytest.approx(sum(request.tools or 0.0 for request in session.kept))


def test_what_a_client_says_of_its_tools_counts_before_the_pause() -> None:
    async def test() -> None:
        async with simulated(admin_key=ADMIN_KEY) as served:
            for durations in ({}, {"x-claude-code-prev-tool-durations": "Bash=1200;Read=300"}):
                headers = {"x-claude-code-session-id": "s", **durations}
                await post(served, input="scenario: tool", tools=SPAWNS, headers=headers)
            (row,) = await rows(served)
            assert row["tools"] == 1.5

    run(test())


def test_a_session_runs_while_a_request_does_and_may_say_that_it_ends() -> None:
    async def test() -> None:
        async with simulated(admin_key=ADMIN_KEY) as served:
            body = {"model": "simulator", "input": "scenario: plain tps: 2", "stream": True}
            headers = {"x-session-id": "child", "x-parent-session-id": "root"}
            async with (
                aiohttp.ClientSession() as client,
                client.post(f"{served.url}/v1/responses", json=body, headers=headers) as answer,
            ):
                assert await answer.content.readany()
                (row,) = await rows(served)
                assert (row["session"], row["running"], row["agents"], row["requests"]) == ("root", True, 1, 0)
                (thread,) = (await detail(served, row["id"]))["threads"]
                assert (thread["thread"], thread["parent"]) == ("child", "root")
                assert [each["outcome"] for each in thread["requests"]] == ["running"]
            await post(served, headers={"x-session-id": "root"})
            await post(served, headers={**headers, "X-Session-Final": "true"})  # the sub-agent alone has ended
            assert [row["final"] for row in await rows(served)] == [False]
            await post(served, headers={"x-session-id": "root", "X-Session-Final": "true"})
            assert [row["final"] for row in await rows(served)] == [True]

    run(test())
