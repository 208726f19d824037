"""What one plain request costs in calls, and how many files a reader opens to follow it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MEASURE = """
import json, sys
sys.path.insert(0, "scripts")
import request_cost
cost = request_cost.measured(sys.argv[1])
print(json.dumps([cost.calls_per_request, cost.files]))
"""


# Some twenty calls more than are counted on an idle machine, because reads of a loaded one bring less at a time.
# Files of features that look at each request are among them.
@pytest.mark.parametrize(("door", "calls", "files"), [("responses", 815, 73), ("messages", 895, 86)])
def test_a_plain_request_makes_few_calls_in_few_files(door: str, calls: int, files: int) -> None:
    run = subprocess.run(
        [sys.executable, "-c", MEASURE, door], cwd=ROOT, capture_output=True, text=True, timeout=90, check=True
    )
    measured_calls, measured_files = json.loads(run.stdout)
    assert measured_calls <= calls
    assert len(measured_files) <= files, measured_files
