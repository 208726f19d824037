"""How many tests of `make test` run on an account that has only this checkout: no data beside it, and no PostgreSQL.

python scripts/bare_account.py    prints their number, and why the others are skipped
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
_STAGES = "pure or gateway"
_PROGRAM = """
import json, sys, pytest

class Collected:
    def pytest_collection_finish(self, session):
        rows = [(item.nodeid, reason(item)) for item in session.items]
        with open(sys.argv[1], "w") as file:
            json.dump(rows, file)

def reason(item):
    for mark in item.iter_markers("skip"):
        return mark.kwargs["reason"]
    for mark in item.iter_markers("skipif"):
        if mark.args[0]:
            return mark.kwargs["reason"]
    # Whether there is one is found out only when the test runs.
    return "PostgreSQL is not installed" if "postgres" in item.nodeid or "postgres_url" in item.fixturenames else None

sys.exit(pytest.main(["--collect-only", "-qq", "-p", "no:cacheprovider", "-m", sys.argv[2]], plugins=[Collected()]))
"""


class BareAccount(NamedTuple):
    """The tests of CI that run without what lies outside the checkout, and those that do not, by reason."""

    all: int
    skipped: Counter[str]

    @property
    def share(self) -> float:
        """The part of CI's tests that run."""
        return 1 - self.skipped.total() / self.all


def bare_account() -> BareAccount:
    """Collect the tests twice, with the data beside the checkout (if it is there) and without it, and compare."""
    everywhere = _collected({})
    bare = _collected({"SHARED": os.devnull})
    skipped = Counter(reason for reason in bare.values() if reason is not None)
    skipped["not even collected"] = len(everywhere.keys() - bare.keys())
    return BareAccount(len(everywhere.keys() | bare.keys()), +skipped)


def _collected(variables: dict[str, str]) -> dict[str, str | None]:
    """Return the names of the tests, with the reason why one would be skipped."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "tests.json"
        command = [sys.executable, "-c", _PROGRAM, str(file), _STAGES]
        subprocess.run(command, cwd=ROOT, env={**os.environ, **variables}, stdout=subprocess.DEVNULL, check=True)
        return dict(json.loads(file.read_text(encoding="utf-8")))


def main() -> None:
    """Print the figures."""
    account = bare_account()
    print(f"{account.all - account.skipped.total():,} of {account.all:,} tests run on a bare account: {account.share:.1%}")
    for reason, number in account.skipped.most_common():
        print(f"{number:5d}  {reason}")


if __name__ == "__main__":
    main()
