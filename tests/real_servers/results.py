"""What a run has found out so far, kept in a file, so that a run that was interrupted can be continued."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from tests.real_servers.matrix import Cell

MODES = {"zero": "without any setting", "advised": "with the settings that `doctor` recommends"}


@dataclass
class Found:
    """All that was found out about one setting.

    `cells`: by mode, then by name of the check; `verdict`: what the doctor said; `disagreements`: what it should have said
    otherwise; `day`: when, if that was not the day of the run."""

    verdict: str
    disagreements: list[str]
    cells: dict[str, dict[str, Cell]] = field(default_factory=dict)
    day: str | None = None

    @property
    def failures(self) -> int:
        """The number of checks that failed, and of errors of the diagnosis."""
        marks = [cell.mark for cells in self.cells.values() for cell in cells.values()]
        return marks.count("✗") + len(self.disagreements)


@dataclass
class Results:
    """`code`: the gateway that was tried, begun on the day `date`; `versions`: by name of the server; `found`: by name of the
    setting."""

    code: str
    date: str
    versions: dict[str, str] = field(default_factory=dict)
    found: dict[str, Found] = field(default_factory=dict)

    @property
    def failures(self) -> int:
        """The number of failures in all settings."""
        return sum(found.failures for found in self.found.values())

    def save(self, file: Path) -> None:
        """Write everything to a file."""
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(asdict(self), ensure_ascii=False, indent=1), encoding="utf-8")


def load(file: Path, code: str, today: str) -> Results:
    """Return what a run of the same gateway has found out; nothing if there is none."""
    try:
        kept = json.loads(file.read_text(encoding="utf-8"))
    except OSError:
        return Results(code, today)
    if kept["code"] != code:
        return Results(code, today)
    return Results(code, kept["date"], kept["versions"], {name: _found(each) for name, each in kept["found"].items()})


def _found(kept: dict[str, Any]) -> Found:
    cells = {mode: {name: Cell(**cell) for name, cell in row.items()} for mode, row in kept["cells"].items()}
    return Found(kept["verdict"], kept["disagreements"], cells, kept.get("day"))


def fingerprint(files: Iterable[Path]) -> str:
    """Return a text that is another one as soon as one of the files is."""
    digest = sha256()
    for file in sorted(files):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]
