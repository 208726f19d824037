"""How several workers end: stopped, restarted with a wrong configuration, crashing, orphaned."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import psutil
import pytest

from tests.server.gateway_process import Program, asking_all_the_time, program, statuses_of_some
from tests.server.running_gateway import RawClient, body_of, final_of, run, until

TWO = ("--simulator", "--workers", "2", "--store", "none")


async def streams(running: Program, number: int, **fields: object) -> list[RawClient]:
    """Clients whose streams have begun."""
    clients = [await RawClient.connect(running) for _ in range(number)]
    for client in clients:
        await client.post(**{"input": "tokens: 5000 tps: 50", **fields})
    for client in clients:
        await client.read_until(b"output_text.delta")
    return clients


async def ended(client: RawClient) -> str:
    await client.read_all()
    client.close()
    return str(final_of(body_of(client.received))["status"])


def test_a_stop_under_load_ends_every_stream_truthfully() -> None:
    async def test() -> None:
        async with program(*TWO, "--drain-timeout", "1") as running:
            short = await streams(running, 5, input="tokens: 60 tps: 60")
            long = await streams(running, 5)
            running.signal(signal.SIGTERM)
            assert {await ended(client) for client in short} <= {"completed", "failed"}
            assert {await ended(client) for client in long} == {"failed"}
            assert all(b"shutting down" in client.received for client in long)
            assert await running.exit() == 0
            assert " stopped pid=" in running.lines[-2]
            assert "Traceback" not in running.said

    run(test())


def test_streams_may_finish_and_a_second_signal_hurries_all() -> None:
    async def test() -> None:
        async with program(*TWO, "--drain-timeout", "600") as running:
            (short,), long = await streams(running, 1, input="tokens: 60 tps: 60"), await streams(running, 4)
            running.signal(signal.SIGTERM)
            await short.read_until(b"[DONE]\n\n\r\n0\r\n\r\n")
            assert final_of(body_of(short.received))["status"] == "completed"
            short.close()
            running.signal(signal.SIGINT)
            assert {await ended(client) for client in long} == {"failed"}
            assert await running.exit() == 0

    run(test())


def test_a_worker_that_is_killed_while_it_stops_is_in_the_log() -> None:
    async def test() -> None:
        async with program(*TWO, "--drain-timeout", "600") as running:
            clients = await streams(running, 4)
            running.signal(signal.SIGTERM)
            await running.says("draining", times=2)
            for worker in running.workers:
                os.kill(worker, signal.SIGKILL)
            await running.exit()
            assert running.said.count("worker died") == 2
            for client in clients:
                client.close()

    run(test())


@pytest.mark.parametrize("workers", [("--workers", "2"), ()], ids=["2 workers", "1 process"])
def test_without_a_file_to_read_again_a_hangup_cuts_nobody_off(workers: tuple[str, ...]) -> None:
    async def test() -> None:
        async with program("--simulator", "--store", "none", *workers) as running:
            (client,) = await streams(running, 1, input="tokens: 60 tps: 60")
            running.signal(signal.SIGHUP)
            await running.says("there is no settings file to reload")
            await client.read_until(b"[DONE]\n\n\r\n0\r\n\r\n")
            client.close()
            assert final_of(body_of(client.received))["status"] == "completed"
            assert await statuses_of_some(running, 2) == {"completed"}

    run(test())


#: Begin a session with a terminal of its own; what it starts gets the terminal from it.
OWN_TERMINAL = """
import fcntl, os, termios
if os.environ.get("TERMINAL_OF_TEST"):
    os.setsid()
    fcntl.ioctl(os.open(os.environ.pop("TERMINAL_OF_TEST"), os.O_RDWR), termios.TIOCSCTTY, 0)
