"""A router in front of two vLLM servers, for which a real nginx or Envoy stands in: one URL, many servers."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.typedefs import Handler

from responses_gateway.backend.policies import routers
from responses_gateway.settings import Settings
from responses_gateway.settings.keys import hash_of
from responses_gateway.simulator import DIALECTS, SimulatorOptions, create_app, serving
from responses_gateway.simulator.state import FAULT_COUNTS
from tests.backend.controlled_backends import text_of
from tests.deploy.envoy_process import Start, either_router
from tests.deploy.nginx_process import nginx
from tests.log_lines import log_lines
from tests.server.running_gateway import Served, assert_error, gateway, post, run

PAUSES = routers.PAUSES

HEADERS = {
    "x-session-id": "{conversation}",
    "x-llm-d-inference-fairness-id": "{key}",
    "x-llm-d-inference-objective": "{service_tier}",
}


class StandIns:
    """Two vLLM servers. `asked`: by whom each request for an answer was taken, on which path, with which headers."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, str, Any]] = []
        self.dead: set[int] = set()  # they drop each connection
        self.refuses: dict[str, str] | None = None  # with these headers, and `status`
        self.answers: dict[str, Any] = {}  # to other questions, by path
        self.header = "x-session-token"  # in which the server is told

    def app(self, number: int) -> web.Application:
        app = create_app(SimulatorOptions(dialect=DIALECTS["vllm"]))

        @web.middleware
        async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
            if request.path in self.answers:
                return web.json_response(self.answers[request.path])
            if request.method != "POST" or "completions" not in request.path:
                return await handler(request)
            self.asked.append((number, request.path, request.headers))
            if number in self.dead:
                assert request.transport is not None
                request.transport.abort()
                return web.Response()
            if self.refuses is not None:
                headers = {name: value for name, value in self.refuses.items() if name != "status"}
                return web.Response(status=int(self.refuses["status"]), text="inference error: no", headers=headers)
            return await handler(request)

        async def tell(request: web.Request, response: web.StreamResponse) -> None:
            if self.header:
                response.headers[self.header] = token(number)

        app.middlewares.append(middleware)
        app.on_response_prepare.append(tell)
        return app


def token(number: int) -> str:
    return base64.b64encode(f"models/vllm-{number}".encode()).decode()


@asynccontextmanager
async def routed(
    folder: Path, router: bool | str = True, front: Start = nginx, **settings: Any
) -> AsyncIterator[tuple[Served, StandIns]]:
    """Serve the gateway before a router before two servers; what happens `once` happens in one of them."""
    two = StandIns()
    apps = [two.app(0), two.app(1)]
    apps[1][FAULT_COUNTS] = apps[0][FAULT_COUNTS]
    async with serving(apps[0]) as a, serving(apps[1]) as b:
        ports = [int(url.rpartition(":")[2]) for url in (a, b)]
        async with front(folder, *ports) as proxy:
            backends = {"pool": {"url": proxy.url, "router": router}}
            async with gateway(backends=backends, adapt=False, **settings) as served:
                yield served, two


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routers, "PAUSES", (0.001, 0.002, 0.003))


def test_there_are_three_tries_in_the_time_in_which_a_router_notices() -> None:
    assert PAUSES == (0.2, 1.0, 3.0)


@either_router
def test_a_server_that_dies_in_the_middle_is_continued_through_the_same_url(front: Start, tmp_path: Path) -> None:
    async def test() -> None:
        async with routed(tmp_path, front=front, backend_headers=HEADERS) as (served, two):
            for number in range(6):  # the continuation meets either server
                asked = f"scenario: plain number {number} fault: drop=half,once"
                broken = await post(served, input=asked, prompt_cache_key=f"talk-{number}")
                assert (broken.final["status"], text_of(broken.final)) == ("completed", f"A plain answer to “{asked}”.")
            assert served.metric("continuations_total", outcome="continued", reason="broke") == 6
            continued = [headers for _, path, headers in two.asked if not path.endswith("chat/completions")]
            assert len(continued) == 6
            assert all(set(headers) & {"x-session-id", "x-session-token"} == set() for headers in continued)
            assert served.metric("backend_breaker_state", backend="pool", state="closed") == 1

    run(test())


@pytest.mark.parametrize("refused", [False, True])
def test_a_router_is_known_by_its_headers(tmp_path: Path, refused: bool) -> None:
    async def test() -> None:
        with log_lines() as lines:
            async with routed(tmp_path, router="auto") as (served, two):
                if refused:
                    two.refuses = {"status": "429", "x-llm-d-request-dropped-reason": "rejected-saturated"}
                    assert (await post(served)).status == 429
                    two.refuses = None
                else:
                    assert (await post(served, input="scenario: plain")).final["status"] == "completed"
                members = served.parts.pool.members
                (member,) = members.by_name.values()
                await member.checked.wait()
                broken = await post(served, input="scenario: plain fault: drop=half,once")
                assert broken.final["status"] == "completed"
                (continued,) = lines("answer continued at another backend")
                assert {continued["failed_pod"], continued["pod"]} <= {"models/vllm-0", "models/vllm-1"}
                assert member.router
                assert len(lines("the backend is a router: the failure of one of its servers is not its own")) == 1

    run(test())


@pytest.mark.parametrize("header", ["x-went-into-resp-headers", "x-went-into-req-headers"])
def test_a_router_that_tells_no_server_is_known_by_its_headers(tmp_path: Path, header: str) -> None:
    async def test() -> None:
        async with routed(tmp_path, router="auto") as (served, two):
            two.header = header
            await post(served, input="scenario: plain")
            (member,) = served.parts.pool.members.by_name.values()
            assert member.router

    run(test())


