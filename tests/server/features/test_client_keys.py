"""`/admin/keys`: keys of clients that are made, listed and revoked while the gateway runs."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import pytest

from responses_gateway.server.features.client_keys import stored_keys
from responses_gateway.server.lifespan import open_parts
from responses_gateway.server.process.reloading import Reloading
from responses_gateway.settings import Settings, SettingsError
from responses_gateway.settings.keys import hash_of
from responses_gateway.simulator import RECEIVED, create_app, serving
from responses_gateway.state import StoreUnavailable, client_keys
from tests.server.gateway_process import SEVERAL, program
from tests.server.running_gateway import Answer, Reachable, Served, ask, assert_error, gateway, post, run, simulated, until
from tests.thoroughness import one_in
from tests.waiting import PATIENCE

if sys.platform == "linux":
    import resource

ADMIN = "an-administrators-key"
ALICE = "rp_alice-0123456789"
KEYS = {"alice": hash_of(ALICE)}
TEAM = {"red": {"models": ["simulator"]}}


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


async def admin(served: Reachable, method: str, which: str = "", key: str | None = ADMIN, **fields: Any) -> Answer:
    headers = {} if key is None else bearer(key)
    path = f"/admin/keys/{which}" if which else "/admin/keys"
    return await ask(served, method, path, headers=headers, **({"json": fields} if fields else {}))


async def status(served: Reachable, key: str, **fields: Any) -> int:
    return (await post(served, headers=bearer(key), **fields)).status


async def made(served: Reachable, name: str, **fields: Any) -> str:
    """Have a key made, and return it."""
    answer = await admin(served, "POST", name=name, **fields)
    assert answer.status == 201, answer.body
    key: str = answer.json["key"]
    return key


async def names(served: Reachable) -> list[tuple[str, str]]:
    return [(key["name"], key["source"]) for key in (await admin(served, "GET")).json["data"]]


@asynccontextmanager
async def keyed(**settings: Any) -> AsyncIterator[Served]:
    """Serve a gateway with a key of the settings."""
    async with simulated(**{"admin_key": ADMIN, "api_keys": KEYS, "store": "memory", **settings}) as served:
        yield served


# ---- one gateway -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_key_is_made_opens_the_gateway_and_is_revoked() -> None:
    async def test() -> None:
        async with keyed() as served:
            answer = await admin(served, "POST", name="bob", requests_per_minute=60)
            assert (answer.status, answer.headers["cache-control"]) == (201, "no-store")
            made_key = answer.json
            bob = made_key.pop("key")
            assert bob.startswith("rp_")
            assert made_key == {
                "object": "api_key", "name": "bob", "source": "admin", "created_at": made_key["created_at"], "problem": None,
                "requests_per_minute": 60,
            }  # fmt: skip
            assert made_key["created_at"] > 1_700_000_000
            assert (await status(served, bob), await status(served, ALICE)) == (200, 200)
            assert served.metric("key_requests_total", key="bob") == 1
            assert served.metric("admin_keys") == 1
            assert (await admin(served, "GET")).json == {
                "object": "list",
                "data": [
                    {"object": "api_key", "name": "alice", "source": "settings", "created_at": None, "problem": None},
                    made_key,
                ],
            }
            assert (await admin(served, "DELETE", "bob")).json == {"object": "api_key", "name": "bob", "deleted": True}
            assert (await status(served, bob), await status(served, ALICE)) == (401, 200)
            assert await names(served) == [("alice", "settings")]
            assert_error(await admin(served, "DELETE", "bob"), 404, "not_found")
            assert bob != await made(served, "bob")
            assert await status(served, bob) == 401

    run(test())


@pytest.mark.parametrize("header", [None, "", f"Basic {ADMIN}", f"Bearer {ADMIN}x", f"Bearer {ALICE}"])
def test_without_the_admin_key_nothing_is_told_and_nothing_done(header: str | None) -> None:
    async def test() -> None:
        async with keyed() as served:
            bob = await made(served, "bob")
            headers = {} if header is None else {"Authorization": header}
            for method, path in (("GET", ""), ("POST", ""), ("DELETE", "/bob"), ("DELETE", "/nobody")):
                answer = await ask(served, method, f"/admin/keys{path}", headers=headers, json={"name": "carol"})
                assert_error(answer, 401, "invalid_api_key")
            assert await names(served) == [("alice", "settings"), ("bob", "admin")]
            assert await status(served, bob) == 200

    run(test())


def test_a_revoked_key_ends_on_an_open_websocket_and_what_it_has_running_does_not() -> None:
    async def test() -> None:
        async with keyed() as served, aiohttp.ClientSession() as session:
            bob = await made(served, "bob")
            running = asyncio.create_task(post(served, headers=bearer(bob), input="tokens: 40 tps: 100"))
            await until(lambda: served.parts.in_flight.activities, "it runs")
            async with session.ws_connect(f"{served.url}/v1/responses", headers=bearer(bob)) as socket:
                await admin(served, "DELETE", "bob")
                await socket.send_json({"type": "response.create", "model": "simulator", "input": "hi"})
                refusal = await socket.receive_json(timeout=30)
                assert (refusal["status"], refusal["error"]["code"]) == (401, "invalid_api_key")
            assert (await running).final["status"] == "completed"

    run(test())


def test_the_limits_quotas_models_and_team_of_a_key_apply() -> None:
    async def test() -> None:
        async with keyed(teams=TEAM, requests_per_minute=3) as served:
            limited = await made(served, "limited", requests_per_minute=1)
            as_all = await made(served, "as-all")
            used_up = await made(served, "used-up", tokens_per_day=1, requests_per_minute=0)
            elsewhere = await made(served, "elsewhere", models=["other-*"])
            member = await made(served, "member", team="red")
            assert [await status(served, limited) for _ in range(2)] == [200, 429]
            assert [await status(served, as_all) for _ in range(4)] == [200, 200, 200, 429]
            assert await status(served, used_up) == 200
            await until_refused(served, used_up)
            assert await status(served, elsewhere) == 404
            assert (await status(served, member), await status(served, member, model="m")) == (200, 404)
            rows = (await ask(served, "GET", "/admin/usage", headers=bearer(ADMIN))).json
            assert "used-up" in json.dumps(rows)

    run(test())


async def until_refused(served: Served, key: str) -> None:
    """Ask until the quota has been charged."""
    async with asyncio.timeout(30):
        while (answer := await post(served, headers=bearer(key))).status == 200:
            pass
    assert_error(answer, 429, "insufficient_quota")


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({}, "name"),
        ({"name": 3}, "name"),
        ({"name": "a b"}, "name"),
        ({"name": "-"}, "name"),
        ({"name": "x" * 65}, "name"),
        ({"name": "bob", "hash": hash_of("a-key-of-my-own-choice")}, "hash"),
        ({"name": "bob", "key": "a-key-of-my-own-choice"}, "key"),
        ({"name": "bob", "token_per_day": 1}, "token_per_day"),
        ({"name": "bob", "tokens_per_day": -1}, "tokens_per_day"),
        ({"name": "bob", "tokens_per_day": "many"}, "tokens_per_day"),
        ({"name": "bob", "models": []}, "models"),
        ({"name": "bob", "models": [7]}, "models.0"),
        ({"name": "bob", "team": "blue"}, "team"),
        ({"name": "bob", "tokens_per_day": 5, "soft_tokens_per_day": 6}, "soft_tokens_per_day"),
        ({"name": "bob", "tokens_per_day": 5, "tokens_per_month": 4}, "tokens_per_day"),
    ],
    ids=str,
)
def test_a_field_that_is_wrong_is_named(fields: dict[str, Any], field: str) -> None:
    async def test() -> None:
        async with keyed(teams=TEAM) as served:
            answer = await ask(served, "POST", "/admin/keys", headers=bearer(ADMIN), json=fields)
            message = assert_error(answer, 400, "invalid_value")
            assert answer.json["error"]["param"] == field
            assert "own-choice" not in message
            assert await names(served) == [("alice", "settings")]

    run(test())


@pytest.mark.parametrize("amount", [0, 2**53 - 1, 2**53, 10**400], ids=["0", "the most", "too much", "far too much"])
def test_limits_are_amounts_that_can_be_counted(amount: int) -> None:
    async def test() -> None:
        async with keyed() as served:
            answer = await admin(served, "POST", name="bob", tokens_per_day=amount, requests_per_minute=amount)
            if amount < 2**53:
                assert await status(served, answer.json["key"]) == 200
            else:
                assert_error(answer, 400, "invalid_value")
            assert await status(served, ALICE) == 200

    run(test())


def test_bodies_that_are_none_or_too_long_are_refused() -> None:
    async def test() -> None:
        async with keyed() as served:
            for body, expected in (("", 400), ("[]", 400), ('{"name": ', 400), ('{"name": "' + "x" * 9_000 + '"}', 413)):
                answer = await ask(served, "POST", "/admin/keys", headers=bearer(ADMIN), data=body)
                assert_error(answer, expected)

    run(test())


def test_a_name_is_used_once_and_keys_of_the_settings_stay_theirs() -> None:
    async def test() -> None:
        async with keyed() as served:
            await made(served, "bob")
            for name in ("bob", "alice"):
                answer = await admin(served, "POST", name=name)
                assert_error(answer, 409, "already_exists")
                assert answer.json["error"]["param"] == "name"
            assert "settings" in assert_error(await admin(served, "DELETE", "alice"), 409, "key_of_settings")
            for name in ("nobody", "%00", "x" * 200, "%ED%A0%80"):
                assert_error(await admin(served, "DELETE", name), 404, "not_found")
            assert await status(served, ALICE) == 200

    run(test())


def test_there_is_an_end_of_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_keys, "MOST_KEYS", 2)

    async def test() -> None:
        async with keyed() as served:
            await made(served, "one")
            await made(served, "two")
            assert_error(await admin(served, "POST", name="three"), 409, "too_many_keys")
            await admin(served, "DELETE", "one")
            await made(served, "three")

    run(test())


def test_a_key_is_told_though_the_store_fails_right_behind_its_row(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with keyed() as served:
            with monkeypatch.context() as failing:

                async def read(*_: Any) -> None:
                    raise StoreUnavailable("it was shut down")

                failing.setattr(client_keys.ClientKeyTable, "read", read)
                bob = await made(served, "bob")
            assert ("bob", "admin") in await names(served)
            assert await status(served, bob) == 200

    run(test())


def test_a_first_key_of_an_open_gateway_is_refused_because_it_would_lock_all_others_out() -> None:
    async def test() -> None:
        async with keyed(api_keys={}) as served:
            assert "everybody" in assert_error(await admin(served, "POST", name="bob"), 409, "no_keys_in_settings")
            assert (await post(served)).status == 200
            assert await names(served) == []

    run(test())


def test_a_gateway_that_identifies_its_clients_otherwise_takes_keys() -> None:
    async def test() -> None:
        proxy = {"addresses": ["10.0.0.1"], "name_header": "X-User"}
        async with keyed(api_keys={}, trusted_proxy=proxy) as served:
            bob = await made(served, "bob")
            assert (await status(served, bob), await status(served, "rp_somebody-else-0123")) == (200, 401)

    run(test())


def test_without_a_store_there_are_the_keys_of_the_settings_alone() -> None:
    async def test() -> None:
        async with keyed(store="none") as served:
            assert "store" in assert_error(await admin(served, "POST", name="bob"), 409, "no_store")
            assert await names(served) == [("alice", "settings")]
            assert_error(await admin(served, "DELETE", "bob"), 404, "not_found")
            assert_error(await admin(served, "DELETE", "alice"), 409, "key_of_settings")

    run(test())


def contents(folder: Path) -> list[bytes]:
    return [path.read_bytes() for path in folder.rglob("*") if path.is_file()]


def test_a_key_never_shows_in_logs_lists_the_store_or_at_the_backend(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    records = tmp_path / "records"

    async def test() -> None:
        backend = create_app()
        settings = {"admin_key": ADMIN, "api_keys": KEYS, "store": str(tmp_path / "s.sqlite3"), "record": records}
        async with serving(backend) as url, gateway(url, access_log=True, **settings) as served:
            bob = await made(served, "bob")
            await post(served, headers=bearer(bob))
            listed = (await admin(served, "GET")).body
            shown = [(await ask(served, "GET", path, headers=bearer(ADMIN))).body for path in ("/ui/api/usage", "/metrics")]
            await admin(served, "DELETE", "nobody")
            added = [getattr(record, "fields", {}) for record in caplog.records if record.getMessage() == "client key added"]
            assert added == [{"key": "bob"}]
            seen = [
                listed,
                *shown,
                repr([vars(record) for record in caplog.records]).encode(),
                repr(backend[RECEIVED]).encode(),
            ]
        seen += contents(tmp_path)
        assert any(hash_of(bob).encode() in each for each in seen), "the store has the hash"
        assert not [each for each in seen if bob.encode() in each]
        assert hash_of(bob).encode() not in listed

    run(test())


# ---- settings that change ----------------------------------------------------------------------------------------------


def test_settings_that_are_read_again_keep_the_keys_and_come_first() -> None:
    async def test() -> None:
        async with keyed(teams=TEAM) as served:
            bob = await made(served, "bob", team="red")
            before = served.parts.live.given
            reloading = Reloading(served.parts)
            theirs = "rp_bob-of-the-settings"
            both = Settings.model_validate({**KEYS_AND_TEAMS, "api_keys": {**KEYS, "bob": hash_of(theirs)}})
            reloading.apply(before.model_copy(update={"api_keys": both.api_keys}))
            assert [await status(served, key) for key in (bob, theirs, ALICE)] == [401, 200, 200]
            assert await names(served) == [("alice", "settings"), ("bob", "settings"), ("bob", "admin")]
            reloading.apply(before.model_copy(update={"teams": {}}))
            assert [await status(served, key) for key in (bob, theirs, ALICE)] == [401, 401, 200]
            assert (await admin(served, "GET")).json["data"][1]["problem"] == "its team is not in the settings"
            reloading.apply(before)
            assert await status(served, bob) == 200
            await admin(served, "DELETE", "bob")
            assert await status(served, bob) == 401

    run(test())


KEYS_AND_TEAMS = {"api_keys": KEYS, "teams": TEAM}


def test_keys_survive_a_restart_and_open_nothing_without_an_admin_key(tmp_path: Path) -> None:
    async def test() -> None:
        store = str(tmp_path / "s.sqlite3")
        async with keyed(store=store) as served:
            bob = await made(served, "bob", concurrent_requests=5)
        async with keyed(store=store) as served:
            assert await status(served, bob) == 200
            assert (await admin(served, "GET")).json["data"][1]["concurrent_requests"] == 5
        async with keyed(store=store, admin_key=None) as served:
            assert (await status(served, bob), await status(served, ALICE)) == (401, 200)
        with pytest.raises(SettingsError, match="everybody could use"):
            async with open_parts(Settings(backend=["http://127.0.0.1:1"], store=store, admin_key=ADMIN)):
                pass

    run(test())


# ---- several -----------------------------------------------------------------------------------------------------------


async def statuses(served: Reachable, key: str) -> set[int]:
    """Ask often, each time on a connection of its own, which any worker may get."""
    return set(await asyncio.gather(*(status(served, key) for _ in range(12))))


class Place(NamedTuple):
    url: str


@pytest.mark.slow
@pytest.mark.parametrize("more", one_in(2, [("--ui", "off"), (), ("--operations-port", "0")]), ids=" ".join)
def test_every_worker_takes_a_change_before_it_is_answered(more: tuple[str, ...], tmp_path: Path) -> None:
    async def test() -> None:
        store = str(tmp_path / "s.sqlite3")
        flags = ("--simulator", *SEVERAL, "--no-adapt", "--store", store, "--admin-key", ADMIN, *more)
        async with program(*flags, RESPONSES_GATEWAY_API_KEYS=f"alice={ALICE}") as running:
            operators = Place(running.operations if "--operations-port" in more else running.url)
            for _ in range(3):
                bob = await made(operators, "bob")
                assert await statuses(running, bob) == {200}
                assert {tuple(await names(operators)) for _ in range(6)} == {(("alice", "settings"), ("bob", "admin"))}
                await admin(operators, "DELETE", "bob")
                assert await statuses(running, bob) == {401}
            assert bob not in running.said

    run(test())


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="no limit of another process can be set here")
def test_a_key_that_is_made_where_no_file_can_be_opened_is_told(tmp_path: Path) -> None:
    """It is stored by then, and nobody could be told it later."""

    async def test() -> None:
        flags = ("--simulator", *SEVERAL, "--no-adapt", "--store", str(tmp_path / "s.sqlite3"), "--admin-key", ADMIN)
        async with program(*flags, RESPONSES_GATEWAY_API_KEYS=f"alice={ALICE}") as running, aiohttp.ClientSession() as session:
            url, headers = f"{running.url}/admin/keys", {"Authorization": f"Bearer {ADMIN}"}
            async with session.get(url, headers=headers) as answer:  # a connection that will be used again
                assert answer.status == 200
            limits = {pid: resource.prlimit(pid, resource.RLIMIT_NOFILE) for pid in running.workers}
            for pid, (_, most) in limits.items():
                resource.prlimit(pid, resource.RLIMIT_NOFILE, (3, most))
            async with session.post(url, json={"name": "bob"}, headers=headers) as answer:
                assert answer.status == 201, await answer.text()
                bob = (await answer.json())["key"]
            for pid, before in limits.items():
                resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
            async with asyncio.timeout(PATIENCE):
                while await statuses(running, bob) != {200}:
                    pass

    run(test())


@pytest.mark.slow
def test_keys_stay_while_settings_are_read_again_and_workers_are_replaced(tmp_path: Path) -> None:
    async def test() -> None:
        file = tmp_path / "gateway.yaml"
        settings = {"admin_key": ADMIN, "store": str(tmp_path / "s.sqlite3"), "workers": 2, "adapt": False}
        async with serving(create_app()) as url:
            write(file, backend=url, api_keys=KEYS, **settings)
            async with program("--config", str(file)) as running:
                bob = await made(running, "bob")
                carol = await made(running, "carol")
                write(file, backend=url, api_keys={**KEYS, "dave": hash_of("rp_dave-0123456789")}, **settings)
                running.signal(signal.SIGHUP)
                async with asyncio.timeout(30):
                    while await statuses(running, "rp_dave-0123456789") != {200}:
                        pass
                assert (await statuses(running, bob), await statuses(running, carol)) == ({200}, {200})
                await admin(running, "DELETE", "carol")
                running.signal(signal.SIGUSR2)
                await running.says(" rolled ")
                assert (await statuses(running, bob), await statuses(running, carol)) == ({200}, {401})
                await admin(running, "DELETE", "bob")
                assert await statuses(running, bob) == {401}

    run(test())


def write(file: Path, **settings: Any) -> None:
    file.write_text(json.dumps(settings), encoding="utf-8")


def test_replicas_take_a_change_within_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_keys, "INTERVAL", 0.02)

    async def test() -> None:
        store = str(tmp_path / "s.sqlite3")
        async with keyed(store=store) as one, keyed(store=store) as two:
            bob = await made(one, "bob")
            carol = await made(two, "carol")
            await becomes(two, bob, 200)
            await becomes(one, carol, 200)
            await admin(two, "DELETE", "bob")
            await becomes(one, bob, 401)
            assert await status(one, carol) == 200
            for served in (one, two):
                await served.parts.pool.close()

    run(test())


def test_a_key_that_another_version_made_keeps_no_change_from_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(stored_keys, "INTERVAL", 0.02)

    async def test() -> None:
        store = str(tmp_path / "s.sqlite3")
        async with keyed(store=store) as one, keyed(store=store) as two:
            bob = await made(one, "bob")
            await becomes(two, bob, 200)
            newer = "rp_newer-0123456789"
            assert one.parts.store is not None
            rows = client_keys.ClientKeyTable(one.parts.store.database)
            await rows.add("newer", hash_of(newer), json.dumps({"images_per_day": 5}))
            await until(lambda: "client key of another version" in caplog.messages, "it is read")
            assert (await status(two, bob), await status(two, newer)) == (200, 401)
            listed = (await admin(two, "GET")).json["data"]
            assert [(key["name"], key["problem"]) for key in listed][:2] == [("alice", None), ("bob", None)]
            assert (listed[2]["images_per_day"], "another version" in listed[2]["problem"]) == (5, True)
            await admin(one, "DELETE", "bob")
            await becomes(two, bob, 401)
        async with keyed(store=store) as restarted:
            assert await status(restarted, ALICE) == 200
            await admin(restarted, "DELETE", "newer")
            assert await names(restarted) == [("alice", "settings")]

    run(test())


async def becomes(served: Served, key: str, wanted: int) -> None:
    async with asyncio.timeout(30):
        while await status(served, key) != wanted:
            pass
