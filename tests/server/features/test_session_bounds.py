"""What clients can do with many, long or foreign ids of sessions and rollouts: nothing to others, nothing without bounds."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from aiohttp import web
from pydantic import SecretStr

from responses_gateway.server.features.session_hints import feature
from responses_gateway.server.features.sessions import memory, usage
from responses_gateway.server.features.sessions.agent_requests import AgentRequest, SessionOwner
from responses_gateway.server.features.sessions.memory import RememberedSessions
from responses_gateway.server.features.sessions.parts import SessionPart, merged, tree
from responses_gateway.settings.keys import hash_of
from responses_gateway.simulator import create_app, serving
from responses_gateway.state import StoreUnavailable
from responses_gateway.state.sessions import SessionTable
from responses_gateway.state.token_trees import TokenTreeTable
from tests.server.running_gateway import Answer, RawClient, Served, ask, assert_error, gateway, post, run, simulated
from tests.waiting import PATIENCE, until

KEYS = {name: f"a-key-of-{name}-that-is-long-enough" for name in ("alice", "bob")}
ADMIN = {"Authorization": "Bearer the-admin-key-of-this-gateway"}
SETTINGS: dict[str, Any] = {
    "admin_key": SecretStr("the-admin-key-of-this-gateway"),
    "api_keys": {name: hash_of(key) for name, key in KEYS.items()},
}
Row = dict[str, Any]


def of(client: str, **headers: str) -> dict[str, str]:
    """Return the headers of a request of a client; underscores in their names are hyphens."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return {"Authorization": f"Bearer {KEYS[client]}", **named}


async def rows(served: Served, query: str = "") -> list[Row]:
    answer = await ask(served, "GET", f"/admin/sessions{query}", headers=ADMIN)
    assert answer.status == 200, answer.body
    data: list[Row] = answer.json["data"]
    return data


async def as_both(served: Served, method: str, path: str, **request: Any) -> tuple[Answer, Answer]:
    """Return what Bob gets for a request, and then what Alice does."""
    bob = await ask(served, method, path, headers=of("bob"), **request)
    return bob, await ask(served, method, path, headers=of("alice"), **request)


def test_nobody_reads_the_rollouts_of_another_key() -> None:
    async def test() -> None:
        async with simulated(store="memory", **SETTINGS) as served:
            headers = of("alice", x_rollout_id="ep1", x_session_id="s1")
            response = (await post(served, stream=False, headers=headers)).json["id"]
            reward = {"reward": 1}
            for method, path, sent, code in (
                ("GET", "/rollouts/ep1", None, "rollout_not_found"),
                ("GET", f"/rollouts/ep1?chain={response}", None, "rollout_not_found"),
                ("POST", "/rollouts/ep1/reward", reward, "rollout_not_found"),
                ("GET", f"/v1/responses/{response}/trajectory", None, "response_not_found"),
                ("DELETE", "/rollouts/ep1", None, "rollout_not_found"),
            ):
                bob, alice = await as_both(served, method, path, json=sent)
                assert_error(bob, 404, code)
                assert alice.status == 200
            await post(served, stream=False, headers=headers)
            await post(served, stream=False, headers=of("bob", x_rollout_id="ep1"))
            bob, alice = await as_both(served, "GET", "/rollouts/ep1")
            assert len(bob.json["calls"]) == len(alice.json["calls"]) == 1
            assert bob.json["calls"][0]["id"] != alice.json["calls"][0]["id"]
            assert (bob.json["reward"], bob.json["calls"][0].get("session")) == (None, None)
            theirs = alice.json["calls"][0]["id"]
            answer = await ask(served, "GET", f"/rollouts/ep1?chain={theirs}", headers=of("bob"))
            assert_error(answer, 400, "call_not_found")

    run(test())


