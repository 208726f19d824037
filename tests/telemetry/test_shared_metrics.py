"""The files in which several processes count together."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from responses_gateway.telemetry.metrics import FOLDER_VARIABLE, text_of_all
from responses_gateway.telemetry.multiprocess import forget, new_folder

_COUNT = """
import sys
from pathlib import Path
from responses_gateway.telemetry import multiprocess
if sys.argv[3] == "public":
    from prometheus_client import values
    del values.MutexValue
multiprocess.share(Path(sys.argv[1]), sys.argv[2])
from responses_gateway.server.generation.request_log.metrics import GAP_BUCKETS, IN_FLIGHT, INTER_TOKEN, REQUESTS
from responses_gateway.telemetry.metrics import Metrics
metrics = Metrics()
metrics.count(REQUESTS, "m", "completed", "true", "responses", amount=3)
metrics.count(IN_FLIGHT, amount=2)
metrics.observe_many(INTER_TOKEN, [1] * (len(GAP_BUCKETS) + 1), 7.0, "m")
metrics.flush()
sys.stdout.buffer.write(metrics.text())
"""


def count(folder: Path, place: str, api: str = "private") -> dict[str, float]:
    """Count a little in another process; return what it shows: name -> sum over the labels."""
    # A worker inherits the variable from its parent.
    environ = {**os.environ, FOLDER_VARIABLE: str(folder)}
    command = [sys.executable, "-c", _COUNT, str(folder), place, api]
    done = subprocess.run(command, check=True, capture_output=True, env=environ)
    return values(done.stdout)


def values(text: bytes) -> dict[str, float]:
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(text.decode()):
        for sample in family.samples:
            name = sample.name.removeprefix("responses_gateway_")
            found[name] = found.get(name, 0.0) + sample.value
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return new_folder([str(tmp_path)]).path


@pytest.mark.parametrize("api", ["private", "public"])
def test_each_process_shows_the_sum_of_all(folder: Path, api: str) -> None:
    assert count(folder, "0", api)["requests_total"] == 3
    both = count(folder, "1", api)
    assert (both["requests_total"], both["requests_in_flight"]) == (6, 4)
    assert (both["inter_token_latency_seconds_count"], both["inter_token_latency_seconds_sum"]) == (30, 14)


def test_a_successor_goes_on_counting_and_what_was_under_way_is_forgotten(folder: Path) -> None:
    count(folder, "0")
    forget(folder, "0")
    left = values(text_of_all(folder))
    assert left["requests_total"] == 3
    assert "requests_in_flight" not in left
    again = count(folder, "0")
    assert (again["requests_total"], again["requests_in_flight"]) == (6, 2)
    assert len([file for file in folder.iterdir() if file.name.startswith("counter")]) == 1


def test_what_a_killed_parent_left_is_removed_and_what_a_living_one_has_is_not(tmp_path: Path) -> None:
    living = new_folder([str(tmp_path)])
    killed = new_folder([str(tmp_path)])
    (killed.path / "counter_0.db").touch()
    os.close(killed.lock)
    new = new_folder([str(tmp_path)])
    assert sorted(tmp_path.iterdir()) == sorted(each.path for each in (living, new))
    for each in (living, new):
        each.remove()
    assert list(tmp_path.iterdir()) == []


def test_where_nothing_can_be_written_it_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="set TMPDIR"):
        new_folder([str(tmp_path / "missing")])
