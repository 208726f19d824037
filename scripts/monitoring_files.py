"""Write the Grafana dashboards in `deploy/grafana/` from `scripts/dashboards/pages.py`, and the copies in the Helm chart.

The chart contains copies of the dashboards and of the rules in `deploy/prometheus/`, because Helm reads no files outside of a
chart, and symbolic links may get lost when a checkout is copied.

Without arguments: exit with 1 if the files are out of date. With `--write`: update them (`make docs`).
"""

from __future__ import annotations

import sys
from pathlib import Path

from dashboards.grafana import render
from dashboards.pages import DASHBOARDS

DEPLOY = Path(__file__).parents[1] / "deploy"
CHART = DEPLOY / "helm" / "responses-gateway"


def files() -> dict[Path, str]:
    """Return the path and the contents of each file."""
    wanted = {}
    for name, dashboard in DASHBOARDS.items():
        text = render(dashboard)
        wanted[DEPLOY / "grafana" / name] = text
        wanted[CHART / "dashboards" / name] = text
    for rules in (DEPLOY / "prometheus").glob("*.yml"):
        wanted[CHART / "rules" / rules.name] = rules.read_text(encoding="utf-8")
    return wanted


def main(arguments: list[str]) -> int:
    """Check or write the files; return the exit code."""
    wanted = files()
    if "--write" in arguments:
        for path, text in wanted.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return 0
    return int(any(not path.exists() or path.read_text(encoding="utf-8") != text for path, text in wanted.items()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
