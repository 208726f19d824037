"""MCP servers that requests name, through the front door: which are allowed, whose connections they are, and hostile ones."""

from __future__ import annotations

import socket
from functools import partial
from typing import Any

import pytest
from aiohttp import web

from responses_gateway.hosted.mcp.servers import McpLimits
from responses_gateway.settings.keys import hash_of
from tests.hosted.mcp_peers import Peer, never, peer, tool
from tests.server.hosted.model import calls, model, says
from tests.server.running_gateway import assert_error, post, run

KEYS = {"alice": "alice-0123456789abcdef", "bob": "bob-0123456789abcdef"}


def named(served: Peer, **members: Any) -> dict[str, Any]:
    return {"type": "mcp", "server_label": "theirs", "server_url": served.url, "require_approval": "never", **members}


def host(served: Peer) -> list[str]:
    return [served.url.removeprefix("http://").removesuffix("/mcp")]


def test_a_server_that_the_request_names_is_used() -> None:
    async def test() -> None:
        async with peer() as served:
            turns = calls(("theirs__echo", {"a": 1})), says("Done.")
            async with model(*turns, mcp_allowed_hosts=host(served)) as (proxy, _):
                given = named(served, authorization="their-token", headers={"X-Team": "blue"})
                answer = (await post(proxy, tools=[given])).final
                assert answer["output"][1]["output"] == '{"a": 1}'
                assert served.headers[-1]["Authorization"] == "Bearer their-token"
                assert served.headers[-1]["X-Team"] == "blue"
                assert "their-token" not in str(answer)

    run(test())


def test_a_name_that_is_listed_with_its_port_may_have_a_private_address(monkeypatch: pytest.MonkeyPatch) -> None:
    look_up = socket.getaddrinfo

    def resolve(name: Any, *more: Any, **options: Any) -> Any:
        return look_up("127.0.0.1" if name in ("mcp.corp.example", b"mcp.corp.example") else name, *more, **options)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)

    async def test() -> None:
        async with peer() as served:
            place = host(served)[0].replace("127.0.0.1", "mcp.corp.example")
            tools = [named(served, server_url=f"http://{place}/mcp")]
            async with model(calls(("theirs__echo", {"a": 1})), says("Done."), mcp_allowed_hosts=[place]) as (proxy, _):
                answer = (await post(proxy, tools=tools)).final
                assert answer["output"][1]["output"] == '{"a": 1}'
            async with model(says("Hi."), mcp_allowed_hosts=[place.replace("mcp.", "*.")]) as (proxy, _):
                (listed, *_) = (await post(proxy, tools=tools)).final["output"]
                assert "no public address" in str(listed["error"])

    run(test())


def test_a_server_that_is_not_listed_is_refused() -> None:
    async def test() -> None:
        async with peer() as served:
            async with model(says("Hi."), mcp_allowed_hosts=["mcp.example.com"]) as (proxy, talking):
                message = assert_error(await post(proxy, tools=[named(served)]), 400, "unsupported_value")
                assert "tools[0].server_url" in message
                assert "mcp_allowed_hosts" in message
                assert talking.requests == []
            assert served.requests == []

    run(test())


def test_two_keys_share_no_connection() -> None:
    async def test() -> None:
        async with peer() as served:
            settings: dict[str, Any] = {"api_keys": {name: {"hash": hash_of(key)} for name, key in KEYS.items()}}
            async with model(says("Hi."), mcp_allowed_hosts=host(served), **settings) as (proxy, _):
                for key in (*KEYS.values(), *KEYS.values()):
                    await post(proxy, tools=[named(served)], headers={"Authorization": f"Bearer {key}"})
                assert (served.count("initialize"), served.count("tools/list")) == (2, 2)

    run(test())


