"""How many files a reader has to open to follow one request: measured, and listed in docs/ARCHITECTURE.md."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
MEASURE = "import sys; sys.path.insert(0, 'scripts'); import request_path; print('\\n'.join(request_path.measured()))"


def test_a_plain_request_runs_through_at_most_53_files() -> None:
    run = subprocess.run([sys.executable, "-c", MEASURE], cwd=ROOT, capture_output=True, text=True, timeout=90, check=True)
    files = run.stdout.split()
    assert len(files) <= 53  # small classes in files of their own; see docs/ARCHITECTURE.md
    listed = (ROOT / "docs" / "ARCHITECTURE.md").read_text(encoding="utf-8").partition("<!-- request path")[2]
    names = listed.partition("<!-- /request path")[0]
    assert [name for name in files if f"`{name.partition('/')[2]}`" not in names] == []
