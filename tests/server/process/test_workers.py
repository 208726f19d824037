"""Several workers under one parent, as clients and operators see them."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import aiohttp
import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.server.gateway_process import SEVERAL, Program, asking_all_the_time, program, statuses_of_some
from tests.server.running_gateway import RawClient, body_of, final_of, run, until
from tests.waiting import PATIENCE

TWO = ("--simulator", "--workers", "2", "--store", "none")


async def metric(url: str, name: str, **labels: str) -> float:
    """The sum of all samples with these labels."""
    async with aiohttp.ClientSession() as session, session.get(f"{url}/metrics") as answer:
        families = list(text_string_to_metric_families(await answer.text()))
    samples = [sample for family in families for sample in family.samples if sample.name == f"responses_gateway_{name}"]
    return sum(sample.value for sample in samples if labels.items() <= sample.labels.items())


async def shown(running: Program, wanted: float, name: str, **labels: str) -> None:
    """Wait until a metric has a value: a worker tells what it counted once a second."""
    async with asyncio.timeout(PATIENCE):
        while await metric(running.url, name, **labels) != wanted:  # noqa: ASYNC110
            await asyncio.sleep(0.05)


def cpu(pid: int) -> float:
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


def test_both_serve_and_the_metrics_are_the_sum() -> None:
    async def test() -> None:
        async with program(*TWO) as running:
            workers = running.workers
            assert len(workers) == 2
            before = [cpu(pid) for pid in workers]
            for _ in range(3):
                assert await statuses_of_some(running, 20) == {"completed"}
            assert all(cpu(pid) > spent for pid, spent in zip(workers, before, strict=True))
            for _ in range(4):  # whoever is asked
                await shown(running, 60, "requests_total")
                await shown(running, 60, "request_duration_seconds_count")
                await shown(running, 60, "request_duration_seconds_bucket", le="+Inf")
                await shown(running, 0, "requests_in_flight")
                await shown(running, 2, "workers")
                await shown(running, 1, "build_info")
            running.signal(signal.SIGHUP)
            assert await statuses_of_some(running, 10) == {"completed"}
            assert running.workers == workers
            running.signal(signal.SIGTERM)
            assert await running.exit() == 0
            assert "Traceback" not in running.said

    run(test())


def test_a_worker_that_is_killed_comes_back_and_nothing_is_forgotten() -> None:
    async def test() -> None:
        async with program(*TWO) as running:
            assert await statuses_of_some(running, 10) == {"completed"}
            await shown(running, 10, "requests_total")
            victim, other = running.workers
            os.kill(victim, signal.SIGKILL)
            await running.says("worker died")
            assert await statuses_of_some(running, 10) == {"completed"}
            await until(lambda: len(running.workers) == 2 and victim not in running.workers)
            assert other in running.workers
            await shown(running, 2, "workers")
            await shown(running, 20, "requests_total")
            await shown(running, 1, "worker_deaths_total")
            assert 'ended="signal SIGKILL"' in running.said

    run(test())


@pytest.mark.parametrize("keep_alive", [False, True], ids=["new connections", "keep-alive"])
def test_a_rolling_restart_loses_no_request(keep_alive: bool) -> None:
    async def test() -> None:
        async with program(*TWO) as running:
            old = running.workers
            async with asking_all_the_time(running, 6, keep_alive) as outcomes:
                running.signal(signal.SIGUSR2)
                await running.says(" rolled ")
                await until(lambda: not set(old) & set(running.workers), "the old ones ended", 120)
                seen = len(outcomes)
                await until(lambda: len(outcomes) > seen + 20, "the new ones serve", 120)
            assert set(outcomes) == {"completed"}
            assert len(running.workers) == 2
            await shown(running, len(outcomes), "requests_total")
            await shown(running, 0, "worker_deaths_total")

    run(test())


@pytest.mark.parametrize("keep_alive", [False, True], ids=["new connections", "kept connections"])
def test_one_process_alone_is_replaced_without_a_lost_request(keep_alive: bool) -> None:
    """It becomes the parent of its successor; later restarts replace that."""

    async def test() -> None:
        async with program("--simulator", "--store", "none", "--drain-timeout", "8") as running:
            assert running.workers == []
            stream = await RawClient.connect(running)
            await stream.post(input="tokens: 300 tps: 100")
            await stream.read_until(b"output_text.delta")
            async with asking_all_the_time(running, 4, keep_alive) as outcomes:
                for restart in (1, 2):
                    old = running.workers
                    running.signal(signal.SIGUSR2)
                    await running.says(" rolled ", restart)
                    await until(lambda old=old: len(running.workers) == 1 and running.workers != old, "a successor", 120)
                    seen = len(outcomes)
                    await until(lambda seen=seen: len(outcomes) > seen + 10, "the successor serves", 120)
            assert set(outcomes) == {"completed"}
            await stream.read_until(b"[DONE]\n\n\r\n0\r\n\r\n")
            assert final_of(body_of(stream.received))["status"] == "completed"
            stream.close()
            await shown(running, 1, "workers")
            running.signal(signal.SIGTERM)
            assert await running.exit() == 0
            assert "Traceback" not in running.said

    run(test())


def test_a_successor_that_cannot_start_changes_nothing(tmp_path: Path) -> None:
    async def test() -> None:
        file = tmp_path / "gateway.yaml"
        file.write_text("store: none\nbackend: http://127.0.0.1:9\nadapt: false\n", encoding="utf-8")
        async with program("--config", str(file)) as running:
            file.write_text("colour: red", encoding="utf-8")
            running.signal(signal.SIGUSR2)
            await running.says("the rolling restart is abandoned")
            assert "unknown key colour" in running.said
            async with aiohttp.ClientSession() as session, session.get(f"{running.url}/health") as answer:
                assert answer.status == 200
            running.signal(signal.SIGHUP)
            await running.says("settings not reloaded")
            file.write_text("store: none\nbackend: http://127.0.0.1:9\nadapt: false\n", encoding="utf-8")
            running.signal(signal.SIGUSR2)
            await running.says(" rolled ")
            running.signal(signal.SIGTERM)
            assert await running.exit() == 0

    run(test())


def test_a_stream_outlives_a_rolling_restart() -> None:
    async def test() -> None:
        async with program(*TWO, "--drain-timeout", "8") as running:
            old = running.workers
            client = await RawClient.connect(running)
            await client.post(input="tokens: 400 tps: 100")
            await client.read_until(b"output_text.delta")
            running.signal(signal.SIGUSR2)
            await running.says(" rolled ")
            await client.read_until(b"[DONE]\n\n\r\n0\r\n\r\n")
            assert final_of(body_of(client.received))["status"] == "completed"
            client.close()
            await until(lambda: not set(old) & set(running.workers), "the old ones ended", 120)

    run(test())


@pytest.mark.parametrize("flags", [(), SEVERAL], ids=["1 process", "2 workers"])
def test_a_rolling_restart_is_not_needed_by_a_process_that_begins(flags: tuple[str, ...]) -> None:
    """A service manager may send the signal as soon as the process runs."""
    first = (
        "import os, signal\n"
        "from responses_gateway.commands import serve\n"
        "found = serve._found_settings\n"
        "serve._found_settings = lambda args: os.kill(os.getpid(), signal.SIGUSR2) or found(args)"
    )

    async def test() -> None:
        async with program("--backend", "http://127.0.0.1:9", "--store", "none", *flags, first=first) as running:
            running.signal(signal.SIGTERM)
            assert await running.exit() == 0
            assert "rolling restart" not in running.said

    run(test())
