"""With default settings, answers are continued where all backends of a model say that they serve the same, and nowhere else."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from responses_gateway.backend.served_models import BackendSpec, Route
from responses_gateway.simulator import create_app, serving
from responses_gateway.simulator.state import FAULT_COUNTS
from tests.log_lines import log_lines
from tests.server.running_gateway import Answer, Served, gateway, post, run
from tests.waiting import until

ENTRY: dict[str, Any] = {
    "id": "simulator",
    "object": "model",
    "owned_by": "vllm",
    "root": "org/checkpoint",
    "parent": None,
    "max_model_len": 131072,
}
FAULT = "scenario: demo fault: drop=text,times=1"
ON = "answers are continued by other backends"
OFF = "answers are not continued by other backends"


class Servers:
    """Simulators whose lists of models can be set. A fault happens in one of them, once."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self.listed: list[list[dict[str, Any]]] = []
        self.urls: list[str] = []
        self._counts: Any = None
        self._stack = stack
        self._answers = 0

    async def add(self, **differing: Any) -> str:
        """Start one more; return its URL."""
        number = len(self.listed)
        self.listed.append([{**ENTRY, **differing}])

        @web.middleware
        async def listing(request: web.Request, handler: Any) -> web.StreamResponse:
            if request.path != "/v1/models":
                return await handler(request)  # type: ignore[no-any-return]
            self._answers += 1  # each list has other times and ids, as vLLM's
            passing = {"created": self._answers, "permission": [{"id": f"modelperm-{self._answers}"}]}
            return web.json_response({"object": "list", "data": [{**entry, **passing} for entry in self.listed[number]]})

        app = create_app()
        app.middlewares.append(listing)
        self._counts = self._counts or app[FAULT_COUNTS]
        app[FAULT_COUNTS] = self._counts
        self.urls.append(await self._stack.enter_async_context(serving(app)))
        return self.urls[-1]


@asynccontextmanager
async def served_by(*differing: Mapping[str, Any], **settings: Any) -> AsyncIterator[tuple[Served, Servers]]:
    """Serve the gateway in front of servers whose entries differ from `ENTRY` so."""
    async with AsyncExitStack() as stack:
        servers = Servers(stack)
        for fields in differing:
            await servers.add(**fields)
        wanted = {"adapt": False, "health_interval": 0.05, **settings}
        yield await stack.enter_async_context(gateway(*servers.urls, **wanted)), servers


async def broken_off(served: Served) -> Answer:
    """Have an answer break off in the middle of its text."""
    return await post(served, input=FAULT)


def test_nobody_sees_that_one_of_two_alike_servers_is_killed() -> None:
    async def test() -> None:
        async with served_by({}, {}) as (served, _):
            answer = await broken_off(served)
            assert answer.final["status"] == "completed"
            assert served.metric("continuations_total", outcome="continued", reason="broke") == 1
            assert [(line["model"], line["level"]) for line in lines(ON)] == [("simulator", "info")]

    with log_lines() as lines:
        run(test())
        assert len(lines(ON)) == 1
        assert lines(OFF) == []


@pytest.mark.parametrize(
    ("differing", "named"),
    [
        ({"root": "org/other"}, "root"),
        ({"max_model_len": 4096}, "max_model_len"),
        ({"quantization": "fp8"}, "quantization"),
        ({"root": None}, "root"),
        ({"owned_by": "llamacpp"}, "vLLM"),
        ({"owned_by": "sglang"}, "vLLM"),
    ],
)
def test_servers_that_differ_never_continue_each_other(differing: dict[str, Any], named: str) -> None:
    async def test() -> None:
        async with served_by({}, differing) as (served, _):
            assert (await broken_off(served)).final["status"] == "failed"

    with log_lines() as lines:
        run(test())
        (line,) = lines(OFF)
        assert named in line["reason"]
        assert lines(ON) == []


def test_zero_turns_it_off_and_a_number_vouches_for_servers_that_differ() -> None:
    async def test() -> None:
        async with served_by({}, {}, continue_answers=0) as (served, _):
            assert (await broken_off(served)).final["status"] == "failed"
        async with served_by({}, {"root": "org/other"}, continue_answers=1) as (served, _):
            assert (await broken_off(served)).final["status"] == "completed"

    with log_lines() as lines:
        run(test())
        assert lines(ON) == lines(OFF) == []  # the operator has decided


@pytest.mark.slow
def test_a_third_server_matters_only_if_it_serves_the_model() -> None:
    async def test() -> None:
        async with served_by({}, {}, {"id": "another", "root": "org/other"}) as (served, _):
            assert (await broken_off(served)).final["status"] == "completed"
        async with served_by({}, {}, {"root": "org/other"}) as (served, _):
            assert (await broken_off(served)).final["status"] == "failed"

    run(test())


def test_it_follows_servers_that_join_change_and_leave() -> None:
    async def test() -> None:
        async with served_by({}) as (served, servers):
            assert (await broken_off(served)).final["status"] == "failed"
            served.parts.pool.members.add(BackendSpec("second", f"{await servers.add()}/v1"))
            await until(lambda: len(lines(ON)) == 1, "the second is known to be alike")
            assert (await post(served, input=f"{FAULT} again")).final["status"] == "completed"
            servers.listed[1] = [{**ENTRY, "root": "org/other"}]
            await until(lambda: bool(lines(OFF)), "the second has another checkpoint")
            assert (await post(served, input=f"{FAULT} once more")).final["status"] == "failed"
            served.parts.pool.members.remove("second")
            await until(lambda: len(lines(OFF)) == 2, "there is one again")
            assert "one backend alone" in lines(OFF)[1]["reason"]

    with log_lines() as lines:
        run(test())


def test_an_answer_stays_away_from_servers_that_were_exchanged_meanwhile() -> None:
    """Both list another checkpoint by the time it breaks off: alike, but not what began the answer."""

    async def test() -> None:
        async with served_by({}, {}) as (served, servers):
            pool = served.parts.pool
            before = pool.partners("simulator").checkpoint
            servers.listed[:] = [[{**ENTRY, "root": "org/new"}]] * 2
            await until(lambda: pool.partners("simulator").checkpoint not in ("", before), "both are exchanged")
            name = next(iter(pool.members.by_name))
            assert pool.continuation_route(Route("simulator"), name, "broke", before) == "no_backend"
            after = pool.partners("simulator").checkpoint
            assert isinstance(pool.continuation_route(Route("simulator"), name, "broke", after), Route)

    run(test())
