"""What one plain request costs in calls, and how many files a reader opens to follow it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
MEASURE = """
import json, sys
sys.path.insert(0, "scripts")
import request_cost
cost = request_cost.measured(sys.argv[1], more=request_cost.WEAK if "weak" in sys.argv else {})
print(json.dumps([cost.calls_per_request, cost.files]))
"""


# Some fifteen calls and two files more than are counted on an idle machine, because reads of a loaded one bring less at a time.
# Files of features that look at each request are among them.
MOST = {"responses": (770, 55), "messages": (808, 62)}


# One test, because each protocol is measured by a process of its own.
def test_a_plain_request_makes_few_calls_in_few_files_and_about_as_many_in_both_protocols() -> None:
    calls: dict[str, float] = {}
    for door, (most_calls, most_files) in MOST.items():
        calls[door], files = measured(door)
        assert calls[door] <= most_calls
        assert len(files) <= most_files, files
    assert calls["messages"] <= 1.05 * calls["responses"] + 15


# The same with one tool, and with all that helps models that end early and make broken calls. `bench.run --scenario agent`
# measures the CPU time of that.
def test_a_request_with_a_tool_makes_few_calls_more_while_all_is_on_that_helps_weak_models() -> None:
    off, _ = measured("agent")
    on, _ = measured("agent", "weak")
    assert off <= 1_040
    assert on <= off + 55


def measured(*arguments: str) -> tuple[float, list[str]]:
    """Return the calls of a request, and the files that run, as a process of its own counts them."""
    run = subprocess.run(
        [sys.executable, "-c", MEASURE, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=90, check=True
    )
    calls, files = json.loads(run.stdout)
    return calls, files
