"""SIGHUP: settings that are read again take effect at once, or the log says with which restart."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from responses_gateway.server.process.backend_state import RELOAD
from responses_gateway.server.process.backend_sync import WorkerSync
from responses_gateway.server.process.reloading import Reloading
from responses_gateway.server.process.signals import reload_at_hangup
from responses_gateway.settings import Settings
from responses_gateway.settings.keys import hash_of
from responses_gateway.settings.reloading import reloaded
from responses_gateway.simulator import DIALECTS, SimulatorOptions, create_app, serving
from tests.backend.controlled_backends import Replica, replicas
from tests.server.gateway_process import Program, program
from tests.server.running_gateway import gateway, run, until
from tests.server.scripted_backend import Connection, backend

ALICE = "rp_alice-0123456789"
BOB = "rp_bob-0123456789"
WORKERS = pytest.mark.parametrize("workers", [2, 1], ids=["2 workers", "1 process"])


def write(file: Path, url: str, **more: Any) -> None:
    file.write_text(json.dumps({"backend": url, "adapt": False, "store": "none", **more}), encoding="utf-8")


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


async def status(running: Program, key: str, request_id: str = "x", **fields: Any) -> int:
    """Ask on a connection of its own, which any worker may get."""
    headers = {**bearer(key), "X-Request-Id": request_id}
    question = {"model": "simulator", "input": "hi", **fields}
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{running.url}/v1/responses", json=question, headers=headers) as answer,
    ):
        await answer.read()
        return answer.status


async def becomes(running: Program, key: str, wanted: int, **fields: Any) -> None:
    """Wait until every worker answers so."""
    async with asyncio.timeout(30):
        while {await status(running, key, **fields) for _ in range(12)} != {wanted}:  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def last(socket: aiohttp.ClientWebSocketResponse, asking: dict[str, Any]) -> dict[str, Any]:
    """Ask on a WebSocket; return the last event of the answer."""
    await socket.send_json(asking)
    while (event := await socket.receive_json(timeout=30))["type"] not in ("response.completed", "error"):
        pass
    found: dict[str, Any] = event
    return found


@WORKERS
def test_a_revoked_key_ends_at_once_also_on_an_open_websocket(tmp_path: Path, workers: int) -> None:
    async def test() -> None:
        file = tmp_path / "gateway.yaml"
        async with serving(create_app()) as url:
            keys = {"alice": hash_of(ALICE), "bob": hash_of(BOB)}
            write(file, url, api_keys=keys, workers=workers)
            async with program("--config", str(file)) as running, aiohttp.ClientSession() as session:
                assert await status(running, BOB) == 200
                asking = {"type": "response.create", "model": "simulator", "input": "hi"}
                async with session.ws_connect(f"{running.url}/v1/responses", headers=bearer(BOB)) as socket:
                    assert (await last(socket, asking))["type"] == "response.completed"
                    write(file, url, api_keys={"alice": hash_of(ALICE)}, workers=workers)
                    running.signal(signal.SIGHUP)
                    await running.says("settings reloaded backends=1 changed=api_keys")
                    await becomes(running, BOB, 401)
                    while (refusal := await last(socket, asking))["type"] != "error":
                        pass  # its worker may be the last one
                    assert (refusal["status"], refusal["error"]["code"]) == (401, "invalid_api_key")
                assert await status(running, ALICE) == 200

    run(test())


@WORKERS
def test_settings_that_change_while_the_gateway_starts_are_read_again(tmp_path: Path, workers: int) -> None:
    """It waits for a backend that does not answer its first health check."""
    asked = asyncio.Event()

    async def play(connection: Connection) -> None:
        asked.set()
        await connection.lost

    async def test() -> None:
        file = tmp_path / "gateway.yaml"
        async with backend(play) as silent, serving(create_app()) as url:
            keys = {"alice": hash_of(ALICE)}
            more = {"backends": {"silent": {"url": silent.url}}, "connect_timeout": 2, "workers": workers}
            write(file, url, api_keys=keys, **more)
            async with program("--config", str(file), starts=False) as running:
                await until(asked.is_set, "a health check")
                write(file, url, api_keys={**keys, "bob": hash_of(BOB)}, **more)
                running.signal(signal.SIGHUP)
                await running.says("settings reloaded backends=2 changed=api_keys")
                await running.says(" listening ")
                await becomes(running, BOB, 200)

    run(test())


@WORKERS
def test_limits_models_and_the_log_level_change_and_the_rest_is_named(tmp_path: Path, workers: int) -> None:
    async def test() -> None:
        file = tmp_path / "gateway.yaml"
        async with serving(create_app()) as url:
            keys = {"alice": hash_of(ALICE)}
            write(file, url, api_keys=keys, workers=workers)
            async with program("--config", str(file)) as running:
                assert await status(running, ALICE, truncation="auto", unheard_of=1) == 200
                limited = {"alice": {"hash": hash_of(ALICE), "requests_per_minute": 5}, "bob": hash_of(BOB)}
                more = {"strict": True, "log_level": "warning", "idle_timeout": 100, "host": "127.0.0.2"}
                write(file, url, api_keys=limited, workers=workers, **more)
                running.signal(signal.SIGHUP)
                await running.says("changed settings need a rolling restart (SIGUSR2): idle_timeout")
                await running.says("changed settings need a restart: host")
                await becomes(running, BOB, 400, unheard_of=1)
                async with asyncio.timeout(30):
                    while await status(running, ALICE) != 429:
                        pass
                assert await status(running, BOB, "quiet") == 200
                running.signal(signal.SIGTERM)
                assert await running.exit() == 0
                assert "quiet" not in running.said

    run(test())


@WORKERS
def test_a_backend_that_is_added_has_what_the_settings_in_force_say_of_all(tmp_path: Path, workers: int) -> None:
    admin_key = "an-administrators-key"

    async def test() -> None:
        file = tmp_path / "gateway.yaml"
        async with replicas(Replica("A"), Replica("B", ("other",))) as (a, b):
            write(file, a.url, backend_api_key="sk-first", admin_key=admin_key, workers=workers)
            async with program("--config", str(file)) as running, aiohttp.ClientSession(headers=bearer(admin_key)) as session:
                write(file, a.url, backend_api_key="sk-second", max_concurrency=8, admin_key=admin_key, workers=workers)
                running.signal(signal.SIGHUP)
                await running.says("settings reloaded backends=1 changed=max_concurrency,backend_api_key")
                async with session.post(f"{running.url}/admin/backends", json={"url": b.url}) as answer:
                    assert answer.status == 201
                async with asyncio.timeout(30):
                    while len(b.authorizations) < 12 or {*b.authorizations[-12:]} != {"Bearer sk-second"}:
                        assert await status(running, "", model="other") in (200, 404)  # a worker may not know of it yet
                async with session.get(f"{running.url}/admin/backends") as answer:
                    shown = (await answer.json())["data"]
                assert [one["max_concurrency"] for one in shown] == [8, 8]

    run(test())


def test_what_was_found_out_of_the_backend_stays_where_the_settings_say_nothing() -> None:
    async def test() -> None:
        options = SimulatorOptions(dialect=DIALECTS["llamacpp"])
        async with serving(create_app(options)) as url, gateway(url, adapt=True) as served:
            parts = served.parts
            parts.autoconfiguration.begin()
            await parts.autoconfiguration.looked.wait()
            found = parts.live.current.settings.named_tool_choice
            assert found == "required"
            reloading = Reloading(parts)
            given = {"backend": parts.settings.backend, "strict": True}
            assert reloading.apply(Settings(**given)).at_once == ["strict"]
            assert (parts.live.current.settings.strict, parts.live.current.settings.named_tool_choice) == (True, found)
            reloading.apply(Settings(**given, named_tool_choice="object"))
            assert parts.live.current.settings.named_tool_choice == "object"
            reloading.apply(Settings(**given))
            assert parts.live.current.settings.named_tool_choice == found
            with pytest.raises(ValueError, match="no_such"):
                reloading.apply(Settings(**given, tool_call_parser="no_such"))
            assert parts.live.current.settings.named_tool_choice == found

    run(test())


def test_what_was_given_and_what_was_found_out_stay_apart() -> None:
    before = Settings(backend=["http://x/v1"], tool_call_parser="hermes")
    read = Settings(backend=["http://x/v1"], reasoning_parser="qwen3", store="none")
    result = reloaded(before, read)
    assert (result.at_once, result.rolling, result.restart) == (["reasoning_parser", "tool_call_parser"], ["store"], [])
    assert result.settings.model_fields_set == {"backend", "reasoning_parser"}
    assert (result.settings.store, result.settings.tool_call_parser) == (before.store, read.tool_call_parser)


@pytest.mark.parametrize(("before", "after"), [({}, {"alice": hash_of(ALICE)}), ({"alice": hash_of(ALICE)}, {})])
def test_no_gateway_is_opened_or_locked_by_a_hangup(before: dict[str, str], after: dict[str, str]) -> None:
    result = reloaded(Settings(api_keys=before), Settings(api_keys=after))
    assert (result.at_once, result.rolling) == ([], ["api_keys"])
    assert result.settings.api_keys.keys() == before.keys()


def test_parsers_that_were_found_out_stay_until_one_is_given() -> None:
    async def test() -> None:
        options = SimulatorOptions(dialect=DIALECTS["vllm-raw"])
        async with serving(create_app(options)) as url, gateway(url, adapt=True) as served:
            parts = served.parts
            parts.autoconfiguration.begin()
            await parts.autoconfiguration.looked.wait()
            found = {"reasoning_parser": "qwen3", "tool_call_parser": "hermes"}
            assert parts.autoconfiguration.taken == found
            reloading = Reloading(parts)
            reloading.apply(Settings(backend=parts.settings.backend, strict=True))
            assert parts.autoconfiguration.taken == found
            reloading.apply(Settings(backend=parts.settings.backend, tool_call_parser="mistral"))
            assert parts.autoconfiguration.taken == {}

    run(test())


@pytest.mark.parametrize("revoked", [True, False])
def test_what_waits_in_a_lane_is_asked_with_the_settings_that_hold_by_then(tmp_path: Path, revoked: bool) -> None:
    """Its error is told on its lane; what runs goes on."""

    async def test() -> None:
        file = tmp_path / "gateway.yaml"
        async with serving(create_app()) as url:
            keys = {"alice": hash_of(ALICE), "bob": hash_of(BOB)}
            write(file, url, api_keys=keys)
            async with (
                program("--config", str(file)) as running,
                aiohttp.ClientSession() as session,
                session.ws_connect(f"{running.url}/v1/responses", headers=bearer(BOB)) as socket,
            ):
                asking = {"type": "response.create", "model": "simulator", "stream_id": "a"}
                await socket.send_json({**asking, "input": "scenario: plain tps: 20"})
                await socket.send_json({**asking, "input": "scenario: plain"})
                assert (await socket.receive_json(timeout=30))["stream_id"] == "a"
                del keys["bob" if revoked else "alice"]
                write(file, url, api_keys=keys)
                running.signal(signal.SIGHUP)
                await running.says("settings reloaded backends=1 changed=api_keys")
                ends = []
                while len(ends) < 2:
                    event = await socket.receive_json(timeout=30)
                    assert event["stream_id"] == "a"
                    if event["type"] in ("response.completed", "error"):
                        ends.append(event.get("status", event["type"]))
                assert ends == ["response.completed", 401 if revoked else "response.completed"]

    run(test())


@pytest.mark.parametrize("is_worker", [True, False], ids=["a worker", "1 process"])
def test_settings_that_were_read_first_are_not_put_in_force_last(is_worker: bool) -> None:
    async def test() -> None:
        async with serving(create_app()) as url, gateway(url) as served:
            parts = served.parts
            reads = [(0.5, "debug"), (0.0, "error")]

            def read() -> Settings:
                seconds, level = reads.pop(0)
                time.sleep(seconds)
                return parts.settings.model_copy(update={"log_level": level})

            if is_worker:
                sync = WorkerSync(parts, lambda _line: None, read)
                sync.receive(RELOAD)
                sync.receive(RELOAD)
                await until(lambda: not reads, "both are read")
                await asyncio.sleep(0.7)
            else:
                again = reload_at_hangup(read, Reloading(parts).apply)
                await asyncio.gather(again(), again())
                asyncio.get_running_loop().remove_signal_handler(signal.SIGHUP)
            assert parts.live.given.log_level == "error"

    run(test())
