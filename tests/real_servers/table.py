"""The tables of docs/servers.md, written by a whole run between two marker comments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tests.real_servers.matrix import CHECKS, Cell
from tests.real_servers.settings import SETTINGS, Setting

BEGIN = "<!-- real servers: written by `make servers` -->"
END = "<!-- /real servers -->"
MODES = {"zero": "Without any setting", "advised": "With the settings that `doctor` recommends"}


@dataclass
class Results:
    """All that one run found out.

    `cells`: by mode, then by name of the setting; `verdicts`: what the doctor said; `disagreements`: what it should have said
    otherwise; `skipped`: settings that could not be started, and why."""

    versions: dict[str, str] = field(default_factory=dict)
    cells: dict[str, dict[str, dict[str, Cell]]] = field(default_factory=lambda: {mode: {} for mode in MODES})
    verdicts: dict[str, str] = field(default_factory=dict)
    disagreements: dict[str, list[str]] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)

    @property
    def failures(self) -> int:
        """The number of checks that failed and of diagnoses that are wrong."""
        cells = [cell for by_setting in self.cells.values() for row in by_setting.values() for cell in row.values()]
        return sum(cell.mark == "✗" for cell in cells) + sum(map(len, self.disagreements.values()))


class _Footnotes:
    """Numbers notes, the same note once."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def refer(self, note: str) -> str:
        if not note:
            return ""
        number = self._numbers.setdefault(note, len(self._numbers) + 1)
        return f"<sup>{number}</sup>"

    def lines(self) -> list[str]:
        return [f"{number}. {_escaped(note)}" for note, number in self._numbers.items()]


def section(results: Results) -> str:
    """Return the markdown between the two marker comments, both included."""
    notes = _Footnotes()
    lines = [BEGIN, "", _versions(results.versions), ""]
    for mode, title in MODES.items():
        rows = [_row(setting, results.cells[mode].get(setting.name), notes) for setting in SETTINGS]
        lines += [f"**{title}**", "", _line(["server", "flags", *CHECKS]), "|---|---|" + ":-:|" * len(CHECKS), *rows, ""]
    lines += ["**What `doctor` says**", "", "| server | flags | verdict | as it should be |", "|---|---|---|:-:|"]
    lines += [_verdict(setting, results, notes) for setting in SETTINGS if setting.name in results.verdicts]
    return "\n".join([*lines, "", *notes.lines(), "", END])


def updated(document: str, results: Results) -> str:
    """Return the document with the section as it should be. Raise `ValueError` where a marker is missing."""
    before, rest = document.split(BEGIN)
    _, after = rest.split(END)
    return before + section(results) + after


def _versions(versions: Mapping[str, str]) -> str:
    return ", ".join(f"{program} {version}" for program, version in versions.items()) + "."


def _row(setting: Setting, cells: Mapping[str, Cell] | None, notes: _Footnotes) -> str:
    if cells is None:
        return _line([*_names(setting), *("not run" for _ in CHECKS)])
    return _line([*_names(setting), *(f"{cells[name].mark}{notes.refer(cells[name].note)}" for name in CHECKS)])


def _verdict(setting: Setting, results: Results, notes: _Footnotes) -> str:
    wrong = results.disagreements.get(setting.name) or []
    mark = f"✗{notes.refer('; '.join(wrong))}" if wrong else "✓"
    return _line([*_names(setting), results.verdicts[setting.name], mark])


def _names(setting: Setting) -> list[str]:
    flags = f"`{' '.join(setting.flags)}`" if setting.flags else ""
    traits = [f"{setting.markup} calls"] if setting.markup != "hermes" else []
    traits += [] if setting.questions else ["greets when probed"]
    return [setting.program + (f" ({', '.join(traits)})" if traits else ""), flags]


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _escaped(note: str) -> str:
    """Show markup of models as it is."""
    return note.replace("<", "&lt;").replace("|", "&#124;")