def test_cursors_and_chains_are_calls_of_the_same_tree() -> None:
    """Not those of another key, nor of another rollout of one's own; whatever else they are, they are none."""

    async def test() -> None:
        async with simulated(store="memory", **SETTINGS) as served:
            ids = {}
            for client, name in (("alice", "ep1"), ("alice", "ep2"), ("bob", "ep1")):
                ids[client, name] = (await post(served, stream=False, headers=of(client, x_rollout_id=name))).json["id"]
            own, other, foreign = ids.values()
            for path in ("/rollouts/ep1", f"/v1/responses/{own}/trajectory"):
                for name in ("after", "chain"):
                    assert (await ask(served, "GET", f"{path}?{name}={own}", headers=of("alice"))).status == 200
                    for value in (
                        other,
                        foreign,
                        f"{own}.1",
                        own.upper(),
                        own[:-1],
                        "%00",
                        f"{own}%00",
                        "%ff",
                        "_",
                        "a" * 5000,
                    ):
                        answer = await ask(served, "GET", f"{path}?{name}={value}", headers=of("alice"))
                        assert_error(answer, 400, "call_not_found")
                        assert answer.json["error"]["param"] == name
            for name in (foreign, f"{own}.1", "%00", "%ff", "a" * 5000):
                answer = await ask(served, "GET", f"/v1/responses/{name}/trajectory", headers=of("alice"))
                assert_error(answer, 404, "response_not_found")
            for name in ("ep3", "ep1%00", "ep1%2f..", "rollout:ep1", "a" * 129):
                answer = await ask(served, "GET", f"/rollouts/{name}", headers=of("alice"))
                assert answer.status in (400, 404), name

    run(test())


def test_a_response_of_another_key_or_rollout_is_no_parent() -> None:
    async def test() -> None:
        async with simulated(store="memory", **SETTINGS) as served:
            first = (await post(served, stream=False, headers=of("alice", x_rollout_id="ep1"))).json["id"]
            for client, name, status in (("bob", "ep1", 400), ("alice", "ep2", 200), ("alice", "ep1", 200)):
                headers = of(client, x_rollout_id=name)
                answer = await post(served, stream=False, previous_response_id=first, headers=headers)
                assert answer.status == status, answer.body
                found = await ask(served, "GET", f"/rollouts/{name}", headers=of(client))
                if client == "alice":
                    assert found.json["calls"][-1]["parent"] == (first if name == "ep1" else None)
                else:
                    assert found.status == 404 or found.json["calls"] == []

    run(test())


def test_the_prompt_of_one_key_continues_no_tokens_of_another() -> None:
    async def test() -> None:
        async with simulated(store="memory", **SETTINGS) as served:
            question = [{"role": "user", "content": "hi"}]
            alice = of("alice", x_rollout_id="ep1", x_token_true="1")
            answer = await post(served, input=question, stream=False, headers=alice)
            history = [*question, *answer.json["output"], {"role": "user", "content": "go on"}]
            for client in ("bob", "alice"):
                await post(served, input=history, stream=False, headers={**alice, **of(client)})
            bob, alices = await as_both(served, "GET", "/rollouts/ep1")
            (call,) = bob.json["calls"]
            assert (call["parent"], call["reason"], call.get("token_true")) == (None, "history_differs", None)
            assert [call.get("token_true") for call in alices.json["calls"]] == [None, True]

    run(test())


def test_clients_keys_see_no_sessions_and_usage_is_that_of_each_key() -> None:
    async def test() -> None:
        async with simulated(store="memory", **SETTINGS) as served:
            for client in ("alice", "alice", "bob"):
                await post(served, headers=of(client, x_session_id="same"))
            (bobs,) = await rows(served, "?key=bob")
            for path in ("/admin/sessions", f"/admin/sessions/{bobs['id']}", "/admin/usage?by=session"):
                for answer in await as_both(served, "GET", path):
                    assert_error(answer, 401, "invalid_api_key")
            for path in ("/ui/api/sessions", f"/ui/api/sessions/{bobs['id']}"):
                for answer in await as_both(served, "GET", path):
                    assert answer.status == 401
            for path in ("/admin/sessions/same", "/admin/sessions/" + "a" * 5000, "/admin/sessions/%00%ff"):
                assert_error(await ask(served, "GET", path, headers=ADMIN), 404, "not_found")
            answer = await ask(served, "GET", "/admin/usage?by=key,session", headers=ADMIN)
            used = {(each["key"], each["session"]): each["requests"] for each in answer.json["data"]}
            assert used == {("alice", "same"): 2, ("bob", "same"): 1}

    run(test())


