"""What servers get to know of sessions, and where the threads of these go: through the front door, as the servers record it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from responses_gateway.server.features.session_hints import feature
from responses_gateway.simulator import RECEIVED, SimulatorOptions, create_app, serving
from tests.data_folder import DATA
from tests.server.running_gateway import Served, ask, gateway, post, run
from tests.waiting import until

# Who asks, in the words of a client, and the kind that follows from it.
KINDS: dict[str, dict[str, str]] = {
    "main": {"x-claude-code-request-class": "main"},
    "compaction": {"x-claude-code-request-class": "compaction"},
    "subagent": {"x-claude-code-request-class": "subagent", "x-claude-code-agent-id": "a" * 17},
    "auxiliary": {"x-claude-code-request-class": "auxiliary"},
}
CLAUDE = {"x-claude-code-session-id": "s1"}


@asynccontextmanager
async def hinted(server: str | None, *apps: web.Application, **settings: Any) -> AsyncIterator[Served]:
    """Serve a gateway that tells each of some servers of sessions."""
    async with serving(apps[0]) as one, serving(apps[-1]) as other:
        urls = [one, other] if len(apps) > 1 else [one]
        details = {f"b{number}": {"url": url, "session_hints": server} for number, url in enumerate(urls)}
        async with gateway(backends=details, **settings) as served:
            yield served


def bodies(app: web.Application) -> list[dict[str, Any]]:
    return [request["body"] for request in app[RECEIVED]]


@pytest.mark.parametrize("server", ["vllm", "sglang", "dynamo"])
def test_urgent_requests_come_first_as_each_server_counts(server: str) -> None:
    app = create_app()

    async def test() -> None:
        async with hinted(server, app) as served:
            found: dict[str, int] = {}
            for kind, headers in KINDS.items():
                answer = await post(served, headers={**CLAUDE, **headers})
                assert answer.final["status"] == "completed"
                body = bodies(app)[-1]
                hints = body["nvext"]["agent_hints"] if server == "dynamo" else body
                found[kind] = hints["priority"] * (-1 if server == "vllm" else 1)
            assert found["compaction"] >= found["main"] >= found["subagent"] > found["auxiliary"]
            await post(served)
            assert not {"priority", "session_id", "nvext"} & bodies(app)[-1].keys()

    run(test())


def test_nobody_is_told_unless_the_settings_say_so() -> None:
    app = create_app()

    async def test() -> None:
        async with hinted(None, app) as served:
            await post(served, headers=CLAUDE)
            assert not {"priority", "session_id", "nvext"} & bodies(app)[-1].keys()
            assert "X-Session-ID" not in app[RECEIVED][-1]["headers"]

    run(test())


def test_dynamo_knows_the_tree_by_headers() -> None:
    app = create_app()

    async def test() -> None:
        async with hinted("dynamo", app) as served:
            await post(served, headers={"x-session-id": "child", "x-parent-session-id": "root", "x-session-final": "true"})
            headers = app[RECEIVED][-1]["headers"]
            assert headers["X-Dynamo-Session-ID"] == "child"
            assert headers["X-Dynamo-Parent-Session-ID"] == "root"
            assert headers["X-Dynamo-Session-Final"] == "true"

    run(test())


def closing_server() -> tuple[web.Application, list[str]]:
    """Return a server, and the sessions that it was told have ended."""
    app = create_app()
    closed: list[str] = []

    async def close_session(request: web.Request) -> web.Response:
        closed.append((await request.json())["session_id"])
        return web.Response()

    app.router.add_post("/close_session", close_session)
    return app, closed


def refusing_server(status: int, in_stream: bool = False) -> tuple[web.Application, list[bool]]:
    """Return a server that refuses a priority, and whether each chat request had one. SGLang answers 503 where it is turned
    off, of a stream as its first event."""
    app = create_app()
    asked: list[bool] = []

    @web.middleware
    async def refusing(request: web.Request, handler: Any) -> web.StreamResponse:
        if request.path.endswith("/chat/completions"):
            asked.append("priority" in await request.json())
            if asked[-1]:
                message = "Using priority is disabled for this server. Please send a new request without a priority."
                if in_stream:
                    text = "data: " + json.dumps({"error": {"message": message, "code": status}}) + "\n\ndata: [DONE]\n\n"
                    return web.Response(text=text, content_type="text/event-stream")
                return web.json_response({"message": message}, status=status)
        response: web.StreamResponse = await handler(request)
        return response

    app.middlewares.append(refusing)
    return app, asked


def test_sglang_is_told_when_a_session_ends() -> None:
    app, closed = closing_server()

    async def test() -> None:
        async with hinted("sglang", app) as served:
            await post(served, headers={"x-session-id": "s1"})
            await post(served, headers={"x-session-id": "s2"})
            assert [body["session_id"] for body in bodies(app)] == ["s1", "s2"]
            assert closed == []
            await post(served, headers={"x-session-id": "s1", "x-session-final": "true"})
            await until(lambda: closed == ["s1"], "the session is closed")

    run(test())


def test_a_server_that_a_thread_has_left_is_told_that_it_ends_there() -> None:
    servers = [closing_server(), closing_server()]

    async def test() -> None:
        async with hinted("sglang", *[app for app, _ in servers]) as served:
            await post(served, headers={"x-session-id": "s1"})
            left = 0 if bodies(servers[0][0]) else 1
            served.parts.pool.members.by_name[f"b{left}"].draining = True
            for _ in range(2):
                await post(served, headers={"x-session-id": "s1"})
            assert len(bodies(servers[1 - left][0])) == 2
            await until(lambda: servers[left][1] == ["s1"], "the server that was left knows")
            assert servers[1 - left][1] == []
            await post(served, headers={"x-session-id": "s1", "x-session-final": "true"})
            await until(lambda: servers[1 - left][1] == ["s1"], "the session is closed")
            assert servers[left][1] == ["s1"]

    run(test())


@pytest.mark.parametrize("kind", ["title", "auxiliary"])
def test_a_request_beside_the_work_that_went_elsewhere_takes_its_thread_nowhere(kind: str) -> None:
    """What the thread has in the cache of its server would be lost to its next turn."""
    servers = [closing_server(), closing_server()]
    beside: dict[str, Any] = {"headers": {**CLAUDE, **KINDS["auxiliary"]}}
    if kind == "title":
        turn = {"session_id": "s1", "thread_id": "s1", "request_kind": "turn", "thread_source": "thread_title"}
        beside = {"client_metadata": {"session_id": "s1", "x-codex-turn-metadata": json.dumps(turn)}}

    async def test() -> None:
        async with hinted("sglang", *[app for app, _ in servers]) as served:
            await post(served, headers=CLAUDE)
            home = 0 if bodies(servers[0][0]) else 1
            served.parts.pool.members.by_name[f"b{home}"].draining = True
            await post(served, **beside)
            served.parts.pool.members.by_name[f"b{home}"].draining = False
            await post(served, headers=CLAUDE)
            assert [len(bodies(servers[number][0])) for number in (home, 1 - home)] == [2, 1]
            await until(lambda: servers[1 - home][1] == ["s1"], "the other server knows that there comes no more")
            assert servers[home][1] == []

    run(test())


@pytest.mark.slow
def test_a_sub_agent_that_ends_does_not_end_its_session() -> None:
    app, closed = closing_server()

    async def test() -> None:
        async with hinted("sglang", app) as served:
            child = {"x-session-id": "child", "x-parent-session-id": "s1"}
            await post(served, headers={"x-session-id": "s1"})
            await post(served, headers={**child, "x-session-final": "true"})
            await until(lambda: closed != [], "the sub-agent is closed")
            await post(served, headers={"x-session-id": "s1", "x-session-final": "true"})
            await until(lambda: len(closed) > 1, "the session is closed")
            assert closed == ["child", "s1"]

    run(test())


def test_a_client_of_many_sessions_ends_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feature, "MOST_OF_TENANT", 3)
    monkeypatch.setattr(feature, "MOST", 4)
    app, closed = closing_server()

    async def test() -> None:
        async with hinted("sglang", app) as served:
            sent: list[str] = []
            for client, session in [("B", "b1"), ("A", "a1"), ("A", "a2"), ("A", "a3"), ("A", "a4"), ("B", "b2")]:
                await post(served, headers={"Authorization": f"Bearer {client}", "x-session-id": session})
                sent.append(bodies(app)[-1]["session_id"])
            # The fourth of A, and then the fifth of all: each time one of A's went, though B's is the oldest.
            await until(lambda: len(closed) == 2, "two sessions have ended")
            assert sorted(closed) == sorted(sent[1:3])

    run(test())


def test_a_session_of_which_nothing_is_heard_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feature, "INTERVAL", 0.01)
    app, closed = closing_server()

    async def test() -> None:
        async with hinted("sglang", app) as served:
            await post(served, headers={"x-session-id": "s1"})
            await post(served, headers={"x-session-id": "s2"})
            assert closed == []
            monkeypatch.setattr(feature, "EXPIRY", 0.0)
            await until(lambda: sorted(closed) == ["s1", "s2"], "both have ended")

    run(test())


@pytest.mark.parametrize("status", [400, 422, 503])
def test_a_server_that_refuses_a_hint_gets_it_no_more(status: int) -> None:
    app, asked = refusing_server(status)

    async def test() -> None:
        async with hinted("sglang", app) as served:
            for _ in range(3):
                answer = await post(served, headers=CLAUDE)
                assert answer.final["status"] == "completed"
                assert "service_tier" not in answer.headers.get("x-responses-gateway-losses", "")
            assert asked == [True, False, False, False]
            assert bodies(app)[-1]["session_id"] == "s1"

    run(test())


def test_a_hint_may_be_refused_in_a_stream_and_is_not_sent_with_relayed_requests_either() -> None:
    app, asked = refusing_server(503, in_stream=True)

    async def test() -> None:
        async with hinted("sglang", app) as served:
            for _ in range(2):
                assert (await post(served, headers=CLAUDE)).final["status"] == "completed"
            assert asked == [True, True, False, False]  # how it refuses is known with the second one
            answer = await ask(served, "POST", "/v1/chat/completions", json=CHAT, headers={"x-session-id": "s1"})
            assert (answer.status, answer.json["object"]) == (200, "chat.completion")
            assert asked[4:] == [False]

    run(test())


def test_what_a_client_says_itself_stays() -> None:
    app = create_app()

    async def test() -> None:
        async with hinted("vllm", app, service_tier_priorities={"flex": 10}) as served:
            await post(served, service_tier="flex", headers={**CLAUDE, **KINDS["compaction"]})
            assert bodies(app)[-1]["priority"] == 10

    run(test())


@pytest.mark.parametrize(
    ("server", "header"), [("vllm", "X-Session-ID"), ("sglang", "X-SMG-Routing-Key"), ("dynamo", "X-Dynamo-Session-ID")]
)
def test_a_header_of_the_settings_is_the_only_one_of_its_name_however_it_is_written(server: str, header: str) -> None:
    """A proxy such as Envoy would join the two."""
    asked: list[list[str]] = []
    app = create_app()

    @web.middleware
    async def watching(request: web.Request, handler: Any) -> web.StreamResponse:
        if request.path.endswith("/chat/completions"):
            asked.append(request.headers.getall(header, []))
        response: web.StreamResponse = await handler(request)
        return response

    app.middlewares.append(watching)

    async def test() -> None:
        for name in (header, header.lower()):
            async with hinted(server, app, backend_headers={name: "own {model}"}) as served:
                await post(served, headers=CLAUDE)
        assert asked == [["own simulator"]] * 2

    run(test())


@pytest.mark.slow
def test_a_thread_stays_and_a_child_begins_where_its_parent_was() -> None:
    apps = [create_app(), create_app()]

    async def test() -> None:
        async with hinted(None, *apps) as served:
            for number in range(12):
                root = f"root-{number}"
                await post(served, headers={"x-session-id": root}, store=False)
                place = [len(app[RECEIVED]) for app in apps]
                child = {"x-session-id": f"child-{number}", "x-parent-session-id": root}
                for _ in range(2):
                    await post(served, headers={"x-session-id": root}, store=False)
                    await post(served, headers=child, store=False)
                later = [len(app[RECEIVED]) for app in apps]
                assert sorted(after - before for after, before in zip(later, place, strict=True)) == [0, 4]
                for app in apps:
                    app[RECEIVED].clear()

    run(test())


def test_relayed_requests_of_a_session_go_to_one_backend() -> None:
    apps = [create_app(), create_app()]
    opencode = json.loads((DATA / "sessions" / "opencode-child.json").read_text())

    async def test() -> None:
        async with hinted(None, *apps) as served:
            places = set()
            for number in range(12):
                for request in opencode:
                    headers = {name: value.replace("ses_", f"ses_{number}") for name, value in request["headers"].items()}
                    chat = {"model": "simulator", "messages": [{"role": "user", "content": "hi"}]}
                    assert (await ask(served, "POST", "/v1/chat/completions", json=chat, headers=headers)).status == 200
                asked = [len(app[RECEIVED]) for app in apps]
                assert sorted(asked) == [0, len(opencode)]
                places.add(asked.index(0))
                for app in apps:
                    app[RECEIVED].clear()
            assert places == {0, 1}

    run(test())


CHAT: dict[str, Any] = {"model": "simulator", "messages": [{"role": "user", "content": "hi"}]}


def test_a_relayed_child_of_a_child_goes_where_the_requests_of_its_root_go() -> None:
    """It names its parent alone, whose session the gateway has seen: relayed, too, or not."""
    apps = [create_app(), create_app()]

    async def test() -> None:
        async with hinted(None, *apps) as served:
            places = set()
            for number in range(16):
                named = [f"{name}-{number}" for name in ("root", "child", "grandchild", "fourth")]
                for depth, thread in enumerate(named):
                    headers = {"x-session-id": thread} | ({"x-parent-session-id": named[depth - 1]} if depth else {})
                    if depth == 1 and number % 2:
                        assert (await post(served, headers=headers, store=False)).status == 200
                    else:
                        answer = await ask(served, "POST", "/v1/chat/completions", json=CHAT, headers=headers)
                        assert answer.status == 200
                asked = [len(app[RECEIVED]) for app in apps]
                assert sorted(asked) == [0, len(named)]
                places.add(asked.index(0))
                for app in apps:
                    app[RECEIVED].clear()
            assert places == {0, 1}

    run(test())


@pytest.mark.parametrize("server", ["vllm", "sglang", "dynamo"])
def test_relayed_chat_requests_have_priorities_too(server: str) -> None:
    """OpenCode's title comes behind its other requests. What has a priority keeps it, and what names no session gets none."""
    app = create_app()
    captured = json.loads((DATA / "sessions" / "opencode-child.json").read_text())

    async def test() -> None:
        async with hinted(server, app) as served:

            async def sent(headers: dict[str, str], body: dict[str, Any], lead: bytes = b"") -> dict[str, Any]:
                data = lead + json.dumps(body).encode()
                headers = {**headers, "Content-Type": "application/json"}
                answer = await ask(served, "POST", "/v1/chat/completions", data=data, headers=headers)
                assert answer.status == 200, answer.body
                return bodies(app)[-1]

            found = []
            for request in captured:
                tools = [{"type": "function", "function": {"name": name}} for name in request["body"].get("tools", ())]
                body = {**request["body"], "model": "simulator"} | ({"tools": tools} if tools else {})
                got = await sent(request["headers"], body, b" \n")
                hints = got.pop("nvext")["agent_hints"] if server == "dynamo" else got
                found.append(hints.pop("priority") * (-1 if server == "vllm" else 1))
                assert got == body
            title, root, child, *_ = found
            assert root > child > title
            own = {"nvext": {"a": 1}} if server == "dynamo" else {"priority": 7}
            assert await sent(captured[0]["headers"], {**CHAT, **own}) == {**CHAT, **own}
            assert await sent({}, CHAT) == CHAT

    run(test())


