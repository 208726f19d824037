"""Have the real types of each framework read what its adapter makes of an episode, and write the result into docs/training.md:
see `make trainers`."""

from __future__ import annotations

import json
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from scripts.generated_section import updated
from tests.trainers.checks import FRAMEWORKS, check, episode, python_of

_DOCUMENT = Path(__file__).parents[2] / "docs" / "training.md"


def main() -> int:
    """Return the exit code: 1 if something does not fit, 2 if a framework is not installed."""
    absent = [framework.package for framework in FRAMEWORKS if not python_of(framework).exists()]
    if absent:
        print(f"not installed: {', '.join(absent)}", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "episode.json"
        file.write_text(json.dumps(episode()), encoding="utf-8")
        found = [(framework, *check(framework, file)) for framework in FRAMEWORKS]
    lines = ["<!-- trainers: written by `make trainers` -->", "", "| package | version | checked | fits |", "|---|---|---|---|"]
    for framework, version, problem in found:
        lines.append(f"| {framework.package} | {version} | {framework.checked} | {problem or 'yes'} |")
    date = datetime.now(UTC).date().isoformat()
    section = "\n".join([*lines, "", f"Checked with the packages themselves on {date}.", "", "<!-- /trainers -->"])
    print(section)
    if any(problem for _, _, problem in found):
        return 1
    _DOCUMENT.write_text(updated(_DOCUMENT.read_text(encoding="utf-8"), section), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