@pytest.mark.slow
@pytest.mark.parametrize("store", ["none", "memory"])
def test_a_key_of_many_sessions_loses_none_of_another(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "MOST_OF_TENANT", 20)
    monkeypatch.setattr(usage, "MOST_SESSIONS", 20)
    monkeypatch.setattr(usage, "GIVEN_UP", 10)

    async def test() -> None:
        async with simulated(store=store, **SETTINGS) as served:
            await post(served, headers=of("bob", x_session_id="quiet", x_rollout_id="ep1"))
            for at in range(0, 100, 20):
                named = [of("alice", x_session_id=f"s{number}", x_rollout_id=f"r{number}") for number in range(at, at + 20)]
                answers = await asyncio.gather(*(post(served, headers=headers) for headers in named))
                assert {answer.final["status"] for answer in answers} == {"completed"}
            await post(served, headers=of("bob", x_session_id="quiet", x_rollout_id="ep1"))
            (row,) = await rows(served, "?key=bob")
            assert (row["session"], row["requests"]) == ("quiet", 2)
            assert len(await rows(served, "?key=alice")) >= 20  # and those that were stored by now
            answer = await ask(served, "GET", "/admin/usage?by=key,session", headers=ADMIN)
            used = {(each["key"], each["session"]): each["requests"] for each in answer.json["data"]}
            assert used["bob", "quiet"] == 2
            assert sum(number for (key, _), number in used.items() if key == "alice") == 100
            calls = (await ask(served, "GET", "/rollouts/ep1", headers=of("bob"))).json["calls"]
            assert len(calls) == 2
            shown = await ask(served, "GET", "/admin/sessions?limit=5", headers=ADMIN)
            assert (len(shown.json["data"]), shown.json["has_more"]) == (5, True)

    run(test())


def test_an_id_that_is_too_long_names_no_session() -> None:
    long = "a" * 257

    async def test() -> None:
        async with simulated(**SETTINGS) as served:
            for headers, fields in (
                (of("alice", x_session_id=long), {}),
                (of("alice", session_id=long, thread_id=long), {}),
                (of("alice"), {"client_metadata": {"session_id": long, "thread_id": long}}),
                (of("alice"), {"prompt_cache_key": long}),
            ):
                answer = await post(served, headers=headers, **fields)
                assert answer.status in (200, 400)
            assert await rows(served) == []
            await post(served, headers=of("alice", x_session_id="a" * 256))
            assert [row["session"] for row in await rows(served)] == ["a" * 256]

    run(test())


def requests_of(number: int) -> Iterator[AgentRequest]:
    """Yield requests of as many threads, each below the one before, with the longest ids that a client may choose."""
    for at in range(number):
        thread, parent = (f"{name:08}" + "\U0001f600" * 248 for name in (at, at - 1))
        yield AgentRequest(f"id{at}", f"r{at}", float(at), thread, ended=at + 1.0, parent=parent, turn=thread[::-1], spawned=1)


def test_a_client_whose_name_is_no_unicode_keeps_no_session_of_others_from_the_store_and_the_window() -> None:
    async def test() -> None:
        async with simulated(store="memory", admin_key=SETTINGS["admin_key"]) as served:
            client = await RawClient.connect(served)
            head = b"POST /v1/responses HTTP/1.1\r\nHost: x\r\nUser-Agent: caf\xe9\r\nX-Session-Id: s1\r\n"
            body = b'{"model": "simulator", "input": "hi"}'
            await client.send(head + b"Connection: close\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
            assert (await client.read_all()).startswith(b"HTTP/1.1 200 ")
            await post(served, headers={"X-Session-Id": "s2"})
            assert {row["session"]: row["client"] for row in await rows(served)}["s1"] == "caf?"
            assert served.parts.store is not None
            table = SessionTable(served.parts.store.database, 60)
            for _ in range(int(PATIENCE)):
                stored = await table.latest(10)
                if len(stored) == 2:
                    return
                await asyncio.sleep(1)
            raise AssertionError(f"{len(stored)} sessions are stored")

    run(test())


@pytest.mark.slow
def test_ten_thousand_sessions_of_long_ids_take_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "MOST", 1_000_000)
    remembered = RememberedSessions()
    quiet = SessionOwner("quiet", "session", None, "client")
    for request in requests_of(3):
        remembered.add(quiet, request)
    for number in range(10_000):
        owner = SessionOwner("busy", f"session {number}" + "\U0001f600" * 240, None, "client")
        for request in requests_of(1 + number % 4):
            remembered.add(owner, request)
    parts = remembered.all()
    assert len(msgspec.msgpack.encode(parts)) < 1_000_000
    assert remembered.get(quiet.id) is not None
    assert max(part.requests for part in parts) == 4


