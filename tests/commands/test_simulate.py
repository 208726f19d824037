"""`responses-gateway simulate`, as a process."""

from __future__ import annotations

import argparse
import json
import re
import signal
import socket
import subprocess
import sys
import urllib.request

import pytest

from responses_gateway.commands import simulate
from responses_gateway.simulator import WeakModel
from tests.waiting import PATIENCE


def arguments(*argv: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    simulate.add_arguments(parser)
    return parser.parse_args(argv)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="no POSIX signals")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_says_where_it_listens_and_stops_on_a_signal(number: signal.Signals) -> None:
    command = [sys.executable, "-m", "responses_gateway", "simulate", "--port", "0", "--model", "tiny"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"http://127\.0\.0\.1:\d+/v1", line)
        assert found, line
        with urllib.request.urlopen(f"{found[0]}/models", timeout=PATIENCE) as response:
            assert json.load(response)["data"][0]["id"] == "tiny"
        process.send_signal(number)
        _, errors = process.communicate(timeout=PATIENCE)
    assert (process.returncode, errors) == (0, "")


def test_a_port_that_is_taken_is_an_error_of_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert simulate.run(arguments("--port", str(port))) == 1
    said = capsys.readouterr().err
    start = rf"responses-gateway simulate: cannot listen on 127\.0\.0\.1:{port}: "
    assert re.fullmatch(rf"{start}.+: choose another port with --port\n", said)


def test_arguments_become_options() -> None:
    args = arguments("--dialect", "sglang", "--tokens-per-delta", "3", "--model", "a", "--model", "b", "--api-key", "k")
    options = simulate.options_from(args)
    assert options.models == ("a", "b")
    assert (options.dialect.shape.server, options.dialect.tokens_per_delta) == ("sglang", 3)
    assert options.api_key == "k"


def test_what_strict_tools_do_can_be_chosen() -> None:
    assert simulate.options_from(arguments()).strict_tools == "renders"
    assert simulate.options_from(arguments("--strict-tools", "enforces")).strict_tools == "enforces"
    with pytest.raises(SystemExit):
        arguments("--strict-tools", "sometimes")


def test_a_weak_model_has_a_seed_and_perhaps_other_rates(capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate.options_from(arguments("--weak", "7")).weak == WeakModel(7)
    assert simulate.options_from(arguments("--weak", "7", "--weak-rates", "empty=20")).weak == WeakModel(7, {"empty": 20})
    assert simulate.run(arguments("--weak-rates", "empty=20")) == 2
    assert capsys.readouterr().err == "responses-gateway simulate: --weak-rates needs --weak SEED\n"
    with pytest.raises(SystemExit):
        arguments("--weak", "7", "--weak-rates", "emptyy=20")
    assert "unknown fault 'emptyy'" in capsys.readouterr().err
