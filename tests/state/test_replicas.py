"""Two gateways that share only a PostgreSQL server, as if on two machines."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from responses_gateway.simulator import COUNTERS, create_app, serving
from tests.judges import judge_stream
from tests.server.process.test_shutdown import program
from tests.server.running_gateway import Served, ask, gateway, post, run, until
from tests.state.database_servers import PostgresServer
from tests.state.test_live_log import written

ENDLESS = "scenario: long tokens: 5000 tps: 100"


async def get(served: Served, name: str, query: str = "") -> Any:
    return await ask(served, "GET", f"/v1/responses/{name}{query}")


async def start(served: Served, text: str) -> str:
    answer = await post(served, input=text, background=True, stream=False)
    assert answer.status == 200, answer.body
    return str(answer.json["id"])


@pytest.fixture(params=["direct", "pooled"])
def each_url(request: pytest.FixtureRequest, postgres_server: PostgresServer) -> Iterator[str]:
    """Provide an empty database, directly, and through a pooler whose connections change between transactions."""
    if request.param == "direct":
        yield postgres_server.fresh_database()
    else:
        with postgres_server.pooled(2) as url:
            yield url


@pytest.mark.slow
def test_started_here_continued_followed_and_cancelled_there(each_url: str) -> None:
    async def test() -> None:
        backend = create_app()
        async with (
            serving(backend) as url,
            gateway(url, store=each_url) as one,
            gateway(url, store=each_url) as two,
        ):
            first = (await post(one)).final
            assert (await get(two, first["id"])).json == first
            branches = [
                post(served, previous_response_id=first["id"], input=f"scenario: plain {number}")
                for number in range(10)
                for served in (one, two)
            ]
            for branch in await asyncio.gather(*branches):
                assert branch.final["status"] == "completed"
                assert (await get(two, branch.final["id"])).json == branch.final
            name = await start(one, "tokens: 200 tps: 400")
            followed = await get(two, name, "?stream=true")
            assert followed.final == (await get(one, name)).json
            name = await start(one, ENDLESS)
            cancelled = await ask(two, "POST", f"/v1/responses/{name}/cancel")
            assert cancelled.json["status"] == "cancelled"
            await until(lambda: not backend[COUNTERS].running, "the backend is free")
            assert (await ask(two, "DELETE", f"/v1/responses/{first['id']}")).status == 200
            assert (await get(one, first["id"])).status == 404
            await one.parts.pool.close()  # its idle connections would count as tasks that the other one left

    run(test())


@pytest.mark.slow
@pytest.mark.parametrize("events", ["store", "redis"])
def test_what_a_killed_gateway_ran_is_reported_as_failed(
    postgres_url: str, events: str, request: pytest.FixtureRequest
) -> None:
    log = request.getfixturevalue("redis_server").url if events == "redis" else events

    async def test() -> None:
        async with (
            serving(create_app()) as url,
            gateway(url, store=postgres_url, events=log) as served,
            program(url, "--store", postgres_url, "--events", log) as dying,
        ):
            name = await start(Served(f"http://127.0.0.1:{dying.port}", served.parts), ENDLESS)
            await written(served, name, 21)
            dying.process.kill()
            await dying.process.wait()
            store = served.parts.store
            assert store is not None
            late = "UPDATE responses SET alive_until = alive_until - 30"  # half a minute later
            await store.database.run(lambda sql: sql.execute(late).rowcount)
            response = (await get(served, name)).json
            assert (response["status"], response["error"]["code"]) == ("failed", "server_error")
            stream = await get(served, name, "?stream=true")
            assert [event["sequence_number"] for event in stream.events] == list(range(len(stream.events)))
            assert len(stream.events) > 20
            assert stream.events[-1]["response"] == response
            assert response["output"][-1]["status"] == "incomplete"
            assert judge_stream(stream.body) == []

    run(test())


@pytest.mark.slow
def test_many_agents_of_one_rollout_lose_no_call_and_its_pages_have_each_once(postgres_url: str) -> None:
    """All write the same tree, at two gateways, while a trainer reads it: each conflict has transactions repeated."""
    agents = range(16)
    total = 5 * len(agents)

    async def work(served: Served, agent: int) -> None:
        headers = {"X-Rollout-Id": "ep1", "x-session-id": f"s{agent}"}
        for number in range(5):
            answer = await post(served, input=f"scenario: plain {number} tps: 5000", stream=False, headers=headers)
            assert answer.status == 200, answer.body

    async def test() -> None:
        async with (
            serving(create_app()) as url,
            gateway(url, store=postgres_url) as one,
            gateway(url, store=postgres_url) as two,
        ):
            working = asyncio.gather(*(work((one, two)[agent % 2], agent) for agent in agents))
            found: list[str] = []
            new = [""]
            while new or not working.done():
                after = f"&after={found[-1]}" if found else ""
                page = await ask(one, "GET", f"/rollouts/ep1?limit=7{after}")
                assert page.status == (200 if found else page.status)
                new = [call["id"] for call in page.json.get("calls", ())]
                found += new
            await working
            whole = await ask(two, "GET", "/rollouts/ep1?limit=1000")
            assert found == [call["id"] for call in whole.json["calls"]]
            assert len(set(found)) == total
            await one.parts.pool.close()  # its idle connections would count as tasks that the other one left

    run(test())
