"""Backends that fail: a client sees nothing of it as long as there is another one, and the failing one is left in peace."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from responses_gateway.backend.served_models import Route
from tests.backend.controlled_backends import Replica, ask_first, pool, replicas, text_of
from tests.server.running_gateway import ask, assert_error, gateway, post, run, until


@pytest.mark.parametrize(
    ("failing", "reason"),
    [
        ("drop", "dropped"), (502, "status_502"), (503, "status_503"), (504, "status_504"), (429, "busy"), ("down", "connect"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("stream", [True, False])
def test_what_fails_before_the_first_byte_is_tried_elsewhere(failing: str | int, reason: str, stream: bool) -> None:
    async def test() -> None:
        async with pool("A", "B", health_interval=3600) as (served, a, b):
            a.does = failing
            if failing == "down":
                await a.stop()
            answer = await ask_first(served, a, stream=stream)
            assert answer.status == 200
            assert text_of(answer.final if stream else answer.json) == "B"
            assert served.metric("backend_retries_total", backend=a.place, reason=reason) == 1
            assert served.metric("backend_requests_total", backend=b.place) == 1
            for one in (a, b):
                await until(lambda one=one: served.metric("backend_requests_in_flight", backend=one.place) == 0)

    run(test())


@pytest.mark.parametrize("status", [400, 401, 403, 422, 500])
def test_what_another_backend_would_do_no_better_is_not_tried_again(status: int) -> None:
    async def test() -> None:
        async with pool("A", "B") as (served, a, b):
            a.does = status
            for _ in range(8):
                answer = await ask_first(served, a)
                assert "A refuses" in answer.json["error"]["message"]
            assert (len(a.asked), len(b.asked)) == (8, 0)  # nor is it taken for ill

    run(test())


@pytest.mark.parametrize("status", [502, 503])
@pytest.mark.parametrize("stream", [True, False])
def test_a_prompt_that_is_too_long_is_the_clients_whatever_the_status_says(status: int, stream: bool) -> None:
    """A bridge before the server makes a 502 of its 400: one client's prompts must not take every backend from the others."""

    async def test() -> None:
        async with pool("A", "B", breaker_failures=2, breaker_time=30, health_interval=3600) as (served, a, b):
            a.does = status
            a.reason = "This model's maximum context length is 1024 tokens. However, your messages resulted in 4000 tokens."
            for _ in range(4):
                answer = await ask_first(served, a, stream=stream)
                assert "4000 tokens" in assert_error(answer, 400, code="context_length_exceeded")
            assert (len(a.asked), len(b.asked)) == (4, 0)
            assert served.metric("backend_breaker_state", backend=a.place, state="closed") == 1
            a.reason = "The limit is 1024 tokens per minute: please try again later."
            assert text_of((await ask_first(served, a)).final) == "B"

    run(test())


@pytest.mark.parametrize("status", [502, 503])
def test_so_it_is_where_the_request_is_only_relayed(status: int) -> None:
    """The client gets the refusal as it is."""

    async def test() -> None:
        async with pool("A", "B", breaker_failures=2, breaker_time=30, health_interval=3600) as (served, a, b):
            body = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
            a.does = b.does = status
            a.reason = b.reason = "This model's maximum context length is 1024 tokens. However, you requested 4000 tokens."
            for _ in range(6):
                answer = await ask(served, "POST", "/v1/chat/completions", json=body)
                assert (answer.status, answer.json["error"]["message"]) == (status, a.reason)
            assert len(a.asked) + len(b.asked) == 6
            for one in (a, b):
                assert served.metric("backend_breaker_state", backend=one.place, state="closed") == 1
            await until(lambda: [member.in_flight for member in served.parts.pool.members.by_name.values()] == [0, 0])
            a.does = "answer"
            b.reason = "The engine has stopped. " + " " * 80_000  # too long to be looked at
            for _ in range(2):
                assert (await ask(served, "POST", "/v1/chat/completions", json={**body, "stream": True})).status == 200

    run(test())


def test_the_reason_of_a_refusal_that_is_relayed_is_not_waited_for() -> None:
    async def test() -> None:
        async with pool("A", "B") as (served, a, b):
            a.does = b.does = "refuse"
            asking = asyncio.create_task(ask(served, "POST", "/v1/chat/completions", json={"model": "m", "stream": True}))
            await until(lambda: len(a.asked) + len(b.asked) == 2)
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
            await until(lambda: [member.in_flight for member in served.parts.pool.members.by_name.values()] == [0, 0])

    run(test())


def test_a_refusal_without_its_reason_is_not_waited_for() -> None:
    async def test() -> None:
        async with pool("A", "B") as (served, a, b):
            a.does = "refuse"
            assert text_of((await ask_first(served, a)).final) == "B"
            assert (len(a.asked), len(b.asked)) == (1, 1)
            await until(lambda: not a.active)  # its connection was closed

    run(test())


