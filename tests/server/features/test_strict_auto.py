"""`strict_calls: auto`: what a server does with strict tools is found out behind a user's request, and told by doctor."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any, get_args

import pytest
from aiohttp import web

from responses_gateway.probing import tool_enforcement
from responses_gateway.probing.diagnosis import rows
from responses_gateway.probing.prober import probe
from responses_gateway.probing.profile import Profile
from responses_gateway.settings.keys import hash_of
from responses_gateway.simulator import RECEIVED, serving
from responses_gateway.simulator.strict_tools import StrictTools
from tests.probing.simulated_backend import SimulatedBackend, adapted, examined
from tests.server.running_gateway import Served, ask, gateway, post, run
from tests.waiting import until

Json = dict[str, Any]
CITY: Json = {
    "type": "object",
    "properties": {"city": {"type": "string", "enum": ["Rome"]}},
    "required": ["city"],
    "additionalProperties": False,
}
TOOL: Json = {"type": "function", "name": "get_weather", "parameters": CITY}
WRONG = 'What is the weather? Use the tool with the arguments {"city": "Paris"}'
# What each server is found to do.
SERVERS = {"enforces": "enforced", "renders": "rendered", "ignores": "ignored"}


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool_enforcement, "PAUSE", 0.0)


def known(served: Served) -> list[Any]:
    models = served.parts.live.current.parsers.known_models
    return [value for model in models.values() for value in model.enforcement.values()]


async def learned(served: Served, **fields: Any) -> None:
    """Have a request answered, and wait until its server was asked what it does with strict tools."""
    await post(served, input=WRONG, tools=[TOOL], **fields)
    await until(lambda: bool(known(served)), "the server was asked")


def strict_in(chat: Json) -> list[bool]:
    return [tool["function"].get("strict", False) for tool in chat.get("tools", ())]


def of_users(backend: SimulatedBackend) -> list[Json]:
    """Return the requests of the tests, not those of the gateway."""
    return [chat for chat in backend.chats if chat["messages"][-1]["content"] == WRONG]


def questions(backend: SimulatedBackend) -> list[Json]:
    """Return the requests by which the gateway finds out about strict tools."""
    return [chat for chat in backend.chats if "exactly as they stand here" in str(chat["messages"])]


async def called_with(served: Served, **fields: Any) -> str:
    answer = await post(served, input=WRONG, tools=[TOOL], **fields)
    return str(next(item["arguments"] for item in answer.final["output"] if item["type"] == "function_call"))


def test_the_servers_of_the_simulator_are_all_tried() -> None:
    assert set(SERVERS) == set(get_args(StrictTools))


@pytest.mark.parametrize(("server", "found"), SERVERS.items())
def test_only_a_server_that_enforces_without_another_prompt_gets_strict_tools(server: StrictTools, found: str) -> None:
    async def test() -> None:
        backend = SimulatedBackend(strict_tools=server)
        async with adapted(backend) as served:
            await learned(served)
            assert known(served) == [found]
            enforced = found == "enforced"
            assert await called_with(served) == ('{"city": "Rome"}' if enforced else '{"city": "Paris"}')
            assert [strict_in(chat) for chat in of_users(backend)] == [[False], [enforced]]

    run(test())


def test_a_server_is_asked_once_in_two_short_requests() -> None:
    async def test() -> None:
        backend = SimulatedBackend(strict_tools="enforces")
        async with adapted(backend) as served:
            await learned(served)
            await learned(served)
            asked = [(strict_in(chat), chat["max_completion_tokens"]) for chat in questions(backend)]
            assert asked == [([True], 512), ([False], 512)]

    run(test())


@pytest.mark.parametrize("settings", [{"strict_calls": "off"}, {"adapt": False}])
def test_no_server_is_asked_where_nobody_wants_to_know(settings: Json) -> None:
    async def test() -> None:
        backend = SimulatedBackend(strict_tools="enforces")
        async with serving(backend.app) as url, gateway(url, **settings) as served:
            served.parts.autoconfiguration.begin()
            await post(served, input=WRONG, tools=[TOOL])
            await post(served, input=WRONG, tools=[TOOL])
            assert questions(backend) == []

    run(test())


@pytest.mark.parametrize("dialect", ["llamacpp", "ollama"])
def test_a_server_whose_answer_is_known_keeps_its_cache(dialect: str) -> None:
    async def test() -> None:
        backend = SimulatedBackend(dialect, strict_tools="enforces")
        listed = asyncio.Event()

        @web.middleware
        async def watching(request: web.Request, handler: Any) -> web.StreamResponse:
            if request.path == "/v1/models":
                listed.set()
            answer: web.StreamResponse = await handler(request)
            return answer

        backend.app.middlewares.append(watching)
        async with adapted(backend) as served:
            listed.clear()
            await post(served, input=WRONG, tools=[TOOL])
            await listed.wait()
            await post(served, input=WRONG, tools=[TOOL])
            assert questions(backend) == []

    run(test())


def test_requests_without_tools_ask_nothing() -> None:
    async def test() -> None:
        backend = SimulatedBackend(strict_tools="enforces")
        async with adapted(backend) as served:
            await post(served, input="hi")
            await post(served, input="hi")
            assert questions(backend) == []

    run(test())


def test_what_the_client_says_about_strict_stays() -> None:
    async def test() -> None:
        backend = SimulatedBackend(strict_tools="enforces")
        async with adapted(backend) as served:
            await learned(served)
            other = {**TOOL, "name": "other", "strict": True}
            await post(served, input=WRONG, tools=[TOOL, other])
            assert strict_in(backend.chats[-1]) == [False, True]

    run(test())


def test_each_backend_gets_what_it_can_do() -> None:
    async def test() -> None:
        backends = {"a": SimulatedBackend(strict_tools="enforces"), "b": SimulatedBackend(strict_tools="ignores")}
        async with AsyncExitStack() as stack:
            urls = [await stack.enter_async_context(serving(backend.app)) for backend in backends.values()]
            served = await stack.enter_async_context(gateway(*urls))
            await examined(served)
            for number in range(40):
                await post(served, input=WRONG, tools=[TOOL], prompt_cache_key=f"{number}")
                if len(known(served)) == 2:
                    break
            await until(lambda: sorted(known(served)) == ["enforced", "ignored"], "both were asked")
            for backend in backends.values():
                backend.app[RECEIVED].clear()
            for number in range(16):  # threads, which are spread over both
                await post(served, input=WRONG, tools=[TOOL], prompt_cache_key=f"{number}")
            sent = [{tuple(strict_in(chat)) for chat in backend.chats} for backend in backends.values()]
            assert sent == [{(True,)}, {(False,)}]

    run(test())


def test_a_server_that_refuses_strict_is_known_for_it() -> None:
    def refuse(body: Json) -> web.Response | None:
        if not any(strict_in(body)):
            return None
        return web.json_response({"error": {"message": "strict is not supported"}}, status=400)

    async def test() -> None:
        backend = SimulatedBackend(change=refuse)
        async with adapted(backend) as served:
            await learned(served)
            assert known(served) == ["refused"]
            assert await called_with(served) == '{"city": "Paris"}'

    run(test())


async def examined_with(change: Callable[[Json], web.Response | None], **options: Any) -> Profile:
    async with serving(SimulatedBackend(change=change, **options).app) as url:
        return await probe(f"{url}/v1")


def test_a_server_that_enforces_in_any_case_needs_no_strict_tools() -> None:
    def enforce(body: Json) -> None:
        for tool in body.get("tools", ()):
            tool["function"].setdefault("strict", True)

    async def test() -> None:
        assert (await examined_with(enforce)).enforcement == "kept"

    run(test())


def test_nothing_is_said_of_a_server_whose_calls_nobody_parses() -> None:
    async def test() -> None:
        async with serving(SimulatedBackend("vllm-raw", strict_tools="enforces").app) as url:
            assert (await probe(f"{url}/v1")).enforcement is None

    run(test())


def test_a_refusal_for_another_reason_is_none_of_strict_tools() -> None:
    def refuse(body: Json) -> web.Response | None:
        if "exactly as they stand here" not in str(body["messages"]):
            return None
        return web.json_response({"error": {"message": "not now"}}, status=400)

    async def test() -> None:
        assert (await examined_with(refuse)).enforcement is None

    run(test())


@pytest.mark.parametrize("server", SERVERS)
def test_doctor_tells_what_the_server_does_and_why_auto_is_off(server: StrictTools) -> None:
    words = {
        "enforces": "enforced if `strict`, which strict_calls: auto sends",
        "renders": "enforced if `strict`; strict_calls: auto does not send it, because it changes the prompt; "
        "the server's --tool-strict-level parameter enforces them without it",
        "ignores": "not enforced, so strict_calls: auto does not send `strict`",
    }

    async def test() -> None:
        async with serving(SimulatedBackend(strict_tools=server).app) as url:
            profile = await probe(f"{url}/v1")
            assert words[server] in [row.value for row in rows(profile) if row.ability == "schemas of tools"]

    run(test())


def test_the_first_token_of_new_strict_tools_is_measured_apart() -> None:
    async def test() -> None:
        backend = SimulatedBackend(strict_tools="enforces")
        async with serving(backend.app) as url, gateway(url, strict_calls="on") as served:
            for _ in range(3):
                await post(served, input=WRONG, tools=[TOOL])
            await post(served, input=WRONG, tools=[{**TOOL, "description": "Another one."}])
            counts = {
                tools: served.metric("strict_first_token_seconds_count", model="simulator", tools=tools)
                for tools in ("new", "known")
            }
            assert counts == {"new": 2, "known": 2}

    run(test())


def test_a_refused_tool_is_remembered_of_that_backend_and_that_key_alone() -> None:
    def refuse(body: Json) -> web.Response | None:
        if not any(strict_in(body)):
            return None
        return web.json_response({"error": {"message": "grammar error"}}, status=400)

    async def test() -> None:
        refusing, willing = SimulatedBackend(change=refuse), SimulatedBackend()
        keys = {name: {"hash": hash_of(f"rp_{name}-0123456789")} for name in ("alice", "bob")}
        async with (
            serving(refusing.app) as one,
            serving(willing.app) as other,
            gateway(one, other, strict_calls="on", api_keys=keys) as served,
        ):
            for name, refused in (("alice", 1), ("bob", 2)):
                for number in range(16):  # threads, which are spread over both
                    fields = {"headers": {"Authorization": f"Bearer rp_{name}-0123456789"}, "prompt_cache_key": f"{number}"}
                    assert await called_with(served, **fields)
                assert len(refusing.refused) == refused
            assert refusing.chats
            assert not any(any(strict_in(chat)) for chat in refusing.chats)
            assert willing.chats
            assert all(all(strict_in(chat)) for chat in willing.chats)

    run(test())


def test_messages_get_strict_tools_as_well() -> None:
    async def test() -> None:
        backend = SimulatedBackend(strict_tools="enforces")
        body = {
            "model": "simulator",
            "max_tokens": 999,
            "messages": [{"role": "user", "content": WRONG}],
            "tools": [{"name": "get_weather", "input_schema": CITY}],
        }
        async with adapted(backend) as served:
            await learned(served)
            message = (await ask(served, "POST", "/v1/messages", json=body)).json
            assert [block["input"] for block in message["content"] if block["type"] == "tool_use"] == [{"city": "Rome"}]

    run(test())


def test_a_model_with_another_name_at_its_backend_is_the_same() -> None:
    async def test() -> None:
        backend = SimulatedBackend(strict_tools="enforces")
        async with (
            serving(backend.app) as url,
            gateway(backends={"gpu": {"url": url, "aliases": {"mine": "simulator"}}}) as served,
        ):
            await examined(served)
            await learned(served, model="mine")
            assert await called_with(served, model="mine") == '{"city": "Rome"}'
            assert {chat["model"] for chat in backend.chats} == {"simulator"}

    run(test())