def test_a_session_of_any_size_is_forgotten_before_memory_is_full() -> None:
    remembered = RememberedSessions()
    owner = SessionOwner("busy", "session", None, "client")
    sizes = [remembered.add(owner, request).size for request in requests_of(3_000)]
    assert max(sizes) < 2_000_000  # however many requests and threads there are


def test_the_tree_of_a_session_can_be_written_however_deep_and_whatever_circles_it_has() -> None:
    parts: list[SessionPart] = []
    for start in range(0, 2400, 200):  # each of another process
        remembered = RememberedSessions()
        owner = SessionOwner("tenant", "session", None, "client")
        for request in list(requests_of(start + 200))[start:]:
            parts.append(remembered.add(owner, request))
    (session,) = merged({part.name: part for part in parts}.values()).values()
    session.threads[next(iter(session.threads))].parent = list(session.threads)[-1]  # a circle of all
    roots = tree(session, [])
    assert len(msgspec.json.encode(roots)) > 0
    number = 0
    while roots:
        number += len(roots)
        roots = [child for thread in roots for child in thread["threads"]]
    assert number == 2400


def test_threads_in_a_circle_and_those_below_it_are_each_shown_once() -> None:
    remembered = RememberedSessions()
    owner = SessionOwner("tenant", "session", None, "client")
    for thread, parent in (("a", "b"), ("b", "a"), ("below", "b"), ("own", "own"), ("root", None), ("child", "root")):
        part = remembered.add(owner, AgentRequest(thread, thread, 1.0, thread, ended=2.0, parent=parent))

    def shape(threads: list[Row]) -> dict[str, Any]:
        return {each["thread"]: shape(each["threads"]) for each in threads}

    assert shape(tree(part, [])) == {"b": {"a": {}, "below": {}}, "own": {}, "root": {"child": {}}}


def test_a_reward_and_a_chain_are_refused_while_the_store_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    async def away(*_: object) -> None:
        raise StoreUnavailable("away")

    async def test() -> None:
        async with simulated(**SETTINGS) as served:
            await post(served, headers=of("alice", x_rollout_id="ep1"))
            for name in ("tree", "reward", "delete", "name_of"):
                monkeypatch.setattr(TokenTreeTable, name, away)
            for method, path, sent in (
                ("GET", "/rollouts/ep1?chain=x", None),
                ("POST", "/rollouts/ep1/reward", {"reward": 1}),
                ("DELETE", "/rollouts/ep1", None),
                ("GET", "/v1/responses/resp_1/trajectory", None),
            ):
                assert_error(await ask(served, method, path, headers=of("alice"), json=sent), 503)
            assert (await post(served, headers=of("bob"))).final["status"] == "completed"

    # The store being away is in the log, as an error.
    with pytest.raises(AssertionError, match="away"):
        run(test())


def test_a_server_is_told_of_a_few_ended_threads_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feature, "AT_ONCE", 2)
    monkeypatch.setattr(feature, "INTERVAL", 0.01)
    app = create_app()
    asked: list[str] = []
    ended: list[str] = []
    goes_on = asyncio.Event()

    async def close_session(request: web.Request) -> web.Response:
        asked.append((await request.json())["session_id"])
        await goes_on.wait()
        ended.append(asked[-1])
        return web.Response()

    app.router.add_post("/close_session", close_session)

    async def test() -> None:
        async with serving(app) as url, gateway(backends={"b": {"url": url, "session_hints": "sglang"}}) as served:
            for number in range(8):
                await post(served, headers={"x-session-id": f"s{number}"})
            monkeypatch.setattr(feature, "EXPIRY", 0.0)
            await until(lambda: len(asked) == 2, "two are asked for")
            await post(served)  # which takes a while
            assert len(asked) == 2
            goes_on.set()
            await until(lambda: len(ended) == 8, "all have ended")

    run(test())