@pytest.mark.parametrize(
    ("path", "answer", "router"),
    [
        ("/readiness", {"status": "ready", "healthy_workers": 2, "total_workers": 2}, True),
        ("/engines", [{"engine_id": "a", "serving_models": ["simulator"], "created": 1795646234}], True),
        ("/engines", {"object": "list", "data": [{"id": "davinci", "object": "engine"}]}, False),
        ("/readiness", {"status": "ready"}, False),
        ("/nothing", {}, False),  # as vLLM: both are 404
    ],
)
def test_a_router_without_headers_is_asked(tmp_path: Path, path: str, answer: Any, router: bool) -> None:
    async def test() -> None:
        async with routed(tmp_path, router="auto") as (served, two):
            two.header = ""
            two.answers = {path: answer}
            pool = served.parts.pool
            pool.watch.find_routers()
            ((member, question),) = pool.watch.questions.items()
            await question
            assert member.router is router

    run(test())


def test_what_the_settings_say_is_no_router_is_none(tmp_path: Path) -> None:
    async def test() -> None:
        async with routed(tmp_path, router=False) as (served, _):
            await post(served, input="scenario: plain")
            assert (await post(served, input="scenario: plain fault: drop=half")).final["status"] == "failed"

    run(test())


@either_router
def test_a_dead_server_is_met_again_until_the_router_has_noticed(front: Start, tmp_path: Path) -> None:
    async def test() -> None:
        async with routed(tmp_path, front=front) as (served, two):
            two.dead = {0}
            statuses = [(await post(served, input="scenario: plain")).final["status"] for _ in range(8)]
            assert statuses == ["completed"] * 8  # nothing was seen: the same URL is asked again
            assert {number for number, *_ in two.asked} == {0, 1}
            two.dead = {0, 1}
            assert (await post(served, input="scenario: plain")).status in (502, 503)
            two.dead = set()
            assert (await post(served, input="scenario: plain")).final["status"] == "completed"  # no breaker is open
            broken = await post(served, input="scenario: plain fault: drop=half")  # wherever it is begun
            assert broken.final["status"] in ("completed", "failed")

    run(test())


@pytest.mark.parametrize(
    ("status", "reason", "given", "code", "wait"),
    [
        ("429", "rejected-saturated", None, "rate_limit_exceeded", "1"),
        ("429", "rejected-ttl-expired", "7", "rate_limit_exceeded", "7"),
        ("503", "rejected-no-endpoints", None, None, "1"),
        ("503", "rejected-shutting-down", "3", None, "3"),
    ],
)
def test_the_reason_of_a_router_becomes_our_error(
    tmp_path: Path, status: str, reason: str, given: str | None, code: str | None, wait: str
) -> None:
    async def test() -> None:
        async with routed(tmp_path) as (served, two):
            more = {} if given is None else {"Retry-After": given}
            two.refuses = {"status": status, "x-llm-d-request-dropped-reason": reason, **more}
            answer = await post(served)
            assert reason in assert_error(answer, int(status), code)
            assert len(two.asked) == 1
            assert answer.headers["retry-after"] == wait

    run(test())


def test_headers_have_what_is_known_and_the_token_of_the_conversation_comes_back(tmp_path: Path) -> None:
    async def test() -> None:
        with log_lines() as lines:
            async with routed(tmp_path, backend_headers=HEADERS, access_log=True) as (served, two):
                mine = {"x-session-token": "mine"}
                await post(served, input="scenario: plain", prompt_cache_key="talk\r\nX: y", service_tier="flex", headers=mine)
                await post(served, input="scenario: plain", prompt_cache_key="talk\r\nX: y")
                await post(served, input="scenario: plain", prompt_cache_key="other")
            (first, _, one), (_, _, two_), (_, _, three) = two.asked
            assert (one["x-session-id"], one["x-llm-d-inference-objective"]) == ("talk%0D%0AX: y", "flex")
            assert "x-session-token" not in one
            assert "x-llm-d-inference-fairness-id" not in one  # there are no keys
            assert "x-llm-d-inference-objective" not in two_
            assert two_["x-session-token"] == token(first)
            assert "x-session-token" not in three
            assert lines("response")[0]["pod"] == f"models/vllm-{first}"

    run(test())


def test_a_team_and_a_key_are_told_by_name_and_no_key_itself(tmp_path: Path) -> None:
    async def test() -> None:
        keys = {"alice": {"hash": hash_of("rp_alice-0123456789"), "team": "research"}}
        headers = {"x-llm-d-inference-fairness-id": "{team}/{key}"}
        async with routed(tmp_path, backend_headers=headers, api_keys=keys, teams={"research": {}}) as (served, two):
            await post(served, headers={"Authorization": "Bearer rp_alice-0123456789"})
            ((_, _, sent),) = two.asked
            assert sent["x-llm-d-inference-fairness-id"] == "research/alice"
            assert "rp_alice" not in str(sent)

    run(test())


@pytest.mark.parametrize(
    ("headers", "complaint"),
    [
        ({"session_id": "x"}, "only letters, digits and dashes"),
        ({"Authorization": "x"}, "not be one that the gateway sets"),
        ({"x-session-id": "{conversations}"}, "no placeholder {conversations}"),
        ({"x": "a\nb"}, "printable"),
    ],
)
def test_headers_that_cannot_be_sent_are_refused_by_name(headers: dict[str, str], complaint: str) -> None:
    with pytest.raises(ValueError, match="backend_headers") as refused:
        Settings(backend_headers=headers)
    assert complaint in str(refused.value)
