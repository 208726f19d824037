"""The table in which several processes count what clients had."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from responses_gateway.server.access.counter_table import SharedRow, Table, create
from responses_gateway.server.access.rate_limits import RateLimits
from responses_gateway.server.protocols.responses import openai_headers
from responses_gateway.settings import Settings
from responses_gateway.settings.keys import ApiKey, hash_of
from responses_gateway.state.fleet_counters import Verdict
from responses_gateway.telemetry.metrics import Metrics
from responses_gateway.wire.errors import ApiError

_HOLD = """
import sys, time
from pathlib import Path
from responses_gateway.server.access.counter_table import SharedRow, Table
with SharedRow(Table(Path(sys.argv[1]), 1), "key alice") as row:
    row.add(1)
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    create(tmp_path, 4)
    return tmp_path


def accounts(folder: Path, place: int, now: list[float], **limits: Any) -> RateLimits:
    settings = Settings(api_keys={"alice": ApiKey(hash=hash_of("rp_alice-0123456789"))}, **limits)
    return RateLimits(lambda: settings, lambda: now[0], Metrics(), Table(folder, place))


def test_two_count_together_and_so_does_a_third_that_comes_later(folder: Path) -> None:
    now = [1000.0]
    one, two = (accounts(folder, place, now, requests_per_minute=3).by_key["alice"] for place in (0, 1))
    one.reserve()
    two.reserve()
    assert (
        openai_headers(one.counts())["x-ratelimit-remaining-requests"]
        == openai_headers(two.counts())["x-ratelimit-remaining-requests"]
        == "1"
    )
    three = accounts(folder, 2, now, requests_per_minute=3).by_key["alice"]
    three.reserve()
    for account in (one, two, three):
        with pytest.raises(ApiError):
            account.reserve()
    now[0] += 20
    two.reserve()
    with pytest.raises(ApiError):
        one.reserve()


def test_a_refusal_of_the_fleet_is_remembered_for_the_time_without_it(folder: Path) -> None:
    """The last request that was let in saw nine left, which others have taken since."""
    now = [1000.0]
    one, two = (accounts(folder, place, now, requests_per_minute=30).by_key["alice"] for place in (0, 1))
    one.reserve(Verdict("", 9.0, 0.0, 2))
    with pytest.raises(ApiError):
        two.reserve(Verdict("requests", 0.0, 0.0, 2))
    for account in (one, two):
        with pytest.raises(ApiError):
            account.reserve()


def test_tokens_and_what_runs_count_for_all_until_a_worker_is_gone(folder: Path) -> None:
    now = [1000.0]
    one, two = (accounts(folder, place, now, concurrent_requests=2, tokens_per_minute=100).by_key["alice"] for place in (0, 1))
    first = one.reserve()
    two.reserve()
    with pytest.raises(ApiError, match="same time"):
        one.reserve()
    first.end(10)
    assert openai_headers(two.counts())["x-ratelimit-remaining-tokens"] == "90"
    last = two.reserve()
    Table(folder).clear(1)
    one.reserve()
    one.reserve()
    last.end(0)  # by one that was taken for dead: nothing becomes negative
    with pytest.raises(ApiError, match="same time"):
        one.reserve()


def test_a_holder_that_hangs_is_not_waited_for_and_one_that_is_killed_leaves_no_lock(folder: Path) -> None:
    holder = subprocess.Popen([sys.executable, "-c", _HOLD, str(folder)], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        table = Table(folder, 0)
        assert not table.lock()
        with SharedRow(table, "key alice") as row:
            assert row.running == 1
            row.add(1)
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        assert table.lock()
        table.unlock()
        table.clear(1)
        with SharedRow(table, "key alice") as row:
            assert row.running == 1
    finally:
        holder.kill()
        holder.communicate()


@pytest.mark.slow
def test_of_more_accounts_than_there_are_rows_those_that_run_something_stay(folder: Path) -> None:
    table = Table(folder, 0)
    with SharedRow(table, "address of old") as row:
        row.levels = (1.0, 1.0, 0.0, 0.0)
        row.add(1)
    for number in range(40_000):
        with SharedRow(table, f"address {number}") as row:
            row.levels = (5.0, 2.0 + number, 0.0, 0.0)
    with SharedRow(table, "address of old") as row:
        assert (row.running, row.levels[0]) == (1, 1.0)
    with SharedRow(table, "address 39999") as row:
        assert row.levels[0] == 5.0
    with SharedRow(table, "address 0") as row:
        assert row.levels == (0.0, 0.0, 0.0, 0.0)


def test_a_place_beyond_the_table_counts_nothing_that_runs(folder: Path) -> None:
    with SharedRow(Table(folder, 99), "key alice") as row:
        row.add(1)
        assert row.running == 0
