"""Backends that come and go while the gateway runs: `/admin/backends` and SIGHUP."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path
from typing import Any, cast

import pytest

from responses_gateway.probing import autoconfiguration
from responses_gateway.server.setup.backend_specs import specs_of
from responses_gateway.settings import Settings
from responses_gateway.settings.keys import hash_of
from tests.backend.controlled_backends import Replica, pool, replicas, text_of
from tests.server.process.test_shutdown import Program, program
from tests.server.running_gateway import Answer, Served, ask, assert_error, gateway, post, run, until
from tests.waiting import PATIENCE

KEY = "an-administrators-key"


async def admin(served: Served, method: str, path: str = "", key: str | None = KEY, **fields: Any) -> Answer:
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    body = {"json": fields} if fields else {}
    return await ask(served, method, f"/admin/backends{path}", headers=headers, **body)


async def writers(served: Served, number: int = 4) -> set[str]:
    """Return the names of the backends that answer so many requests."""
    return {text_of((await post(served, model="m", store=False)).final) for _ in range(number)}


# ---- the key ----------------------------------------------------------------------------------------------------------


def test_without_a_key_in_the_settings_there_is_nothing() -> None:
    async def test() -> None:
        async with pool("A", "B") as (served, a, _b):
            for method, path in (("GET", ""), ("POST", ""), ("DELETE", f"/{a.place}"), ("POST", f"/{a.place}/drain")):
                assert_error(await admin(served, method, path), 404, "not_found")

    run(test())


@pytest.mark.parametrize("header", [None, "", "Bearer", "Bearer x", f"Basic {KEY}", KEY, f"Bearer {KEY}x", "Bearer \xe4"])
def test_without_the_key_nothing_is_told_and_nothing_done(header: str | None) -> None:
    async def test() -> None:
        async with pool("A", "B", admin_key=KEY) as (served, a, _b):
            headers = {} if header is None else {"Authorization": header}
            for method, path in (
                ("GET", ""), ("GET", f"/{a.place}"), ("POST", ""), ("DELETE", f"/{a.place}"), ("POST", f"/{a.place}/drain"),
                ("POST", f"/{a.place}/resume"),
            ):  # fmt: skip
                answer = await ask(served, method, f"/admin/backends{path}", headers=headers, json={"url": "http://x"})
                assert_error(answer, 401, "invalid_api_key")
                assert a.place not in answer.body.decode()
            assert len(served.parts.pool.members.by_name) == 2

    run(test())


def test_the_key_of_a_client_is_not_asked_for_and_is_of_no_use() -> None:
    async def test() -> None:
        keys = {"alice": {"hash": hash_of("the-key-of-a-client")}}
        async with pool("A", "B", admin_key=KEY, api_keys=keys) as (served, *_):
            assert (await admin(served, "GET")).status == 200
            assert_error(await admin(served, "GET", key="the-key-of-a-client"), 401, "invalid_api_key")

    run(test())


# ---- listing, draining, adding, removing ------------------------------------------------------------------------------


def test_the_list_says_how_each_backend_stands_and_no_key() -> None:
    async def test() -> None:
        details = {"A": {"api_key": "hunter2-hunter2", "aliases": {"gpt": "m"}, "max_concurrency": 3}}
        async with pool("A", "B", details=details, admin_key=KEY, health_interval=0.02) as (served, a, b):
            b.health = 503
            await until(lambda: served.metric("backend_up", backend="B") == 0)
            answer = await admin(served, "GET")
            assert b"hunter2" not in answer.body
            one, two = answer.json["data"]
            assert one == {
                "object": "backend", "name": "A", "url": f"{a.url}/v1", "healthy": True, "problem": None, "breaker": "closed",
                "draining": False, "leaving": False, "in_flight": 0, "max_concurrency": 3, "weight": 1.0,
                "models": ["m", "gpt"], "aliases": {"gpt": "m"},
                "source": "settings", "pool": None, "pod": None, "router": False, "state": "ready",
            }  # fmt: skip
            assert (two["healthy"], two["problem"]) == (False, "/health answered with HTTP 503")
            assert (await admin(served, "GET", "/A")).json == one
            assert_error(await admin(served, "GET", "/C"), 404, "not_found")

    run(test())


def test_a_backend_that_is_drained_ends_what_it_has_and_gets_nothing_new() -> None:
    async def test() -> None:
        async with pool("A", "B", details={}, admin_key=KEY) as (served, a, b):
            a.does = b.does = "hang"
            running = [asyncio.create_task(post(served, model="m")) for _ in range(2)]
            await until(lambda: a.active and b.active)
            assert (await admin(served, "POST", "/A/drain")).json["draining"] is True
            b.go_on.set()
            assert await writers(served) == {"B"}
            assert (await admin(served, "GET", "/A")).json["in_flight"] == 1
            a.go_on.set()
            assert {text_of((await task).final) for task in running} == {"A", "B"}
            assert (await admin(served, "POST", "/A/resume")).json["draining"] is False
            assert await writers(served) == {"A", "B"}

    run(test())


def test_a_model_whose_only_backend_is_drained_is_not_unknown() -> None:
    async def test() -> None:
        async with pool(Replica("A", ("m",)), Replica("B", ("n",)), details={}, admin_key=KEY) as (served, *_):
            await admin(served, "POST", "/A/drain")
            answer = await post(served, model="m")
            assert_error(answer, 503)
            assert answer.headers["retry-after"] == "1"

    run(test())


def test_a_backend_is_added_and_removed_under_load() -> None:
    async def test() -> None:
        async with pool("A", admin_key=KEY) as (served, a), replicas(Replica("B")) as (b,):
            answer = await admin(served, "POST", name="b", url=b.url, api_key="hunter2-hunter2", aliases={"gpt": "m"})
            assert (answer.status, answer.json["name"]) == (201, "b")
            assert await writers(served) == {"A", "B"}
            assert text_of((await post(served, model="gpt")).final) == "B"
            assert_error(await admin(served, "POST", name="b", url=b.url), 409, "already_exists")
            b.does = "hang"
            slow = asyncio.create_task(post(served, model="gpt"))
            await until(lambda: b.active)
            removed = (await admin(served, "DELETE", "/b")).json
            assert (removed["leaving"], removed["in_flight"]) == (True, 1)
            assert await writers(served) == {"A"}
            assert [one["name"] for one in (await admin(served, "GET")).json["data"]] == [a.place, "b"]
            assert_error(await admin(served, "DELETE", "/b"), 404)
            b.go_on.set()
            assert text_of((await slow).final) == "B"
            await until(lambda: not served.parts.pool.members.leaving)
            assert [one["name"] for one in (await admin(served, "GET")).json["data"]] == [a.place]
            assert 'responses_gateway_backend_up{backend="b"}' not in (await ask(served, "GET", "/metrics")).body.decode()

    run(test())


def test_a_backend_that_is_removed_while_it_is_examined_is_looked_for_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(autoconfiguration, "RECONNECT_DELAY", 0.01)

    async def test() -> None:
        async with replicas(Replica("A")) as (a,), gateway("http://127.0.0.1:9", a.url, admin_key=KEY, adapt=True) as served:
            served.parts.autoconfiguration.begin()
            examination = served.parts.autoconfiguration
            adapting = served.parts.autoconfiguration.task
            assert examination is not None
            assert adapting is not None
            await examination.looked.wait()
            await admin(served, "DELETE", "/127.0.0.1:9")
            await until(adapting.done)
            assert await writers(served) == {"A"}

    run(test())


def test_the_last_backend_may_go_and_another_come() -> None:
    async def test() -> None:
        async with pool("A", admin_key=KEY) as (served, a), replicas(Replica("B")) as (b,):
            await admin(served, "DELETE", f"/{a.place}")
            assert_error(await post(served, model="m"), 503)
            assert_error(await ask(served, "GET", "/v1/files"), 503)
            assert (await ask(served, "GET", "/ready")).status == 503
            assert (await ask(served, "GET", "/v1/models")).json["data"] == []
            await admin(served, "POST", url=b.url)
            assert await writers(served) == {"B"}
            assert (await ask(served, "GET", "/ready")).status == 200

    run(test())


@pytest.mark.parametrize(
    ("fields", "param", "said"),
    [
        ({}, "url", "this field is required"),
        ({"url": "gpu:8000"}, "url", "did you mean http://gpu:8000"),
        ({"url": "http://user:hunter2@gpu"}, "url", "no user, password"),
        ({"url": "http://gpu", "modells": []}, "modells", "there is no such field (did you mean models?)"),
        ({"url": "http://gpu", "weight": 0}, "weight", "greater than 0"),
        ({"url": "http://gpu", "max_concurrency": 0}, "max_concurrency", "must be at least 1"),
        ({"url": "http://gpu", "name": "a/b"}, "name", "letters, digits"),
        ({"url": "http://gpu", "name": 7}, "name", "letters, digits"),
        ({"url": "http://gpu", "api_key": ["hunter2"]}, "api_key", "expected a string"),
    ],
)
def test_what_is_wrong_with_a_new_backend_is_said_without_its_secrets(fields: dict[str, Any], param: str, said: str) -> None:
    async def test() -> None:
        async with pool("A", admin_key=KEY) as (served, _a):
            headers = {"Authorization": f"Bearer {KEY}"}
            answer = await ask(served, "POST", "/admin/backends", data=json.dumps(fields), headers=headers)
            assert said in assert_error(answer, 400)
            assert answer.json["error"]["param"] == param
            assert b"hunter2" not in answer.body
            assert len(served.parts.pool.members.by_name) == 1

    run(test())


def test_the_store_of_a_gateway_outlives_its_backends() -> None:
    async def test() -> None:
        async with pool("A", admin_key=KEY, store="memory") as (served, a), replicas(Replica("B")) as (b,):
            final = (await post(served, model="m")).final
            await admin(served, "POST", url=b.url)
            await admin(served, "DELETE", f"/{a.place}")
            following = (await post(served, model="m", previous_response_id=final["id"])).final
            assert text_of(following) == "B"
            assert [message["content"] for message in b.asked[-1]["messages"]] == ["hi", "A", "hi"]

    run(test())


# ---- SIGHUP -----------------------------------------------------------------------------------------------------------


def configured(file: Path, *several: Replica, **more: Any) -> None:
    """Write the settings file."""
    file.write_text(json.dumps({"backends": {one.name: {"url": one.url} for one in several}, **more}), encoding="utf-8")


async def said(running: Program, text: str) -> str:
    """Return the next log line with this text."""
    assert running.process.stderr is not None
    while text not in (line := (await asyncio.wait_for(running.process.stderr.readline(), PATIENCE)).decode()):
        assert line, f"the program ended before it said {text!r}"
    return line


async def answered(running: Program, number: int = 4) -> set[str]:
    """Return the names of the backends that answer so many requests."""
    served = Served(f"http://127.0.0.1:{running.port}", cast(Any, None))
    return await writers(served, number)


@pytest.mark.slow
def test_sighup_reads_the_backends_anew_and_a_wrong_file_changes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "gateway.yaml"

    async def test() -> None:
        async with replicas(Replica("A"), Replica("B")) as (a, b):
            configured(file, a)
            async with program(None, "--config", str(file)) as running:
                assert await answered(running) == {"A"}
                configured(file, a, b)
                running.process.send_signal(signal.SIGHUP)
                await said(running, "settings reloaded backends=2")
                await until(lambda: b.checks)
                assert await answered(running) == {"A", "B"}
                for wrong in ("backends: {A: {url: nowhere}}", "backends: {}", "colour: red", "\x00"):
                    file.write_text(wrong, encoding="utf-8")
                    running.process.send_signal(signal.SIGHUP)
                    line = await said(running, "settings not reloaded")
                    assert "error=" in line
                assert await answered(running) == {"A", "B"}
                configured(file, b)
                running.process.send_signal(signal.SIGHUP)
                await said(running, "settings reloaded backends=1")
                assert await answered(running) == {"B"}
                running.process.send_signal(signal.SIGTERM)
                assert (await running.exit())[0] == 0

    run(test())


@pytest.mark.slow
def test_several_urls_on_the_command_line() -> None:
    async def test() -> None:
        async with replicas(Replica("A"), Replica("B")) as (a, b), program(a.url, "--backend", b.url) as running:
            assert await answered(running) == {"A", "B"}

    run(test())


def test_a_change_of_the_settings_leaves_what_is_under_way_alone() -> None:
    async def test() -> None:
        async with replicas(Replica("A"), Replica("B")) as (a, b), gateway(backends={"one": {"url": a.url}}) as served:
            a.does = "hang"
            running = asyncio.create_task(post(served, model="m"))
            await until(lambda: a.active)
            moved = Settings(backends={"one": {"url": b.url, "aliases": {"gpt": "m"}}})
            served.parts.pool.members.apply(specs_of(moved))
            assert text_of((await post(served, model="gpt")).final) == "B"
            renamed = Settings(backends={"one": {"url": b.url, "aliases": {"gpt-5": "m"}}})
            before = served.parts.pool.members.by_name["one"]
            served.parts.pool.members.apply(specs_of(renamed))
            assert served.parts.pool.members.by_name["one"] is before  # its connections stay
            assert text_of((await post(served, model="gpt-5")).final) == "B"
            a.go_on.set()
            assert text_of((await running).final) == "A"
            await until(lambda: not served.parts.pool.members.leaving)
            assert served.metric("backend_requests_in_flight", backend="one") == 0

    run(test())