def test_a_client_that_leaves_before_the_reason_of_a_refusal_leaves_nothing_behind() -> None:
    async def test() -> None:
        async with pool("A", "B") as (served, a, _b):
            a.does = "refuse"
            asking = asyncio.create_task(ask_first(served, a))
            await until(lambda: a.active)
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
            await until(lambda: not served.parts.in_flight.activities and not a.active)
            assert [member.in_flight for member in served.parts.pool.members.by_name.values()] == [0, 0]

    run(test())


def test_where_all_fail_the_last_one_is_heard() -> None:
    async def test() -> None:
        async with pool("A", "B", "C", retries=1) as (served, *several):
            for one in several:
                one.does = 503
                one.headers = {"Retry-After": "7"}
            answer = await post(served, model="m")
            assert "refuses" in assert_error(answer, 503)
            assert answer.headers["retry-after"] == "7"
            assert sum(len(one.asked) for one in several) == 2

    run(test())


def test_nobody_is_asked_twice_for_one_request() -> None:
    async def test() -> None:
        async with pool("A", "B", retries=10) as (served, a, b):
            a.does = b.does = "drop"
            assert_error(await post(served, model="m"), 502)
            assert (len(a.asked), len(b.asked)) == (1, 1)

    run(test())


def test_retries_have_a_budget() -> None:
    async def test() -> None:
        async with pool("A", "B", breaker_failures=1000) as (served, a, b):
            a.does = b.does = 503
            for _ in range(30):
                assert (await post(served, model="m")).status == 503
            retried = len(a.asked) + len(b.asked) - 30
            assert 10 <= retried <= 20  # not 30: ten at once, one for every five requests, and one for each second

    run(test())


def test_a_busy_backend_is_left_only_for_one_with_room() -> None:
    async def test() -> None:
        async with pool("A", "B", max_concurrency=1) as (served, a, b):
            b.does = "hang"
            slow = asyncio.create_task(ask_first(served, b))
            await until(lambda: b.active)
            a.does = 429
            assert_error(await ask_first(served, a), 429, "rate_limit_exceeded")
            b.go_on.set()
            assert text_of((await slow).final) == "B"

    run(test())


def test_a_client_that_leaves_between_two_attempts_leaves_nothing_behind() -> None:
    async def test() -> None:
        async with pool("A", "B") as (served, a, b):
            a.does = 503
            b.does = "hang"
            asking = asyncio.create_task(ask_first(served, a))
            await until(lambda: b.active)
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
            await until(lambda: not served.parts.in_flight.activities)
            assert [member.in_flight for member in served.parts.pool.members.by_name.values()] == [0, 0]

    run(test())


def test_a_stream_that_died_before_it_said_anything_can_be_asked_for_elsewhere() -> None:
    """Ask for the route of a stream that was open already, as a generation does."""

    async def test() -> None:
        async with pool("A", "B", "C", details={}) as (served, *_):
            several = served.parts.pool
            route = Route("m")
            body = b'{"model":"m","messages":[]}'
            answered = []
            for _ in range(3):
                async with await several.open_chat(body, lambda name, url: {}, route) as chat:
                    answered.append(chat.backend)
                following = several.retry_route(route, chat.backend)
                if following is None:
                    break
                route = following
            assert sorted(answered) == ["A", "B", "C"]
            assert several.retry_route(route, answered[-1]) is None
            assert [served.metric("backend_retries_total", backend=name, reason="broke") for name in answered] == [1, 1, 0]
        async with pool("A") as (served, a):
            assert served.parts.pool.retry_route(Route("m"), a.place) is None

    run(test())


# ---- breakers ---------------------------------------------------------------------------------------------------------


def test_a_breaker_opens_tries_and_closes() -> None:
    async def test() -> None:
        settings = {"breaker_failures": 2, "breaker_time": 10, "health_interval": 3600}
        async with pool("A", "B", **settings) as (served, a, _b):

            def state(name: str) -> float:
                return served.metric("backend_breaker_state", backend=a.place, state=name)

            now = [1000.0]
            served.parts.pool.members.clock = lambda: now[0]
            a.does = 503
            for _ in range(4):
                assert text_of((await ask_first(served, a)).final) == "B"
            assert (len(a.asked), state("open"), state("closed")) == (2, 1, 0)
            now[0] += 10
            assert text_of((await ask_first(served, a)).final) == "B"  # the trial failed
            assert text_of((await ask_first(served, a)).final) == "B"
            assert (len(a.asked), state("open")) == (3, 1)
            a.does = "answer"
            now[0] += 20
            assert text_of((await ask_first(served, a)).final) == "A"
            assert (state("closed"), state("open")) == (1, 0)

    run(test())