"""


@pytest.mark.parametrize("workers", [("--workers", "2"), ()], ids=["2 workers", "1 process"])
def test_a_closed_terminal_stops_it_in_good_order(workers: tuple[str, ...]) -> None:
    async def test() -> None:
        master, slave = os.openpty()
        flags = ("--simulator", "--store", "none", *workers)
        async with program(*flags, first=OWN_TERMINAL, TERMINAL_OF_TEST=os.ttyname(slave)) as running:
            (client,) = await streams(running, 1, input="tokens: 60 tps: 60")
            os.close(slave)
            os.close(master)
            await running.says("draining")
            running.signal(signal.SIGHUP)
            assert await ended(client) == "completed"
            assert await running.exit() == 0

    run(test())


@pytest.mark.parametrize("workers", [("--workers", "2"), ()], ids=["2 workers", "1 process"])
def test_a_stop_resets_no_connection(workers: tuple[str, ...]) -> None:
    """Whoever got a connection gets an answer, if only 503; all others are refused."""

    async def test() -> None:
        async with program("--simulator", "--store", "none", *workers) as running:
            async with asking_all_the_time(running, 8) as seen:
                await until(lambda: seen.count("completed") > 20)
                running.signal(signal.SIGTERM)
                await until(lambda: "refused" in seen)
            assert set(seen) <= {"completed", "HTTP 503", "refused"}
            assert await running.exit() == 0

    run(test())


@pytest.mark.parametrize("workers", [("--workers", "2"), ()], ids=["2 workers", "1 process"])
def test_a_load_balancer_sees_it_before_connections_are_refused(workers: tuple[str, ...]) -> None:
    async def test() -> None:
        async with program("--simulator", "--store", "none", *workers, "--drain-delay", "1.5") as running:
            client = await RawClient.connect(running)
            running.signal(signal.SIGTERM)
            await running.says("draining", times=len(running.workers) or 1)
            await client.send(b"GET /ready HTTP/1.1\r\nHost: x\r\n\r\n")
            await client.read_all()  # it is closed behind the answer
            assert b"HTTP/1.1 503" in client.received
            assert b"Connection: close" in client.received
            client.close()
            (late,) = await streams(running, 1, input="scenario: plain")
            assert await ended(late) == "completed"
            assert b"Connection: close" in late.received
            assert await running.exit() == 0

    run(test())


def test_a_wrong_configuration_stops_a_rolling_restart_and_a_right_one_is_taken(tmp_path: Path) -> None:
    async def test() -> None:
        file = tmp_path / "gateway.yaml"
        file.write_text("metrics: open\n", encoding="utf-8")
        async with program(*TWO, "--config", str(file), "--drain-timeout", "2") as running:
            old = running.workers
            file.write_text("metrix: true\n", encoding="utf-8")
            running.signal(signal.SIGUSR2)
            await running.says("abandoned")
            assert "did you mean metrics?" in running.said
            assert running.workers == old
            file.write_text("metrics: off\n", encoding="utf-8")
            running.signal(signal.SIGUSR2)
            await running.says(" rolled ")
            await until(lambda: not set(old) & set(running.workers), "the old ones ended", 120)
            client = await RawClient.connect(running)
            await client.send(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            await client.read_all()
            assert b"HTTP/1.1 404" in client.received
            client.close()

    run(test())


def test_new_workers_that_cannot_start_leave_the_old_ones_alone(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    folder.mkdir()

    async def test() -> None:
        async with program("--simulator", "--workers", "2", "--store", str(folder / "responses.sqlite3")) as running:
            old = running.workers
            os.rename(folder, tmp_path / "moved")
            os.close(os.open(folder, os.O_CREAT))  # a file where the folder was
            running.signal(signal.SIGUSR2)
            await running.says("abandoned")
            assert set(old) <= set(running.workers)
            assert await statuses_of_some(running, 10) == {"completed"}
            await until(lambda: running.workers == old)

    run(test())


# Has no file descriptor left for the fourth worker.
TOO_FEW = """
from responses_gateway.server.process.worker_link import Worker

starts = []


async def start(*arguments, begin=Worker.start):
    starts.append(arguments)
    if len(starts) == 4:
        raise OSError(24, "Too many open files")
    return await begin(*arguments)


Worker.start = start
"""


def test_of_new_workers_that_cannot_all_start_none_stays() -> None:
    async def test() -> None:
        async with program(*TWO, first=TOO_FEW) as running:
            old = running.workers
            running.signal(signal.SIGUSR2)
            await running.says("abandoned")
            assert "Too many open files" in running.said
            await until(lambda: running.workers == old, "only the old ones are left", 60)
            assert await statuses_of_some(running, 10) == {"completed"}

    run(test())


def test_workers_that_cannot_start_end_the_program(tmp_path: Path) -> None:
    async def test() -> None:
        async with program("--simulator", "--workers", "2", "--store", str(tmp_path), starts=False) as running:
            assert await running.exit() == 1
            assert "no store" in running.said
            assert "giving up" in running.said

    run(test())


def test_a_crash_loop_ends_the_program() -> None:
    async def test() -> None:
        async with program("--simulator", "--workers", "5", "--store", "none") as running:
            for pid in running.workers:
                os.kill(pid, signal.SIGKILL)
            assert await running.exit() == 1
            assert "giving up" in running.said

    run(test())


def test_a_worker_that_is_told_to_end_by_others_loses_nothing_and_is_replaced() -> None:
    async def test() -> None:
        async with program(*TWO) as running:
            old = running.workers
            async with asking_all_the_time(running, 4) as seen:
                await until(lambda: len(seen) > 20)
                os.kill(old[0], signal.SIGTERM)
                await until(lambda: old[0] not in running.workers and len(running.workers) == 2)
            assert set(seen) == {"completed"}

    run(test())


def test_workers_without_a_parent_end() -> None:
    async def test() -> None:
        async with program(*TWO) as running:
            workers = running.workers
            running.process.kill()
            await until(lambda: not any(psutil.pid_exists(pid) for pid in workers), "the workers ended", 120)

    run(test())


def test_a_worker_that_hangs_is_replaced() -> None:
    async def test() -> None:
        async with program(
            *TWO, first="import responses_gateway.server.process.supervisor as workers; workers._SILENCE = 3.0"
        ) as running:
            hanging, other = running.workers
            os.kill(hanging, signal.SIGSTOP)
            assert await statuses_of_some(running, 5) == {"completed"}
            await running.says("worker killed")
            await until(lambda: len(running.workers) == 2 and hanging not in running.workers)
            assert other in running.workers

    run(test())
