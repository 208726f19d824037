"""What the workers of one gateway tell each other through their parent: changes of the backends, and what they want.

A notice is one line of the link: `notice` and JSON. Parent and worker may be of different versions, so what one does not know,
it passes over.
"""

from __future__ import annotations

from typing import Any

import msgspec

_MARK = b"notice "
#: Of these a worker that starts later is told as well.
ADDED, REMOVED, DRAINED, RESUMED = "added", "removed", "drained", "resumed"
#: A worker has read its settings again: they say now which backends there are.
RELOADED = "reloaded"
#: The settings that fit the backends; each was looked at once; no more will be found.
ADAPTED, LOOKED, EXAMINED = "adapted", "looked", "examined"
FINDINGS = frozenset({ADAPTED, LOOKED, EXAMINED})
#: Backends that a later worker is told of; who was changed first is forgotten first.
_BACKENDS = 1000


class Notice(msgspec.Struct, frozen=True):
    """`about` is one of the words above, `name` that of a backend; `fields` are those of a new one, or settings."""

    about: str
    name: str = ""
    fields: dict[str, Any] = {}


def line_of(notice: Notice) -> bytes:
    """The notice on the wire."""
    return _MARK + msgspec.json.encode(notice) + b"\n"


def notice_of(line: bytes) -> Notice | None:
    """The notice of a line, if it is one that this version can read."""
    if not line.startswith(_MARK):
        return None
    try:
        return msgspec.json.decode(line[len(_MARK) :], type=Notice)
    except msgspec.DecodeError:
        return None


class Board:
    """What a worker that starts later has to know. No I/O."""

    def __init__(self) -> None:
        self._backends: dict[str, list[Notice]] = {}
        self._findings: dict[str, Notice] = {}

    @property
    def notices(self) -> list[Notice]:
        """In the order in which they are to be followed, on top of the settings."""
        return [notice for notices in (*self._backends.values(), list(self._findings.values())) for notice in notices]

    @property
    def is_examined(self) -> bool:
        """Nobody needs to ask the backends any more."""
        return EXAMINED in self._findings

    def forget_findings(self) -> None:
        """There are new settings, and perhaps other backends."""
        self._findings.clear()

    def take(self, notice: Notice) -> None:
        """Note down what a worker tells."""
        if notice.about in FINDINGS:
            self._findings[notice.about] = notice
        elif notice.about == RELOADED:
            kept = {name: [each for each in notices if each.about == DRAINED] for name, notices in self._backends.items()}
            self._backends = {name: notices for name, notices in kept.items() if notices}
        elif notice.about in (ADDED, REMOVED, DRAINED, RESUMED):
            self._change(notice)

    def _change(self, notice: Notice) -> None:
        before = self._backends.pop(notice.name, [])
        if notice.about == REMOVED:
            after = [notice]
        elif notice.about == ADDED:  # one of the settings may have been removed first
            after = [each for each in before if each.about == REMOVED] + [notice]
        else:
            after = [each for each in before if each.about != DRAINED] + ([notice] if notice.about == DRAINED else [])
        if after:
            self._backends[notice.name] = after
        if len(self._backends) > _BACKENDS:
            del self._backends[next(iter(self._backends))]