@pytest.mark.parametrize(
    "row",
    [
        [503, "503 in the stream"],
        ["503 in the stream", 503],
        ["503 in the stream"] * 2,
        ["503 with status 200"] * 2,
    ],
)
def test_a_refusal_in_a_stream_counts_as_one_with_its_status(row: list[str | int]) -> None:
    async def test() -> None:
        async with pool("A", "B", breaker_failures=2, breaker_time=30, health_interval=3600) as (served, a, _b):
            for number, does in enumerate(row):
                assert served.metric("backend_breaker_state", backend=a.place, state="open") == 0
                a.does = does
                assert text_of((await ask_first(served, a)).final) == "B"
                assert len(a.asked) == number + 1
            assert served.metric("backend_breaker_state", backend=a.place, state="open") == 1

    run(test())


def test_a_refusal_with_status_200_is_a_trial_that_fails() -> None:
    async def test() -> None:
        settings = {"breaker_failures": 2, "breaker_time": 10, "health_interval": 3600}
        async with pool("A", "B", **settings) as (served, a, b):
            clock = 1000.0
            served.parts.pool.members.clock = lambda: clock
            a.does = 503
            for _ in range(2):
                assert text_of((await ask_first(served, a)).final) == "B"
            a.does = "503 with status 200"
            for trial in (3, 4):
                clock += 30
                assert text_of((await ask_first(served, a)).final) == "B"
                assert len(a.asked) == trial
                assert served.metric("backend_breaker_state", backend=a.place, state="open") == 1
            assert served.metric("backend_retries_total", backend=a.place, reason="status_503") == 4
            a.does = "answer"
            clock += 60
            assert text_of((await ask_first(served, a)).final) == "A"
            assert len(b.asked) == 4

    run(test())


def test_where_all_breakers_are_open_the_answer_says_when_to_come_back() -> None:
    async def test() -> None:
        settings = {"breaker_failures": 1, "breaker_time": 30, "queue_timeout": 0.01, "health_interval": 3600}
        async with pool("A", "B", **settings) as (served, a, b):
            a.does = b.does = 503  # while the health checks succeed
            assert_error(await post(served, model="m"), 503)
            answer = await post(served, model="m")
            assert "No backend that serves this model" in assert_error(answer, 503, "server_error")
            assert 25 <= int(answer.headers["retry-after"]) <= 30
            assert (len(a.asked), len(b.asked)) == (1, 1)
            assert (await ask(served, "GET", "/ready")).status == 503

    run(test())


def test_a_client_whose_bodies_are_too_large_fells_no_backend() -> None:
    async def test() -> None:
        async with pool("A", "B", breaker_failures=1, breaker_time=30) as (served, a, b):
            a.does = b.does = "drop"
            assert_error(await post(served, model="m", input="x" * 300_000), 502)
            a.does = b.does = "answer"
            assert (await post(served, model="m")).status == 200
            for one in (a, b):
                assert served.metric("backend_breaker_state", backend=one.place, state="closed") == 1

    run(test())


@pytest.mark.parametrize("settings", [{}, {"store": "memory"}, {"store": "memory", "on_disconnect": "continue"}])
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("breaks", ["break", "role", "end"])
def test_a_stream_that_breaks_before_the_model_spoke_is_asked_for_elsewhere(
    breaks: str, stream: bool, settings: dict[str, str]
) -> None:
    async def test() -> None:
        async with pool("A", "B", **settings) as (served, a, b):
            a.does = breaks
            answer = await ask_first(served, a, stream=stream)
            assert text_of(answer.final if stream else answer.json) == "B"
            assert served.metric("backend_retries_total", backend=a.place, reason="broke") == 1
            b.does = "break"
            answer = await ask_first(served, a, stream=stream)
            if stream:
                assert answer.final["status"] == "failed"
            else:
                assert_error(answer, 502)
            assert (len(a.asked), len(b.asked)) == (2, 2)

    run(test())


def test_a_stream_that_breaks_once_the_model_spoke_is_the_clients() -> None:
    async def test() -> None:
        async with pool("A", "B") as (served, a, b):
            a.does = "cut"
            final = (await ask_first(served, a)).final
            assert (final["status"], text_of(final), len(b.asked)) == ("failed", "A", 0)

    run(test())


