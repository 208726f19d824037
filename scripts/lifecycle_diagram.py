"""Write the diagram of a response's state machine in `docs/ARCHITECTURE.md` from its transition table.

Without arguments: exit with 1 if the document is out of date. With `--write`: update it.
"""

from __future__ import annotations

import sys
from pathlib import Path

from generated_section import check_or_write

from responses_gateway.stream.lifecycle.machine import TABLE, Guarded, State, Transition

# The state in which a response ends.
_LAST = "ended"
TARGET = Path(__file__).parents[1] / "docs" / "ARCHITECTURE.md"
BEGIN = "<!-- lifecycle: written by scripts/lifecycle_diagram.py from proxy/responses_gateway/stream/lifecycle/machine.py -->"
END = "<!-- /lifecycle -->"


def section() -> str:
    """Return the markdown between the two marker comments, both included."""
    return "\n".join([BEGIN, "", *_diagram(), "", *_table(), "", END])


def _diagram() -> list[str]:
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {next(iter(TABLE))}"]
    for state in TABLE:
        labels: dict[State, list[str]] = {}
        for kind in TABLE[state]:
            transitions = _transitions(state, kind)
            agreed = len({transition.target for transition, _ in transitions}) == 1
            for transition, guard in transitions[:1] if agreed else transitions:
                if transition.target != state:
                    labels.setdefault(transition.target, []).append(kind.__name__ + ("" if agreed else guard))
        for target, kinds in labels.items():
            lines.append(f"    {state} --> {target}: {', '.join(kinds)}")
    return [*lines, f"    {_LAST} --> [*]", "```"]


def _table() -> list[str]:
    kinds = dict.fromkeys(kind for row in TABLE.values() for kind in row)
    lines = [f"| delta | {' | '.join(TABLE)} |", "|---|" + "---|" * len(TABLE)]
    lines += [f"| {kind.__name__} | {' | '.join(_cell(state, kind) for state in TABLE)} |" for kind in kinds]
    return lines


def _cell(state: State, kind: type) -> str:
    if kind not in TABLE[state]:
        return "–"
    return "; ".join(_description(state, transition) + guard for transition, guard in _transitions(state, kind))


def _description(state: State, transition: Transition) -> str:
    actions = ", ".join(_words(action.__name__) for action in transition.actions)
    return actions if transition.target == state else f"{actions} → {transition.target}".strip()


def _transitions(state: State, kind: type) -> list[tuple[Transition, str]]:
    """Return the transitions of a delta of this kind, each with its guard in brackets (empty if there is none)."""
    transition = TABLE[state][kind]
    if isinstance(transition, Guarded):
        return [(transition.then, f" [{_words(transition.guard.__name__)}]"), (transition.otherwise, " [else]")]
    return [(transition, "")]


def _words(name: str) -> str:
    return name.strip("_").replace("_", " ")


if __name__ == "__main__":
    sys.exit(check_or_write(TARGET, section(), sys.argv[1:]))
