"""Backends that a file names come and go with it, as clients and operators see them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from responses_gateway.settings import Settings
from responses_gateway.settings.load import load
from tests.backend.controlled_backends import Replica, replicas, text_of
from tests.server.gateway_process import program, statuses_of_some
from tests.server.running_gateway import Answer, Served, ask, assert_error, gateway, post, run, until

KEY = "an-administrators-key"
_HUGE = "1" + "0" * 400
BROKEN = [
    "", "[", '[{"targets": "x"}]', '[{"targets": ["no-port"]}]', '[{"labels": {}}]',
    f'[{{"targets": ["a:1"], "labels": {{"weight": {_HUGE}}}}}]', '!!int ""', "!!timestamp x", "!!bool x", "? {a: b}\n: c",
    "- &a [*a]", "- targets: [a:1]\n  labels: {__scheme__: [http]}",
    "- &a {targets: [" + "a:1, " * 3000 + "]}\n" + "- *a\n" * 100_000,
]  # fmt: skip


def write(file: Path, *targets: str, **labels: Any) -> None:
    """Replace a file, as an atomic change does."""
    new = file.with_suffix(".new")
    new.write_text(json.dumps([{"targets": list(targets), "labels": labels}]), encoding="utf-8")
    new.replace(file)


@asynccontextmanager
async def pooled(files: str, **settings: Any) -> AsyncIterator[Served]:
    """Serve the gateway before a pool that files name."""
    details = {"file": [files], "interval": 0.1, **settings.pop("pool", {})}
    wanted = {"admin_key": KEY, "adapt": False, "queue_timeout": 0.2, "health_interval": 0.1, **settings}
    async with gateway(pools={"gpu": details}, **wanted) as served:
        yield served


async def listed(served: Served) -> dict[str, dict[str, Any]]:
    """Return the backends that `/admin/backends` shows, by their place."""
    answer = await ask(served, "GET", "/admin/backends", headers={"Authorization": f"Bearer {KEY}"})
    return {one["name"].removeprefix("gpu:"): one for one in answer.json["data"]}


async def becomes(served: Served, condition: Callable[[dict[str, dict[str, Any]]], bool]) -> None:
    """Wait until the list of backends is as wanted."""
    async with asyncio.timeout(30):
        while not condition(await listed(served)):  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def writers(served: Served, number: int = 6) -> set[str]:
    """Return the names of the backends that answer so many requests."""
    return {text_of((await post(served, model="m", store=False)).final) for _ in range(number)}


def test_backends_come_and_go_with_the_file_and_streams_stay(tmp_path: Path) -> None:
    async def test() -> None:
        file = tmp_path / "gpu.json"
        async with replicas(Replica("A"), Replica("B")) as (a, b):
            write(file, a.place)
            async with pooled(str(file)) as served:
                assert await writers(served) == {"A"}
                shown = (await listed(served))[a.place]
                assert [shown[name] for name in ("source", "pool", "state")] == ["file", "gpu", "ready"]
                a.does = "hang"
                slow = asyncio.create_task(post(served, model="m"))
                await until(lambda: a.active)
                write(file, b.place, weight="2")
                await becomes(served, lambda found: found[a.place]["leaving"] and found.get(b.place, {}).get("models"))
                found = await listed(served)
                assert (found[a.place]["state"], found[b.place]["weight"]) == ("draining", 2)
                assert await writers(served) == {"B"}
                a.go_on.set()
                assert text_of((await slow).final) == "A"
                await becomes(served, lambda found: set(found) == {b.place})
                assert served.metric("pool_members", pool="gpu", source="file", state="ready") == 1

    run(test())


@pytest.mark.slow
def test_a_broken_file_changes_nothing_and_says_so_and_the_others_count(tmp_path: Path) -> None:
    async def test() -> None:
        async with replicas(Replica("A"), Replica("B")) as (a, b):
            one = tmp_path / "one.json"
            write(one, a.place)
            async with pooled(str(tmp_path / "*.json"), log_level="info") as served:
                for broken in BROKEN:
                    one.write_text(broken)
                    await until(lambda: served.metric("pool_source_stale_seconds", pool="gpu", source="file") > 0)
                    assert await writers(served) == {"A"}
                    assert str(one) in (await pool_of(served))["problem"]
                write(tmp_path / "two.json", b.place)
                await becomes(served, lambda found: bool(found.get(b.place, {}).get("models")))
                assert set(await listed(served)) == {a.place, b.place}
                one.unlink()
                await becomes(served, lambda found: set(found) == {b.place})
                assert (await pool_of(served))["problem"] is None
                assert await writers(served) == {"B"}

    run(test())


async def pool_of(served: Served) -> dict[str, Any]:
    answer = await ask(served, "GET", "/admin/backends", headers={"Authorization": f"Bearer {KEY}"})
    found: dict[str, Any] = answer.json["pools"][0]
    return found


def test_an_empty_pool_is_not_ready_and_its_requests_wait_for_a_member(tmp_path: Path) -> None:
    async def test() -> None:
        file = tmp_path / "gpu.json"
        async with replicas(Replica("A")) as (a,), pooled(str(file)) as served:
            assert (await ask(served, "GET", "/ready")).status == 503
            assert "there is no file" in (await pool_of(served))["problem"]
            refused = await post(served, model="m")
            assert_error(refused, 503)
            assert int(refused.headers["retry-after"]) >= 1
            write(file)
            await until(lambda: served.metric("pool_source_stale_seconds", pool="gpu", source="file") == 0)
            assert (await ask(served, "GET", "/ready")).status == 503
            write(file, a.place)
            await becomes(served, lambda found: found.get(a.place, {}).get("state") == "ready")
            assert (await ask(served, "GET", "/ready")).status == 200
            assert await writers(served) == {"A"}
            assert_error(await post(served, model="another"), 404, "model_not_found")
            write(file)
            await becomes(served, lambda found: not found)
            assert_error(await post(served, model="m"), 503)

    run(test())


def test_a_request_that_waits_for_the_first_member_gets_it(tmp_path: Path) -> None:
    async def test() -> None:
        file = tmp_path / "gpu.json"
        async with replicas(Replica("A")) as (a,), pooled(str(file), queue_timeout=30) as served:
            waiting = asyncio.create_task(post(served, model="m"))
            await until(lambda: served.parts.pool.places.queued)
            write(file, a.place)
            assert text_of((await waiting).final) == "A"

    run(test())


def test_a_member_cannot_be_removed_by_hand_but_drained(tmp_path: Path) -> None:
    async def test() -> None:
        file = tmp_path / "gpu.yaml"
        async with replicas(Replica("A"), Replica("B"), Replica("C")) as (a, b, c):
            file.write_text(f"- targets: ['{a.place}', '{b.place}']\n")
            async with pooled(str(file), backends={"fixed": {"url": c.url}}) as served:

                async def admin(method: str, path: str) -> Answer:
                    return await ask(served, method, f"/admin/backends/{path}", headers={"Authorization": f"Bearer {KEY}"})

                assert_error(await admin("DELETE", f"gpu:{a.place}"), 409, "member_of_a_pool")
                assert (await admin("POST", f"gpu:{a.place}/drain")).json["state"] == "draining"
                assert (await admin("DELETE", "fixed")).status == 200
                file.write_text(f"- targets: ['{a.place}', '{b.place}', '127.0.0.1:9']\n")
                await becomes(served, lambda found: "127.0.0.1:9" in found)
                assert "fixed" not in await listed(served)  # what was changed by hand stays so
                assert await writers(served) == {"B"}

    run(test())


@pytest.mark.slow
@pytest.mark.parametrize("workers", [2, 1], ids=["2 workers", "1 process"])
def test_all_workers_follow_one_watch_and_pools_are_reloaded(tmp_path: Path, workers: int) -> None:
    async def test() -> None:
        file = tmp_path / "gpu.json"
        settings = tmp_path / "gateway.yaml"

        def configure(*pools: str) -> None:
            details = {name: {"file": str(file), "interval": 0.1, "models": ["simulator"]} for name in pools}
            settings.write_text(json.dumps({"pools": details, "adapt": False, "store": "none", "workers": workers}))

        configure("gpu")
        async with replicas(Replica("A", ("simulator",)), Replica("B", ("simulator",))) as (a, b):
            write(file, a.place)
            async with program("--config", str(settings), "--queue-timeout", "1") as running:
                assert await statuses_of_some(running, 6) == {"completed"}
                assert len(a.asked) == 6
                write(file, b.place)
                await running.says("backend removed", workers)
                assert await statuses_of_some(running, 6) == {"completed"}
                assert len(b.asked) == 6
                configure("other")
                running.process.send_signal(1)
                await running.says(f"backend added backend=other:{b.place}", workers)
                await running.says(f"backend removed backend=gpu:{b.place}", workers)
                assert await statuses_of_some(running, 6) == {"completed"}

    run(test())


@pytest.mark.parametrize(
    ("details", "complaint"),
    [
        ({}, "a pool needs exactly one of `dns`, `file` and `kubernetes`"),
        ({"dns": "gpu:8000", "file": ["x"]}, "(dns and file are given)"),
        ({"dns": "gpu"}, "dns: expected a name and a port"),
        ({"kubernetes": "a/b/c"}, "kubernetes: expected the name of a service"),
        ({"file": ["x"], "port": "http"}, "`port` has no effect with `file`"),
        ({"kubernetes": "vllm", "interval": 3}, "`interval` has no effect with `kubernetes`"),
        ({"file": ["x"], "interval": 3601}, "interval: must be at most 3600"),
        ({"file": ["x"], "intervall": 3}, "unknown key intervall (did you mean interval?)"),
        ({"kubernetes": "vllm", "api": "http://10.0.0.1"}, "api: expected the URL of an API server"),
    ],
)
def test_settings_that_contradict_each_other_are_refused_by_name(details: dict[str, Any], complaint: str) -> None:
    with pytest.raises(Exception, match="pools") as refused:
        load({"pools": {"gpu": details}}, None, {})
    assert complaint in str(refused.value)


def test_a_pool_and_a_backend_have_different_names() -> None:
    with pytest.raises(ValueError, match="the same name gpu"):
        Settings(backends={"gpu": {"url": "http://x"}}, pools={"gpu": {"file": ["x"]}})


@pytest.mark.parametrize("name", ["gpu..lan", "x" * 64], ids=["an empty label", "a long label"])
def test_a_target_whose_name_cannot_be_looked_up_is_unhealthy_as_one_that_is_away(name: str, tmp_path: Path) -> None:
    async def test() -> None:
        write(tmp_path / "gpu.json", f"{name}:8000")
        async with pooled(str(tmp_path / "gpu.json"), store="none") as served:
            await becomes(served, lambda found: found[f"{name}:8000"]["healthy"] is False)
            answer = await post(served, model="m")
            assert_error(answer, 502, "server_error")
            assert "name cannot be resolved" in answer.json["error"]["message"]

    run(test())