@pytest.mark.parametrize(
    ("silent", "stream", "settings"),
    [
        ("hang", True, {}),
        ("hang", True, {"header_grace": 0}),
        ("hang", False, {}),
        ("silence", True, {"store": "memory", "on_disconnect": "continue"}),
        ("silence", False, {}),
        ("object", True, {}),
    ],
)
def test_a_backend_that_says_nothing_is_not_waited_for_when_there_is_another(
    silent: str, stream: bool, settings: dict[str, Any]
) -> None:
    """Answer health checks as usual: only requests notice the failure."""

    async def test() -> None:
        async with pool("A", "B", idle_timeout=1, breaker_failures=2, breaker_time=60, **settings) as (served, a, b):
            a.does = silent
            for answer in await asyncio.gather(*(ask_first(served, a, stream=stream) for _ in range(2))):
                assert text_of(answer.final if stream else answer.json) == "B"
            assert served.metric("backend_retries_total", backend=a.place, reason="silent") == 2
            assert served.metric("backend_breaker_state", backend=a.place, state="open") == 1
            await until(lambda: not a.active)  # it was left
            assert text_of((await ask_first(served, a)).final) == "B"
            assert len(a.asked) == 2
            b.does = silent
            assert "sent nothing for 1 seconds" in assert_error(await ask_first(served, b, stream=False), 504)
            for one in (a, b):
                await until(lambda one=one: served.metric("backend_requests_in_flight", backend=one.place) == 0)

    run(test())


def test_silence_behind_a_large_request_fells_no_backend() -> None:
    async def test() -> None:
        async with pool("A", "B", idle_timeout=0.3, breaker_failures=1, breaker_time=30) as (served, a, b):
            for a.does, b.does in (("hang", "hang"), ("silence", "silence")):
                assert_error(await post(served, model="m", input="x" * 300_000, stream=False), 504)
                for one in (a, b):
                    assert served.metric("backend_breaker_state", backend=one.place, state="closed") == 1

    run(test())


def test_streams_that_break_count_as_failures() -> None:
    async def test() -> None:
        async with pool("A", "B", breaker_failures=2, breaker_time=30, health_interval=3600) as (served, a, _b):
            a.does = "break"
            a.health = 503  # else the check behind a lost connection may close the breaker at once
            for _ in range(2):
                await ask_first(served, a)
            assert served.metric("backend_breaker_state", backend=a.place, state="open") == 1
            assert text_of((await ask_first(served, a)).final) == "B"

    run(test())


def test_one_backend_is_always_tried() -> None:
    async def test() -> None:
        async with pool("A", breaker_failures=1, breaker_time=30) as (served, a):
            a.does = "drop"
            for _ in range(3):
                assert_error(await post(served, model="m"), 502)
            assert served.metric("backend_up", backend=a.place) == 0
            a.does = "answer"
            assert text_of((await post(served, model="m")).final) == "A"
            assert served.metric("backend_up", backend=a.place) == 1
            assert len(a.asked) == 4

    run(test())


# ---- health -----------------------------------------------------------------------------------------------------------


def test_a_backend_that_is_not_well_is_spared_until_it_is() -> None:
    async def test() -> None:
        async with pool("A", "B", health_interval=0.02) as (served, a, b):
            a.health = 503
            await until(lambda: served.metric("backend_up", backend=a.place) == 0)
            assert text_of((await ask_first(served, a)).final) == "B"
            assert (await ask(served, "GET", "/ready")).json == {"status": "ok"}
            b.health = 500
            await until(lambda: served.metric("backend_up", backend=b.place) == 0)
            assert (await ask(served, "GET", "/ready")).status == 503
            assert text_of((await ask_first(served, a)).final) == "A"  # none is better: the checks may be wrong
            a.health = 404  # has no such endpoint
            await until(lambda: served.metric("backend_up", backend=a.place) == 1)
            assert (await ask(served, "GET", "/ready")).status == 200

    run(test())


def test_a_backend_that_comes_back_is_used_again_and_may_serve_something_new() -> None:
    async def test() -> None:
        async with pool("A", "B", health_interval=0.02) as (served, a, _b):
            port = a.port
            await a.stop()
            await until(lambda: served.metric("backend_up", backend=a.place) == 0)
            assert {text_of((await post(served, model="m")).final) for _ in range(3)} == {"B"}
            a.models = ("m", "new")
            await a.start(port)
            await until(lambda: served.metric("backend_up", backend=a.place) == 1)
            assert text_of((await post(served, model="new")).final) == "A"

    run(test())


def test_the_gateway_starts_though_a_backend_is_down() -> None:
    async def test() -> None:
        async with replicas(Replica("A")) as (a,), gateway("http://127.0.0.1:9", a.url) as served:
            assert served.metric("backend_up", backend="127.0.0.1:9") == 0
            assert {text_of((await post(served, model="m")).final) for _ in range(3)} == {"A"}
            assert (await ask(served, "GET", "/ready")).status == 200

    run(test())
