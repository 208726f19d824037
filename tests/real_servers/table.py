"""The table of docs/servers.md, written by a whole run between two marker comments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tests.real_servers.matrix import CHECKS, ELSEWHERE, Cell
from tests.real_servers.results import MODES, Found, Results
from tests.real_servers.settings import SETTINGS, Setting

BEGIN = "<!-- real servers: written by `make servers` -->"
END = "<!-- /real servers -->"
# What the doctor says of most of them: not repeated in each row.
USUAL = "works with the settings below"
HEAD = ["server", "flags", "does not pass", "`doctor` says"]


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
    tried = [(setting, results.found[setting.name]) for setting in SETTINGS if setting.name in results.found]
    lines = [BEGIN, "", f"Tried on {results.date}: {_versions(results.versions)}", "", _line(HEAD), "|---" * len(HEAD) + "|"]
    lines += [
        _line([*_names(setting, found.day), _exceptions(found, notes), _diagnosis(found, notes)]) for setting, found in tried
    ]
    return "\n".join([*lines, "", *notes.lines(), "", END])


def updated(document: str, results: Results) -> str:
    """Return the document with the section as it should be. Raise `ValueError` where a marker is missing."""
    before, rest = document.split(BEGIN)
    _, after = rest.split(END)
    return before + section(results) + after


def _versions(versions: Mapping[str, str]) -> str:
    return ", ".join(f"{program} {version}" for program, version in versions.items()) + "."


def _exceptions(found: Found, notes: _Footnotes) -> str:
    """Return what does not pass, by mode where the modes differ."""
    told = {mode: _not_passed(cells, notes) for mode, cells in found.cells.items()}
    if len(set(told.values())) == 1:
        return next(iter(told.values()))
    return "; ".join(f"{MODES[mode]}: {text or 'nothing'}" for mode, text in told.items())


def _not_passed(cells: Mapping[str, Cell], notes: _Footnotes) -> str:
    failed = [(name, cells[name]) for name in CHECKS if cells[name].mark != "✓" and cells[name].note != ELSEWHERE]
    return ", ".join(f"{cell.mark} {name}{notes.refer(cell.note)}" for name, cell in failed)


def _diagnosis(found: Found, notes: _Footnotes) -> str:
    if found.disagreements:
        return f"{found.verdict} ✗{notes.refer('; '.join(found.disagreements))}"
    return "" if found.verdict == USUAL else found.verdict


def _names(setting: Setting, day: str | None) -> list[str]:
    flags = f"`{' '.join(setting.flags)}`" if setting.flags else ""
    traits = [f"{setting.markup} calls"] if setting.markup != "hermes" else []
    traits += [f"{name}: {value}" for name, value in setting.tokenizer.items()]
    traits += [] if setting.questions else ["greets when probed"]
    traits += [f"on {day}"] if day else []
    return [setting.program + (f" ({', '.join(traits)})" if traits else ""), flags]


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _escaped(note: str) -> str:
    """Show markup of models as it is."""
    return note.replace("<", "&lt;").replace("|", "&#124;")
