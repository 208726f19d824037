"""More requests than the backends may have at once: they wait in line, in order, and not for ever."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.backend.controlled_backends import Replica, pool, replicas, text_of
from tests.server.running_gateway import RawClient, Served, ask, assert_error, post, run, until


def asking(served: Served, **fields: Any) -> asyncio.Task[Any]:
    return asyncio.create_task(post(served, **{"model": "m", **fields}))


async def waiting(served: Served, number: int) -> None:
    await until(lambda: served.parts.pool.places.queued == number, f"{number} wait")
    assert served.metric("queued_requests") == number


def test_a_backend_gets_no_more_than_it_may_and_the_rest_in_order() -> None:
    async def test() -> None:
        async with pool("A", max_concurrency=1) as (served, a):
            a.does = "hang"
            tasks = []
            for number in range(4):
                tasks.append(asking(served, input=str(number)))
                await until(lambda: a.active)
                await waiting(served, number)
            assert a.active == 1
            a.go_on.set()
            for task in tasks:
                assert (await task).final["status"] == "completed"
            assert [body["messages"][0]["content"] for body in a.asked] == ["0", "1", "2", "3"]
            await waiting(served, 0)
            assert served.metric("queue_wait_seconds_count") == 3
            assert served.metric("backend_requests_in_flight", backend=a.place) == 0

    run(test())


def test_a_full_line_is_429_and_says_when_to_come_back() -> None:
    async def test() -> None:
        async with pool("A", max_concurrency=1, queue_size=1) as (served, a):
            a.does = "hang"
            tasks = [asking(served) for _ in range(2)]
            await until(lambda: a.active)
            await waiting(served, 1)
            for stream in (True, False):
                answer = await post(served, model="m", stream=stream)
                assert_error(answer, 429, "rate_limit_exceeded")
                assert answer.headers["retry-after"] == "1"
            assert served.metric("queue_rejections_total", reason="full") == 2
            assert served.metric("backend_errors_total", kind="rate_limit_exceeded") == 0  # no backend was asked
            a.go_on.set()
            assert [text_of((await task).final) for task in tasks] == ["A", "A"]

    run(test())


def test_who_waits_too_long_gets_503() -> None:
    async def test() -> None:
        async with pool("A", max_concurrency=1, queue_timeout=0.05) as (served, a):
            a.does = "hang"
            task = asking(served)
            await until(lambda: a.active)
            answer = await post(served, model="m")
            assert_error(answer, 503, "server_error")
            assert answer.headers["retry-after"] == "1"
            assert served.metric("queue_rejections_total", reason="late") == 1
            assert served.metric("backend_errors_total", kind="server_error") == 0
            a.go_on.set()
            assert (await task).status == 200

    run(test())


def test_who_waits_longer_than_the_grace_time_waits_with_an_open_stream() -> None:
    async def test() -> None:
        async with pool("A", max_concurrency=1, queue_timeout=0.3, header_grace=0.01) as (served, a):
            a.does = "hang"
            task = asking(served)
            await until(lambda: a.active)
            final = (await post(served, model="m")).final
            assert (final["status"], final["error"]["code"]) == ("failed", "server_error")
            late = asking(served)
            await waiting(served, 1)
            a.go_on.set()
            assert text_of((await late).final) == "A"
            assert (await task).status == 200

    run(test())


def test_a_client_that_leaves_leaves_the_line_at_once() -> None:
    async def test() -> None:
        async with pool("A", max_concurrency=1) as (served, a):
            a.does = "hang"
            first = asking(served, input="first")
            await until(lambda: a.active)
            leaving = await RawClient.connect(served)
            await leaving.post(model="m", input="leaving")
            await waiting(served, 1)
            last = asking(served, input="last")
            await waiting(served, 2)
            leaving.close()
            await waiting(served, 1)
            a.go_on.set()
            assert (await first).status == (await last).status == 200
            assert [body["messages"][0]["content"] for body in a.asked] == ["first", "last"]

    run(test())


def test_a_client_that_leaves_makes_room_for_the_next() -> None:
    async def test() -> None:
        async with pool("A", max_concurrency=1) as (served, a):
            a.does = "hang"
            leaving = await RawClient.connect(served)
            await leaving.post(model="m", input="leaving")
            await until(lambda: a.active)
            last = asking(served, input="last")
            await waiting(served, 1)
            leaving.close()
            await until(lambda: len(a.asked) == 2)
            a.go_on.set()
            assert (await last).status == 200

    run(test())


def test_a_crowd_before_one_model_does_not_hold_up_another() -> None:
    async def test() -> None:
        a = Replica("A", ("slow",))
        b = Replica("B", ("fast",))
        async with pool(a, b, max_concurrency=1, queue_size=2) as (served, *_):
            a.does = "hang"
            crowd = [asking(served, model="slow") for _ in range(3)]
            await until(lambda: a.active)
            await waiting(served, 2)
            assert (await post(served, model="slow")).status == 429
            for _ in range(3):
                assert text_of((await post(served, model="fast")).final) == "B"
            a.go_on.set()
            assert {text_of((await task).final) for task in crowd} == {"A"}

    run(test())


def test_whoever_has_room_first_serves_the_first_in_line() -> None:
    async def test() -> None:
        async with pool("A", "B", max_concurrency=1) as (served, a, b):
            a.does = b.does = "hang"
            running = [asking(served, input=f"running {number}") for number in range(2)]
            await until(lambda: a.active and b.active)
            late = asking(served, input="late")
            await waiting(served, 1)
            b.go_on.set()
            assert text_of((await late).final) == "B"
            a.go_on.set()
            await asyncio.gather(*running)

    run(test())


def test_a_limit_of_one_backend_is_its_own() -> None:
    async def test() -> None:
        async with pool("A", "B", details={"A": {"max_concurrency": 1}}, max_concurrency=2) as (served, a, b):
            a.does = b.does = "hang"
            tasks = [asking(served) for _ in range(4)]
            await waiting(served, 1)
            await until(lambda: (a.active, b.active) == (1, 2))
            a.go_on.set()
            b.go_on.set()
            assert {(await task).status for task in tasks} == {200}

    run(test())


def test_one_in_line_gets_a_backend_that_was_added_meanwhile() -> None:
    key = "an-administrators-key"

    async def test() -> None:
        async with pool("A", max_concurrency=1, admin_key=key) as (served, a), replicas(Replica("B")) as (b,):
            a.does = "hang"
            first = asking(served)
            await until(lambda: a.active)
            second = asking(served)
            await waiting(served, 1)
            headers = {"Authorization": f"Bearer {key}"}
            answer = await ask(served, "POST", "/admin/backends", json={"url": b.url}, headers=headers)
            assert answer.status == 201, answer.body
            assert text_of((await second).final) == "B"
            a.go_on.set()
            assert text_of((await first).final) == "A"

    run(test())
