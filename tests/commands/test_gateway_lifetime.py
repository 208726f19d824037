"""A gateway that several `responses-proxy codex` use: it is there until the last one leaves, and nobody else's is stopped."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from proxy.commands.gateway_lifetime import shared_gateway

_PROGRAM = "import signal, sys; print('up', flush=True); signal.pause()"
_STUBBORN = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {_PROGRAM}"


class Gateway:
    """What stands for one: it answers as long as its process runs."""

    def __init__(self, program: str = _PROGRAM) -> None:
        self.started: list[subprocess.Popen[bytes]] = []
        self._program = program

    def answers(self) -> bool:
        return any(process.poll() is None for process in self.started)

    def start(self, inherited: tuple[int, ...]) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", self._program]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True, pass_fds=inherited)
        self.started.append(process)
        assert process.stdout is not None
        with process.stdout as output:
            assert output.readline() == b"up\n"
        return process


@pytest.fixture
def gateway() -> Iterator[Gateway]:
    gateway = Gateway()
    yield gateway
    for process in gateway.started:
        process.kill()
        process.wait()


def test_it_ends_with_its_user(gateway: Gateway, tmp_path: Path) -> None:
    for runs in (1, 2):
        with shared_gateway(tmp_path / "g", gateway.answers, gateway.start):
            assert gateway.answers()
        assert not gateway.answers()
        assert len(gateway.started) == runs


def test_it_stays_until_the_last_user_leaves(gateway: Gateway, tmp_path: Path) -> None:
    first, second = ExitStack(), ExitStack()
    first.enter_context(shared_gateway(tmp_path / "g", gateway.answers, gateway.start))
    second.enter_context(shared_gateway(tmp_path / "g", gateway.answers, gateway.start))
    first.close()
    assert gateway.answers()
    second.close()
    assert not gateway.answers()
    assert len(gateway.started) == 1


def test_one_that_was_there_before_stays(gateway: Gateway, tmp_path: Path) -> None:
    gateway.start(())
    (tmp_path / "g.pid").write_text(str(gateway.started[0].pid))  # not locked: the number is of another time
    with shared_gateway(tmp_path / "g", gateway.answers, gateway.start):
        pass
    assert gateway.answers()
    assert len(gateway.started) == 1


def test_one_whose_user_was_killed_is_stopped_by_the_next(gateway: Gateway, tmp_path: Path) -> None:
    """What is left of a killed user is its gateway, and the lock that this one holds."""
    with (tmp_path / "g.pid").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(str(gateway.start((file.fileno(),)).pid))
    with shared_gateway(tmp_path / "g", gateway.answers, gateway.start):
        assert gateway.answers()
    gateway.started[0].wait(10)
    assert len(gateway.started) == 1


def test_one_that_does_not_answer_is_replaced(gateway: Gateway, tmp_path: Path) -> None:
    with (
        shared_gateway(tmp_path / "g", gateway.answers, gateway.start),
        shared_gateway(tmp_path / "g", lambda: False, gateway.start),
    ):
        old, new = gateway.started
        old.wait(10)
        assert new.poll() is None


def test_a_failed_start_leaves_nothing_behind(gateway: Gateway, tmp_path: Path) -> None:
    def fail(_: tuple[int, ...]) -> subprocess.Popen[bytes]:
        raise OSError("no port")

    with pytest.raises(OSError, match="no port"), shared_gateway(tmp_path / "g", gateway.answers, fail):
        pass
    with shared_gateway(tmp_path / "g", gateway.answers, gateway.start):
        assert gateway.answers()
    assert not gateway.answers()


def test_one_that_does_not_end_is_killed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("proxy.commands.gateway_lifetime._STOP_TIMEOUT", 0.3)
    gateway = Gateway(_STUBBORN)
    with shared_gateway(tmp_path / "g", gateway.answers, gateway.start):
        os.kill(gateway.started[0].pid, signal.SIGTERM)
        assert gateway.answers()
    assert not gateway.answers()
