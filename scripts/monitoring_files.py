"""The Grafana dashboards in `deploy/grafana/`, written from `scripts/dashboards/pages.py`, and the Helm chart's copies.

The chart has copies of the dashboards and of the rules in `deploy/prometheus/`: Helm reads nothing outside a chart, and what
carries a checkout may lose links.

Without arguments: exit code 1 if the files are behind. With `--write`: bring them up to date (`make docs`).
"""

from __future__ import annotations

import sys
from pathlib import Path

from dashboards.grafana import render
from dashboards.pages import DASHBOARDS

DEPLOY = Path(__file__).parents[1] / "deploy"
CHART = DEPLOY / "helm" / "responses-proxy"


def files() -> dict[Path, str]:
    """All files and what belongs in them."""
    wanted = {}
    for name, dashboard in DASHBOARDS.items():
        wanted[DEPLOY / "grafana" / name] = wanted[CHART / "dashboards" / name] = render(dashboard)
    for rules in (DEPLOY / "prometheus").glob("*.yml"):
        wanted[CHART / "rules" / rules.name] = rules.read_text(encoding="utf-8")
    return wanted


def main(arguments: list[str]) -> int:
    """The exit code."""
    wanted = files()
    if "--write" in arguments:
        for path, text in wanted.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return 0
    return int(any(not path.exists() or path.read_text(encoding="utf-8") != text for path, text in wanted.items()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
