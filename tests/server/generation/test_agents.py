"""For which agent a request is made, as the log and the features see it: through the front door."""

from __future__ import annotations

import json
from typing import Any

import aiohttp
import pytest

from responses_gateway.server.generation.request_log.facts import RequestFacts
from responses_gateway.server.generation.request_log.log_line import log_line
from tests.data_folder import DATA
from tests.server.resources.test_websocket_resource import Socket
from tests.server.running_gateway import Served, ask, post, run, simulated

Line = dict[str, Any]
AGENT = ("session", "thread", "kind")


def facts_of(served: Served) -> list[RequestFacts]:
    served.parts.metrics.flush()
    history = served.parts.responses.reports.history
    assert history is not None
    return history.since(0)


def lines_of(served: Served) -> list[tuple[str | None, ...]]:
    """Return session, thread and kind of each request that has ended."""
    lines = map(log_line, facts_of(served))
    return [tuple(line.get(name) for name in AGENT) for line in lines]


@pytest.mark.parametrize("name", ["codex-nested", "claude-nested-hints", "codex-v2-child"])
def test_the_log_names_the_agent_of_each_request(name: str) -> None:
    requests = json.loads((DATA / "sessions" / f"{name}.json").read_text())

    async def test() -> None:
        async with simulated() as served:
            for request in requests:
                body = request["body"]
                if request["door"] == "messages":
                    asked = {"model": "simulator", "max_tokens": 50, "messages": [{"role": "user", "content": "hi"}]}
                    answer = await ask(
                        served, "POST", "/v1/messages", json={**asked, "metadata": body["metadata"]}, headers=request["headers"]
                    )
                else:
                    answer = await post(served, client_metadata=body["client_metadata"], headers=request["headers"])
                assert answer.status == 200, answer.body
            expected = [request["expect"] for request in requests]
            kinds = ["subagent" if "parent" in each else "main" for each in expected]
            assert lines_of(served) == [(e["session"], e["thread"], k) for e, k in zip(expected, kinds, strict=True)]

    run(test())


def test_a_plain_request_has_no_agent() -> None:
    async def test() -> None:
        async with simulated() as served:
            await post(served)
            assert lines_of(served) == [(None, None, None)]

    run(test())


def test_a_chain_of_stored_responses_is_named_by_its_first_one() -> None:
    async def test() -> None:
        async with simulated(store="memory") as served:
            first = (await post(served, store=True)).final["id"]
            assert lines_of(served) == [(None, None, None)]  # nothing continues it yet
            second = (await post(served, previous_response_id=first, store=True)).final["id"]
            await post(served, previous_response_id=second, store=True)
            named = (await post(served, store=True, headers={"x-session-id": "s"})).final["id"]
            await post(served, previous_response_id=named, store=True)
            chain = (first, first, None)
            assert lines_of(served) == [chain, chain, chain, ("s", "s", None), ("s", "s", None)]

    run(test())


def test_a_chain_over_a_websocket_is_named_by_its_first_response() -> None:
    async def test() -> None:
        async with (
            simulated() as served,
            aiohttp.ClientSession() as client,
            client.ws_connect(served.url + "/v1/responses") as websocket,
        ):
            socket = Socket(websocket)
            first = (await socket.ask())["id"]
            assert lines_of(served) == [(None, None, None)]
            second = (await socket.ask(previous_response_id=first))["id"]
            await socket.ask(previous_response_id=second)
            assert lines_of(served) == [(first, first, None)] * 3

    run(test())


def test_the_messages_of_codex_count_before_its_handshake() -> None:
    requests = json.loads((DATA / "sessions" / "codex-websocket-children.json").read_text())
    first = [request for request in requests if request["connection"] == 1]

    async def test() -> None:
        async with (
            simulated() as served,
            aiohttp.ClientSession() as client,
            client.ws_connect(served.url + "/v1/responses", headers=first[0]["headers"]) as websocket,
        ):
            socket = Socket(websocket)
            for request in first:
                body = request["body"]
                warms = {} if "generate" not in body else {"generate": body["generate"]}
                await socket.ask(client_metadata=body["client_metadata"], **warms)
            session = first[0]["expect"]["session"]
            assert lines_of(served) == [(session, session, "prewarm"), (session, session, "main"), (session, session, "main")]

    run(test())


def test_a_summary_of_the_context_is_a_compaction_of_its_session() -> None:
    async def test() -> None:
        async with simulated() as served:
            compacted = await ask(
                served,
                "POST",
                "/v1/responses/compact",
                json={"model": "simulator", "input": "hi"},
                headers={"x-session-id": "s"},
            )
            assert compacted.status == 200
            assert lines_of(served) == [("s", "s", "compaction")]

    run(test())
