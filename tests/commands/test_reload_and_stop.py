"""`responses-gateway reload` and `stop`, given to gateways that run."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from responses_gateway.cli import main
from responses_gateway.simulator import create_app, serving
from tests.server.gateway_process import WITHOUT_UVLOOP, Program, program
from tests.server.process.test_sockets import certificate, name_of_certificate
from tests.server.running_gateway import RawClient, body_of, final_of, run, until
from tests.server.scripted_backend import HEAD, PHASES, Connection, backend, chat_stream
from tests.thoroughness import one_in

WORKERS = pytest.mark.parametrize("workers", [1, 2], ids=["1 process", "2 workers"])


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A folder for the sockets of this test alone; the path of one may have no more than about a hundred bytes."""
    with tempfile.TemporaryDirectory(prefix="sockets") as folder:
        monkeypatch.setenv("TMPDIR", folder)
        yield folder


def control_sockets(folder: str) -> list[Path]:
    return list(Path(folder).glob("responses-gateway-*/*.sock"))


async def command(*arguments: str) -> int:
    return await asyncio.to_thread(main, arguments)


def write(file: Path, url: str, **more: object) -> None:
    file.write_text(json.dumps({"backend": url, "adapt": False, "store": "none", **more}), encoding="utf-8")


@pytest.mark.slow
@WORKERS
def test_reload_says_what_changes_and_when(
    tmp_path: Path, folder: str, workers: int, capsys: pytest.CaptureFixture[str]
) -> None:
    async def test() -> None:
        file = tmp_path / "gateway.yaml"
        async with serving(create_app()) as url:
            write(file, url, workers=workers)
            async with program("--config", str(file)) as running:
                pid = running.process.pid
                gateway = f"the gateway at {running.url} (process {pid})"
                assert await command("reload") == 0
                assert capsys.readouterr().out == f"Reloaded {gateway}: nothing has changed\n"
                write(file, url, workers=workers, log_level="debug", drain_timeout=7, host="127.0.0.2")
                assert await command("reload", "--port", str(running.port)) == 0
                assert capsys.readouterr().out.splitlines() == [
                    f"Reloaded {gateway}: log_level",
                    f"After a rolling restart (kill -USR2 {pid}): drain_timeout",
                    "After a restart (responses-gateway stop, then serve): host",
                ]
                await running.says("settings reloaded backends=1 changed=log_level")
                write(file, url, workers=workers, log_levle="info")
                assert await command("reload", "--pid", str(pid)) == 1
                said = capsys.readouterr().err
                assert f"{gateway} has changed nothing:" in said
                assert "unknown key log_levle (did you mean log_level?)" in said

    run(test())


