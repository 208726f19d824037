"""The Grafana dashboards in `deploy/grafana/`, written from `scripts/dashboards/pages.py`.

Without arguments: exit code 1 if the files are behind. With `--write`: bring them up to date (`make docs`).
"""

from __future__ import annotations

import sys
from pathlib import Path

from dashboards.grafana import render
from dashboards.pages import DASHBOARDS

FOLDER = Path(__file__).parents[1] / "deploy" / "grafana"


def main(arguments: list[str]) -> int:
    """The exit code."""
    wanted = {FOLDER / name: render(dashboard) for name, dashboard in DASHBOARDS.items()}
    if "--write" in arguments:
        FOLDER.mkdir(parents=True, exist_ok=True)
        for path, text in wanted.items():
            path.write_text(text, encoding="utf-8")
        return 0
    return int(any(not path.exists() or path.read_text(encoding="utf-8") != text for path, text in wanted.items()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
