"""The parent's part in what workers tell each other: it passes notices on, and sees that one worker examines the backends."""

from __future__ import annotations

from collections.abc import Set

from proxy.server.process.notices import FINDINGS, RELOADED, Board, Notice, line_of, notice_of
from proxy.server.process.worker import Worker
from proxy.server.process.worker_link import EXAMINE


class Switchboard:
    """Among these workers, of which those of one generation have the same settings."""

    def __init__(self, workers: Set[Worker]) -> None:
        """`workers` are all that there are: a set that changes."""
        self.generation = 0
        self._workers = workers
        self._board = Board()
        self._examiner: Worker | None = None

    def begin_generation(self) -> None:
        """The workers that start from now on have new settings: what was found out for the old ones may not fit."""
        self.generation += 1
        self._examiner = None
        self._board.forget_findings()

    @property
    def notices(self) -> list[Notice]:
        """For a worker that starts now."""
        return self._board.notices

    def hear(self, worker: Worker, line: bytes) -> None:
        """A worker has said something."""
        notice = notice_of(line)
        if notice is None:
            self._name_examiner()  # it may have become ready
            return
        finding = notice.about in FINDINGS
        if finding and worker.generation != self.generation:
            return
        self._board.take(notice)
        if notice.about == RELOADED:  # each has had the signal itself
            return
        for other in self._workers:
            if other is not worker and (not finding or other.generation == worker.generation):
                other.send(line_of(notice))

    def lost(self, worker: Worker) -> None:
        """A worker is gone, perhaps in the middle of an examination."""
        if worker is self._examiner:
            self._examiner = None
            self._name_examiner()

    def _name_examiner(self) -> None:
        if self._examiner is not None or self._board.is_examined:
            return
        for worker in self._workers:
            if worker.serves and worker.generation == self.generation:
                self._examiner = worker
                worker.send(EXAMINE)
                return