@pytest.mark.slow
def test_reload_works_after_a_rolling_restart(tmp_path: Path, folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    async def test() -> None:
        file = tmp_path / "gateway.yaml"
        async with serving(create_app()) as url:
            write(file, url)
            async with program("--config", str(file)) as running:
                running.signal(signal.SIGUSR2)
                await running.says(" rolled ")
                write(file, url, log_level="debug")
                assert await command("reload") == 0
                assert ": log_level\n" in capsys.readouterr().out
                assert await command("stop") == 0
                assert await running.exit() == 0

    run(test())


@pytest.mark.slow
@WORKERS
def test_reload_says_that_it_has_read_the_certificate(
    tmp_path: Path, folder: str, workers: int, capsys: pytest.CaptureFixture[str]
) -> None:
    cert, key = certificate(tmp_path, "old")

    async def test() -> None:
        file = tmp_path / "gateway.yaml"
        write(file, "http://127.0.0.1:9/v1", workers=workers, tls_cert=str(cert), tls_key=str(key))
        async with program("--config", str(file)) as running:
            for old, new in zip((cert, key), certificate(tmp_path, "new"), strict=True):
                new.replace(old)
            assert await command("reload") == 0
            assert "no setting has changed, the certificate was read again\n" in capsys.readouterr().out
            await until(lambda: name_of_certificate(running.port) == "new", "the new certificate")

    run(test())


@pytest.mark.slow
def test_without_a_settings_file_there_is_nothing_to_reload(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    async def test() -> None:
        async with program("--backend", "http://127.0.0.1:9/v1", "--store", "none") as running:
            assert await command("reload") == 1
            assert "started without a settings file (--config)" in capsys.readouterr().err
            assert running.process.returncode is None

    run(test())


async def endless(connection: Connection) -> None:
    """Answer with a stream that stops in the middle of its text."""
    connection.write(HEAD)
    connection.send(*chat_stream()[: PHASES["text"]])
    await connection.lost


async def streaming(running: Program) -> RawClient:
    client = await RawClient.connect(running)
    await client.post()
    await client.read_until(b"from here.")
    return client


# A brief run has the first and the last.
STOPPED = [
    pytest.param(workers, first, id=f"{loop}-{workers}")
    for workers in (1, 2)
    for loop, first in (("uvloop", ""), ("asyncio", WITHOUT_UVLOOP))
]


@pytest.mark.slow
@pytest.mark.parametrize(("workers", "first"), one_in(3, STOPPED))
def test_stop_waits_for_running_responses_until_it_need_not(
    folder: str, workers: int, first: str, capfd: pytest.CaptureFixture[str]
) -> None:
    async def test() -> None:
        async with backend(endless) as server:
            flags = (
                "--backend",
                server.url,
                "--no-adapt",
                "--store",
                "none",
                "--workers",
                str(workers),
                "--drain-timeout",
                "600",
            )
            async with program(*flags, first=first) as running:
                client = await streaming(running)
                waiting = asyncio.create_task(command("stop"))
                said = ""

                def waits(times: int) -> bool:
                    nonlocal said
                    said += capfd.readouterr().err
                    return said.count("Waiting for running responses (600 s at most).") == times

                await until(lambda: waits(1), "the command waits")
                again = asyncio.create_task(command("stop"))  # twice is not at once
                await until(lambda: waits(2), "the second one waits, too")
                assert not waiting.done()
                assert await command("stop", "--now") == 0
                assert (await waiting, await again) == (0, 0)
                assert final_of(body_of(await client.read_all()))["status"] == "failed"
                assert await running.exit() == 0
                assert "Traceback" not in running.said
                assert (
                    capfd.readouterr().out.count(f"Stopped the gateway at {running.url} (process {running.process.pid}).") == 3
                )
        assert control_sockets(folder) == []

    run(test())


@pytest.mark.slow
def test_of_several_gateways_one_has_to_be_named(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    async def test() -> None:
        flags = ("--backend", "http://127.0.0.1:9/v1", "--store", "none")
        async with program(*flags) as one, program(*flags) as other:
            assert await command("stop") == 1
            said = capsys.readouterr().err
            assert "several gateways are running: choose one with --port or --pid" in said
            for each in (one, other):
                assert f"\n  {each.url} (process {each.process.pid})" in said
            assert await command("stop", "--port", str(one.port)) == 0
            assert await one.exit() == 0
            assert await command("stop", "--pid", str(one.process.pid)) == 1
            assert f"no gateway is running there; these are:\n  {other.url}" in capsys.readouterr().err
            assert await command("stop") == 0
            assert await other.exit() == 0

    run(test())


@pytest.mark.parametrize("name", ["reload", "stop"])
def test_without_a_gateway_it_says_so(folder: str, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name]) == 1
    assert "this user has no running gateway on this machine" in capsys.readouterr().err


@pytest.mark.slow
def test_the_socket_of_a_killed_gateway_is_cleared_away(folder: str) -> None:
    async def test() -> None:
        async with program("--backend", "http://127.0.0.1:9/v1", "--store", "none") as running:
            assert len(control_sockets(folder)) == 1
            running.process.kill()
            await running.process.wait()
        [left] = control_sockets(folder)
        assert await command("stop") == 1
        assert left.exists()  # as young as that of a gateway that has not begun to listen
        os.utime(left, (0, 0))
        assert await command("stop") == 1
        assert not left.exists()

    run(test())


@pytest.mark.slow
def test_only_the_user_of_a_gateway_can_reach_its_socket(folder: str) -> None:
    async def test() -> None:
        async with program("--backend", "http://127.0.0.1:9/v1", "--store", "none") as running:
            [path] = control_sockets(folder)
            assert path.parent.stat().st_mode & 0o077 == 0
            with socket.socket(socket.AF_UNIX) as connection:  # what is no order does nothing
                connection.connect(str(path))
                connection.sendall(b"restart\n")
            assert await command("stop") == 0
            assert await running.exit() == 0

    run(test())


@pytest.mark.slow
@pytest.mark.parametrize("made", [Path.touch, lambda path: path.mkdir() or path.chmod(0o777)], ids=["a file", "open to others"])
def test_a_folder_that_cannot_be_trusted_is_not_used_and_stops_no_start(
    folder: str, made: Callable[[Path], None], capsys: pytest.CaptureFixture[str]
) -> None:
    made(Path(folder, f"responses-gateway-{os.getuid()}"))

    async def test() -> None:
        async with program("--backend", "http://127.0.0.1:9/v1", "--store", "none", "--log-level", "debug") as running:
            await running.says("no control socket")
            assert control_sockets(folder) == []
            assert await command("stop") == 1
            assert f"{folder}/responses-gateway-" in capsys.readouterr().err
            running.signal(signal.SIGTERM)
            assert await running.exit() == 0

    run(test())