def test_relayed_chat_requests_of_a_rollout_have_priorities_too() -> None:
    app = create_app()
    title = json.loads((DATA / "sessions" / "opencode-child.json").read_text())[0]

    async def test() -> None:
        async with hinted("vllm", app) as served:
            for path in ("/v1/chat/completions", f"/rollouts/{'e' * 100}/v1/chat/completions"):
                assert (await ask(served, "POST", path, json=CHAT, headers=title["headers"])).status == 200
            first, second = bodies(app)
            assert first == second
            assert first["priority"] > 0

    run(test())


@pytest.mark.parametrize("status", [400, 503])
def test_a_relayed_request_is_sent_as_it_came_where_its_priority_is_refused(status: int) -> None:
    app, asked = refusing_server(status)

    async def test() -> None:
        async with hinted("sglang", app) as served:
            for _ in range(3):
                answer = await ask(served, "POST", "/v1/chat/completions", json=CHAT, headers={"x-session-id": "s1"})
                assert (answer.status, answer.json["object"]) == (200, "chat.completion")
            assert asked == [True, False, False, False]

    run(test())


@pytest.mark.parametrize("in_stream", [False, True])
def test_a_relayed_stream_is_sent_as_it_came_where_its_priority_is_refused(in_stream: bool) -> None:
    """SGLang does so as the first event, with status 200: no client is to see that, and it is not sent there again."""
    app, asked = refusing_server(503, in_stream=in_stream)

    async def test() -> None:
        async with hinted("sglang", app) as served:
            for _ in range(3):
                body = {**CHAT, "stream": True}
                answer = await ask(served, "POST", "/v1/chat/completions", json=body, headers={"x-session-id": "s1"})
                assert answer.status == 200
                assert b"priority" not in answer.body
                assert answer.body.endswith(b"data: [DONE]\n\n")
            assert asked == [True, False, False, False]

    run(test())


