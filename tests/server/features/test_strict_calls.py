"""Tools that the server is to enforce: what is sent, and what becomes of a refusal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from responses_gateway.server.generation.replay import replay
from tests.server.features.agent_cases import calling, pieces
from tests.server.hosted.model import model
from tests.server.running_gateway import post, run

Json = dict[str, Any]
ANSWER = pieces(calling("tag", '{"tag": "v1"}'), finish="tool_calls")
TAG: Json = {
    "type": "object",
    "properties": {"tag": {"type": "string", "pattern": "^v[0-9]+$", "maxLength": 8}},
    "required": ["tag"],
    "additionalProperties": False,
}
TOOL = {"type": "function", "name": "tag", "parameters": TAG}


def functions_of(request: Json) -> list[Json]:
    return [tool["function"] for tool in request["tools"]]


def test_tools_are_strict_without_what_servers_cannot_compile() -> None:
    async def test() -> None:
        async with model(ANSWER, strict_calls="on") as (served, talking):
            await post(served, tools=[TOOL])
            (function,) = functions_of(talking.requests[0])
            assert function["strict"] is True
            assert function["parameters"] == {**TAG, "properties": {"tag": {"type": "string"}}}

    run(test())


@pytest.mark.parametrize("setting", ["auto", "off"])
def test_otherwise_tools_go_as_they_came(setting: str) -> None:
    async def test() -> None:
        async with model(ANSWER, strict_calls=setting) as (served, talking):
            await post(served, tools=[TOOL])
            (function,) = functions_of(talking.requests[0])
            assert (function["parameters"], "strict" in function) == (TAG, False)

    run(test())


@pytest.mark.parametrize(("settings", "choice"), [({}, "none"), ({"tool_call_parser": "hermes"}, "auto")])
def test_nothing_is_strict_where_the_server_reads_no_calls(settings: Json, choice: str) -> None:
    async def test() -> None:
        async with model(ANSWER, strict_calls="on", **settings) as (served, talking):
            await post(served, tools=[TOOL], tool_choice=choice)
            assert ["strict" in function for function in functions_of(talking.requests[0])] == [False]

    run(test())


@pytest.mark.parametrize("named", [True, False])
def test_a_refused_tool_goes_without_at_once_and_from_then_on(named: bool) -> None:
    words = "Invalid schema for function 'tag': it is complex" if named else "grammar error"
    first = {"type": "function", "name": "first", "parameters": {"type": "object", "properties": {"a": {"type": "string"}}}}

    def refuse(_: Json) -> list[bytes]:
        text = json.dumps({"error": {"message": words, "type": "invalid_request_error"}})
        raise web.HTTPBadRequest(text=text, content_type="application/json")

    async def test() -> None:
        async with model(refuse, ANSWER, ANSWER, strict_calls="on") as (served, talking):
            answer = await post(served, tools=[first, TOOL])
            assert answer.status == 200
            await post(served, tools=[first, TOOL])
            sent = [[function["name"] for function in functions_of(one) if "strict" in function] for one in talking.requests]
            assert sent == [["first", "tag"], [], ["first"] if named else []]
            assert functions_of(talking.requests[1])[1]["parameters"] == TAG

    run(test())


def test_a_refusal_for_another_reason_is_the_answer_and_not_remembered() -> None:
    async def test() -> None:
        async with model(400, 400, ANSWER, strict_calls="on") as (served, talking):
            assert (await post(served, tools=[TOOL], stream=False)).status == 400
            await post(served, tools=[TOOL])
            assert ["strict" in functions_of(one)[0] for one in talking.requests] == [True, False, True]

    run(test())


def test_calls_are_checked_against_what_the_client_declared() -> None:
    async def test() -> None:
        written = json.dumps({"tag": "v12345678901"})
        async with model(pieces(calling("tag", written), finish="tool_calls"), strict_calls="on") as (served, _):
            await post(served, tools=[TOOL])
            assert served.metric("calls_total", model="simulator", validity="schema") == 1

    run(test())


def test_a_recorded_request_is_repeated(tmp_path: Path) -> None:
    async def test() -> None:
        async with model(ANSWER, strict_calls="on", record=str(tmp_path)) as (served, _):
            await post(served, tools=[TOOL])

    run(test())
    (path,) = tmp_path.glob("exchange-*.jsonl")
    assert replay(path).differences == []
