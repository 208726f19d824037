"""The gateway that `responses-gateway codex` starts: there as long as Codex runs, and its own."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from tests.ports import free_port
from tests.waiting import PATIENCE

ROOT = Path(__file__).parents[2]
# Writes down with what it was started and what the gateway answers, then runs until it is told to end.
CODEX = f"""#!{sys.executable}
import json, os, signal, sys, tomllib, urllib.request
from pathlib import Path
if sys.argv[1:] == ["--help"]:
    print("  --no-daemon  Run without the shared background server" if "OLD_CODEX" not in os.environ else "")
    sys.exit()
home = Path(os.environ["CODEX_HOME"])
url = tomllib.loads((home / "config.toml").read_text())["model_providers"]["responses-gateway"]["base_url"]
with urllib.request.urlopen(f"{{url}}/models") as answer:
    status = answer.status
said = {{"url": url, "status": status, "arguments": sys.argv[1:], "pid": os.getpid()}}
(home / "said.new").write_text(json.dumps(said))
os.replace(home / "said.new", sys.argv[-1])
if "stay" in sys.argv:
    signal.pause()
"""


def eventually(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def answers(url: str) -> bool:
    address = urlsplit(url)
    with socket.socket() as probe:
        return probe.connect_ex((address.hostname, address.port)) == 0


@contextmanager
def codex(
    folder: Path, name: str, *arguments: str, default_url: str = "http://127.0.0.1:9000/v1", simulator: bool = True
) -> Iterator[tuple[subprocess.Popen[bytes], dict[str, object]]]:
    """Run `responses-gateway codex` with a program in Codex's place; gives what that has written down."""
    programs = folder / "programs"
    programs.mkdir(exist_ok=True)
    (programs / "codex").write_text(CODEX, encoding="utf-8")
    (programs / "codex").chmod(0o755)
    said = folder / name
    flags = [*(["--simulator"] if simulator else []), "--codex-home", str(folder / "home")]
    program = f"import sys; from responses_gateway.commands import gateway_offer; gateway_offer.DEFAULT_URL = {default_url!r}\n"
    program += "from responses_gateway.cli import main; sys.exit(main())"
    with (folder / f"{name}.errors").open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, "-c", program, "codex", *flags, *arguments, str(said)],
            cwd=ROOT,
            env={**os.environ, "XDG_STATE_HOME": str(folder), "PATH": os.pathsep.join([str(programs), os.environ["PATH"]])},
            stderr=errors,
        )
    try:
        eventually(lambda: said.exists() or process.poll() is not None)
        assert said.exists(), (folder / f"{name}.errors").read_text(encoding="utf-8")
        yield process, json.loads(said.read_text(encoding="utf-8"))
    finally:
        process.kill()
        process.wait()
        if said.exists():
            with suppress(ProcessLookupError):
                os.kill(json.loads(said.read_text(encoding="utf-8"))["pid"], signal.SIGKILL)


@pytest.mark.parametrize("old", [False, True])
def test_no_background_server_of_codex_is_started(tmp_path: Path, old: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if old:
        monkeypatch.setenv("OLD_CODEX", "1")
    with codex(tmp_path, "said", *nobody(free_port())) as (process, said):
        assert process.wait(60) == 0
    assert ("--no-daemon" in str(said["arguments"])) is not old


def test_a_backend_that_is_down_is_named(tmp_path: Path) -> None:
    (tmp_path / "codex").write_text("#!/bin/sh\n", encoding="utf-8")
    (tmp_path / "codex").chmod(0o755)
    flags = ["--codex-home", str(tmp_path / "home"), "--backend", "http://127.0.0.1:9", *nobody(free_port())]
    done = subprocess.run(
        [sys.executable, "-m", "responses_gateway", "codex", *flags],
        cwd=ROOT,
        env={**os.environ, "XDG_STATE_HOME": str(tmp_path), "PATH": os.pathsep.join([str(tmp_path), os.environ["PATH"]])},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 1
    assert "the backend http://127.0.0.1:9 does not answer: is it running, and is --backend right?" in done.stderr


def nobody(port: int) -> tuple[str, str]:
    return "--url", f"http://127.0.0.1:{port}"


def test_it_ends_with_codex(tmp_path: Path) -> None:
    port = free_port()
    for name in ("first", "second"):
        with codex(tmp_path, name, *nobody(port)) as (process, said):
            assert said["status"] == 200
            assert process.wait(60) == 0
            assert not answers(str(said["url"]))
            log = (tmp_path / "home" / "gateway.log").read_text(encoding="utf-8")
            assert log.count("listening") == 1
            assert "stopped" in log


def test_each_codex_has_its_own(tmp_path: Path) -> None:
    port = free_port()
    with (
        codex(tmp_path, "first", *nobody(port), "stay") as (first, of_first),
        codex(tmp_path, "second", *nobody(port), "stay") as (second, of_second),
    ):
        assert of_first["url"] != of_second["url"]
        assert f'model_providers.responses-gateway.base_url="{of_first["url"]}"' in str(of_first["arguments"])
        first.send_signal(signal.SIGTERM)
        assert first.wait(60) == 128 + signal.SIGTERM
        assert not answers(str(of_first["url"]))
        assert answers(str(of_second["url"]))
        second.send_signal(signal.SIGTERM)
        assert second.wait(60) == 128 + signal.SIGTERM
        assert not answers(str(of_second["url"]))


def test_one_that_was_there_before_is_used_and_stays(tmp_path: Path) -> None:
    with codex(tmp_path, "first", *nobody(free_port()), "stay") as (_, there):
        with codex(tmp_path, "second", "--url", str(there["url"]), simulator=False) as (process, said):
            assert said["url"] == there["url"]
            assert process.wait(60) == 0
        assert httpx.get(f"{there['url']}/models", timeout=PATIENCE).status_code == 200


def test_a_backend_gets_a_gateway_of_its_own_whatever_answers_at_the_usual_address(tmp_path: Path) -> None:
    with codex(tmp_path, "first", *nobody(free_port()), "stay") as (_, there):
        usual = str(there["url"])
        with codex(tmp_path, "second", default_url=usual) as (process, said):
            assert said["url"] != usual
            assert process.wait(60) == 0
        with codex(tmp_path, "third", default_url=usual, simulator=False) as (process, said):
            assert said["url"] == usual
            assert process.wait(60) == 0


def test_a_gateway_that_answers_and_a_backend_for_one_contradict_each_other(tmp_path: Path) -> None:
    with codex(tmp_path, "first", *nobody(free_port()), "stay") as (_, there):
        flags = ["--codex-home", str(tmp_path / "home"), "--simulator", "--url", str(there["url"])]
        done = subprocess.run(
            [sys.executable, "-m", "responses_gateway", "codex", *flags],
            cwd=ROOT,
            env={**os.environ, "PATH": os.pathsep.join([str(tmp_path / "programs"), os.environ["PATH"]])},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
    assert done.returncode == 1
    assert f"a gateway already answers at {there['url']}: leave out --url, or --backend" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGKILL])
def test_it_ends_with_the_terminal_and_with_a_killed_command(tmp_path: Path, number: signal.Signals) -> None:
    with codex(tmp_path, "said", *nobody(free_port()), "stay") as (process, said):
        process.send_signal(number)
        process.wait(60)
        eventually(lambda: not answers(str(said["url"])))