def test_a_relayed_stream_whose_priority_is_taken_is_passed_on_as_it_comes() -> None:
    app = create_app(SimulatorOptions(first_token_seconds=0.1, tokens_per_second=100))

    async def test() -> None:
        async with hinted("vllm", app) as served, aiohttp.ClientSession() as session:
            body = {**CHAT, "stream": True}
            headers = {"x-session-id": "s1"}
            async with session.post(f"{served.url}/v1/chat/completions", json=body, headers=headers) as answer:
                pieces = [piece async for piece in answer.content.iter_any()]
            assert len(pieces) > 3
            assert b"".join(pieces).endswith(b"data: [DONE]\n\n")
            assert "priority" in bodies(app)[-1]

    run(test())


@pytest.mark.parametrize("status", [400, 404, 422, 500, 503])
def test_a_refusal_that_names_no_hint_is_the_server_s_which_is_asked_once_and_hints_are_sent_on(status: int) -> None:
    app = create_app()
    asked: list[bool] = []

    @web.middleware
    async def refusing(request: web.Request, handler: Any) -> web.StreamResponse:
        asked.append("priority" in await request.text())
        return web.json_response({"error": {"message": "Too long."}}, status=status)

    app.middlewares.append(refusing)

    async def test() -> None:
        async with hinted("vllm", app) as served:
            named = json.dumps(CHAT)
            for data in (named, named, "{", "[]", '{"model": "simulator"', '{"messages": []}', "{}", ""):
                asked.clear()
                headers = {"x-session-id": "s1", "Content-Type": "application/json"}
                answer = await ask(served, "POST", "/v1/chat/completions", data=data, headers=headers)
                assert answer.status == status, answer.body
                assert asked == [data == named]

    run(test())


def test_tenants_have_ids_of_their_own() -> None:
    app = create_app()

    async def test() -> None:
        async with hinted("sglang", app, forward_authorization=True) as served:
            for key in ("one", "two"):
                await post(served, headers={"x-session-id": "s1", "Authorization": f"Bearer {key}"})
            ids = [body["session_id"] for body in bodies(app)]
            assert len({*ids, "s1"}) == 3

    run(test())
