"""What is remembered of a request once it has ended, and shown while it runs: no content of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from proxy.request import Loss
from proxy.stream.writer import Span


@dataclass(slots=True, eq=False)
class Summary:
    """One request. It refers to what its log and its translator have counted, and becomes plain data when somebody looks.

    `line` has the fields of its log line. `state` is the kind of the open item. `gaps` counts the times between reads by the
    buckets of the metrics, `gap_sum` is their sum in seconds. `record` names the file with the recorded exchange."""

    id: str
    line: Mapping[str, Any]
    started: float  # a Unix time in seconds, like `ended`
    client: str
    losses: Sequence[Loss]
    gaps: Sequence[int]
    gap_sum: float
    record: str | None = None
    ended: float | None = None
    phase: str | None = None
    produced: int = 0  # output tokens, or chunks where the backend reported none
    chunks: int = 0
    state: str = ""
    spans: Mapping[int, Span] = field(default_factory=dict)
    repairs: Mapping[str, int] = field(default_factory=dict)
    tokens: Mapping[str, int] = field(default_factory=dict)
    events: Mapping[str, int] = field(default_factory=dict)

    @property
    def outcome(self) -> str:
        """What became of it; `running` before its end."""
        return "running" if self.ended is None else self.line["outcome"]

    def shown(self) -> dict[str, Any]:
        """Return what the list of requests shows."""
        return {
            **self.line,
            "id": self.id,
            "outcome": self.outcome,
            "started": self.started,
            "ended": self.ended,
            "client": self.client,
            "chunks": self.chunks,
            "items": [self._item(span) for span in self.spans.values()],
            "repairs": self.repairs,
            "record": self.record,
        }

    def details(self) -> dict[str, Any]:
        """Return all of it."""
        return {
            **self.shown(),
            "phase": self.phase or self.line.get("phase"),
            "losses": [loss._asdict() for loss in self.losses],
            "tokens": self.tokens,
            "events": self.events,
            "gaps": self.gaps,
            "gap_sum": self.gap_sum,
        }

    def _item(self, span: Span) -> dict[str, Any]:
        return {"type": span.kind or self.state, "opened": span.opened, "closed": span.closed, "size": span.size}
