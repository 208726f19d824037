"""The state machine of a response, drawn from its table: a part of `docs/ARCHITECTURE.md`.

Without arguments: exit code 1 if the document is behind the table. With `--write`: bring it up to date.
"""

from __future__ import annotations

import sys
from pathlib import Path

from proxy.stream.lifecycle import TABLE, Lifecycle, State

TARGET = Path(__file__).parents[1] / "docs" / "ARCHITECTURE.md"
BEGIN = "<!-- lifecycle: written by scripts/lifecycle_diagram.py from proxy/stream/lifecycle.py -->"
END = "<!-- /lifecycle -->"

#: Action -> the state that it leads to; the others leave the state as it is, but for `_after_call`.
_OPENS: dict[str, State] = {
    Lifecycle._open_reasoning.__name__: "reasoning",
    Lifecycle._open_text.__name__: "text",
    Lifecycle._open_refusal.__name__: "refusal",
    Lifecycle._open_call.__name__: "call",
}
_AFTER_CALL = Lifecycle._after_call.__name__


def section() -> str:
    """The markdown between the two marker comments, both included."""
    return "\n".join([BEGIN, "", *_diagram(), "", *_table(), "", END])


def updated(document: str) -> str:
    """The document with the section as it should be. Raises `ValueError` where a marker is missing."""
    before, rest = document.split(BEGIN)
    _, after = rest.split(END)
    return before + section() + after


def _diagram() -> list[str]:
    lines = ["```mermaid", "stateDiagram-v2", "    [*] --> idle"]
    for state, row in TABLE.items():
        ways: dict[State, list[str]] = {}
        for kind in row:
            target = _target(state, kind)
            if target is not None:
                ways.setdefault(target, []).append(kind.__name__)
        for target, kinds in ways.items():
            label = ", ".join(kinds) + (" (once the call is complete)" if state == "call" else "")
            lines.append(f"    {state} --> {target}: {label}")
    return [*lines, *(f"    {state} --> [*]" for state in TABLE), "```"]


def _target(state: State, kind: type) -> State | None:
    """Where a delta of this kind leads; None if it changes nothing but the item that is open, or the books."""
    names = _names(state, kind)
    if names == [_AFTER_CALL]:
        return _target("idle", kind)
    return next((_OPENS[name] for name in names if name in _OPENS), None)


def _table() -> list[str]:
    lines = [f"| delta | {' | '.join(TABLE)} |", "|---|" + "---|" * len(TABLE)]
    for kind in TABLE["idle"]:
        cells = (", ".join(name.strip("_").replace("_", " ") for name in _names(state, kind)) for state in TABLE)
        lines.append(f"| {kind.__name__} | {' | '.join(cells)} |")
    return lines


def _names(state: State, kind: type) -> list[str]:
    return [action.__name__ for action in TABLE[state][kind]]


def main(arguments: list[str]) -> int:
    """The exit code."""
    document = TARGET.read_text(encoding="utf-8")
    if "--write" in arguments:
        TARGET.write_text(updated(document), encoding="utf-8")
        return 0
    return int(updated(document) != document)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