def test_a_server_that_hangs_does_not_hold_the_response(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("responses_gateway.server.features.hosted_tools.mcp.McpLimits", partial(McpLimits, connect_timeout=0.5))

    async def test() -> None:
        async with peer() as served:
            served.answers["initialize"] = never
            async with model(says("No tools today."), mcp_allowed_hosts=host(served)) as (proxy, _):
                listed, message = (await post(proxy, tools=[named(served)])).final["output"]
                assert listed["error"] == "The MCP server 'theirs' did not answer within 0.5 seconds."
                assert message["content"][0]["text"] == "No tools today."

    run(test())


def test_a_tool_that_hangs_is_an_error_of_the_protocol() -> None:
    async def test() -> None:
        async with peer() as served:
            served.answers["tools/call"] = never
            settings: dict[str, Any] = {"hosted_call_timeout": 0.5, "mcp_allowed_hosts": host(served)}
            async with model(calls(("theirs__echo", {})), says("Late."), **settings) as (proxy, _):
                made = (await post(proxy, tools=[named(served)])).final["output"][1]
                assert (made["status"], made["error"]["type"], made["error"]["code"]) == (
                    "failed",
                    "mcp_protocol_error",
                    -32001,
                )

    run(test())


def test_names_that_models_cannot_write_are_offered_under_others() -> None:
    async def test() -> None:
        async with peer() as served:
            served.tools = [tool("get weather/now"), tool("get weather.now"), tool("x" * 128)]
            async with model(says("Hi."), mcp_allowed_hosts=host(served)) as (proxy, talking):
                await post(proxy, tools=[named(served)])
                offered = [found["function"]["name"] for found in talking.requests[0]["tools"]]
                assert len(set(offered)) == 3
                assert all(len(name) <= 64 and name.replace("_", "").replace("-", "").isalnum() for name in offered)

    run(test())


@pytest.mark.parametrize(
    "name", ["theirs__echo", "functions.theirs__echo", "function.theirs__echo", "theirs.echo", "THEIRS__ECHO", "Theirs/echo"]
)
@pytest.mark.parametrize("down", [True, False])
def test_a_call_is_one_of_its_server_however_its_name_is_written_and_though_it_lists_nothing(
    name: str, down: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("responses_gateway.server.features.hosted_tools.mcp.McpLimits", partial(McpLimits, list_age=0))

    async def test() -> None:
        async with peer() as served:
            turns = calls(("theirs__echo", {"a": 1})), says("Done."), calls((name, {"a": 2})), says("Done.")
            settings: dict[str, Any] = {"mcp_allowed_hosts": host(served), "store": "memory"}
            async with model(*turns, **settings) as (proxy, talking):
                first = (await post(proxy, tools=[named(served)])).final
                if down:
                    served.instead = gone
                more = {"tools": [named(served)], "previous_response_id": first["id"]}
                second = (await post(proxy, input="Again", **more)).final
                made, message = second["output"]
                assert (made["type"], made["server_label"], message["type"]) == ("mcp_call", "theirs", "message")
                if down:
                    assert (made["status"], made["output"], made["name"].lower()) == ("failed", None, "echo")
                    assert made["error"]["type"] == "http_error"
                    assert "503" in talking.requests[-1]["messages"][-1]["content"]
                else:
                    assert (made["status"], made["output"], made["name"]) == ("completed", '{"a": 2}', "echo")
                said = talking.requests[-1]["messages"][-2]["tool_calls"][0]["function"]["name"]
                assert said.lower() == "theirs__echo"

    run(test())


def test_a_function_of_the_client_is_not_taken_for_a_tool_of_a_server() -> None:
    async def test() -> None:
        async with peer() as served:
            own = {"type": "function", "name": "ECHO", "parameters": {"type": "object", "properties": {}}}
            async with model(calls(("Echo", {})), mcp_allowed_hosts=host(served)) as (proxy, _):
                answer = (await post(proxy, tools=[named(served), own])).final
                assert [item["type"] for item in answer["output"]] == ["mcp_list_tools", "function_call"]

    run(test())


def test_a_tool_whose_name_no_function_may_have_still_needs_its_approval() -> None:
    async def test() -> None:
        async with peer() as served:
            served.tools = [tool("bank.pay")]
            asking = named(served, require_approval="always")
            async with model(calls(("theirs__bank.pay", {"a": 1})), mcp_allowed_hosts=host(served)) as (proxy, _):
                answer = (await post(proxy, tools=[asking])).final
                assert [item["type"] for item in answer["output"]] == ["mcp_list_tools", "mcp_approval_request"]
                assert served.count("tools/call") == 0

    run(test())


async def gone(_request: web.Request) -> web.StreamResponse:
    return web.Response(status=503)