# Texts of rewards that no reader of JSON need take, and of some that all take.
NO_REWARDS = {
    "infinite": b"1e999",
    "minus infinity": b"-1e999",
    "its name": b"Infinity",
    "its name with a sign": b"-Infinity",
    "no number": b"NaN",
    "infinite in a list": b"[0, [1e999]]",
    "infinite in an object": b'{"a":[{"b":-1e999}]}',
    "infinite with digits": b"9" * 400 + b".5",
    "longer than Python reads": b"9" * 5000,
    "brackets": b"[" * 32_000 + b"]" * 32_000,
    "braces": b'{"a":' * 10_000 + b"1" + b"}" * 10_000,
    "open brackets": b"[" * 65_000,
    "half a pair": b'"\\ud800"',
    "half a pair as a name": b'{"\\udc00":1}',
    "no UTF-8": b'"\xff"',
    "a control character": b'"\0"',
}
REWARDS = {
    "small": b"1e-999",
    "large": b"-1.7976931348623157e308",
    "an integer of 4,000 digits": b"9" * 4000,
    "the last of two": b'{"a":1,"a":2}',
    "a pair": b'"\\ud83d\\ude00"',
    "escaped": b'"\\u0000"',
    "depth": b"[" * 200 + b"]" * 200,
    "null": b"null",
}


@pytest.mark.parametrize("reward", NO_REWARDS.values(), ids=NO_REWARDS)
def test_a_reward_that_is_no_finite_json_is_refused_and_the_last_one_stays(reward: bytes) -> None:
    async def test() -> None:
        async with simulated(**SETTINGS) as served:
            await post(served, headers=of("alice", x_rollout_id="ep1"))
            for body in (b'{"reward":0.5}', b'{"reward":%b}' % reward):
                answer = await ask(served, "POST", "/rollouts/ep1/reward", data=body, headers=of("alice"))
            assert_error(answer, 400, "invalid_value")
            assert answer.json["error"]["param"] == "reward"
            assert (await ask(served, "GET", "/rollouts/ep1", headers=of("alice"))).json["reward"] == 0.5

    run(test())


@pytest.mark.parametrize("reward", REWARDS.values(), ids=REWARDS)
def test_a_reward_is_exported_as_it_came(reward: bytes) -> None:
    async def test() -> None:
        async with simulated(**SETTINGS) as served:
            await post(served, headers=of("alice", x_rollout_id="ep1"))
            body = b'{"reward":1,"reward":%b}' % reward
            answer = await ask(served, "POST", "/rollouts/ep1/reward", data=body, headers=of("alice"))
            assert answer.status == 200, answer.body
            exported = await ask(served, "GET", "/rollouts/ep1", headers=of("alice"))
            assert b'"reward":%b' % reward in exported.body
            assert exported.json["reward"] == msgspec.json.decode(exported.body)["reward"] == answer.json["reward"]

    run(test())


def test_json_of_any_depth_is_the_client_s_error_and_names_no_session() -> None:
    deep = b"[" * 30_000 + b"]" * 30_000

    async def test() -> None:
        async with simulated(**SETTINGS) as served:
            await post(served, headers=of("alice", x_rollout_id="ep1"))
            for body in (b'{"reward":%b}' % deep, b'{"reward":"\\ud800"}', b'{"reward":NaN}', b"{}", b""):
                answer = await ask(served, "POST", "/rollouts/ep1/reward", data=body, headers=of("alice"))
                assert_error(answer, 400, "invalid_value")
            assert (await ask(served, "GET", "/rollouts/ep1", headers=of("alice"))).json["reward"] is None
            for query, param in (("chain=", "chain"), ("chain=x", "chain"), ("after=x", "after")):
                answer = await ask(served, "GET", f"/rollouts/ep1?{query}", headers=of("alice"))
                assert_error(answer, 400, "call_not_found")
                assert answer.json["error"]["param"] == param
            json_type = {"Content-Type": "application/json"}
            for headers in (of("alice"), of("alice", x_session_id="s")):
                body = b'{"model":"simulator","prompt_cache_key":"k","messages":%b}' % deep
                answer = await ask(served, "POST", "/v1/chat/completions", data=body, headers={**headers, **json_type})
                assert answer.status == 400  # as the backend says
            assert await rows(served) == []

    run(test())
