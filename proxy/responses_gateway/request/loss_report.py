"""The loss report: the outcome of each parameter, item, tool and content part of a request."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Literal, NamedTuple

import msgspec

from responses_gateway.wire.errors import invalid_request

Kind = Literal["parameter", "item", "tool", "content"]
Outcome = Literal["preserved", "adapted", "ignored", "rejected"]


class Loss(NamedTuple):
    """One entry. `name` comes from a bounded vocabulary, since it labels metrics; names we do not know are "unknown".
    preserved: carried over with its meaning. adapted: carried over in another form. ignored: not carried over. rejected:
    answered with a 400, so it appears in the documentation and never in the report of a request."""

    kind: Kind
    name: str
    outcome: Outcome
    reason: str = ""


@lru_cache(maxsize=1024)  # because every item of a long history is reported, and most requests have the same few losses
def _loss(kind: Kind, name: str, outcome: Outcome, reason: str = "") -> Loss:
    return Loss(kind, name, outcome, reason)


def reported(loss: Loss) -> Loss:
    """Return a loss as a report has it: the reason of what was preserved is for the documentation alone."""
    return _loss(loss.kind, loss.name, "preserved") if loss.reason and loss.outcome == "preserved" else loss


class LossReport(msgspec.Struct):
    """Collects the losses of one request, each once. In strict mode a loss that matters raises `ApiError` 400 instead."""

    _strict: bool = False
    _entries: dict[Loss, None] = msgspec.field(default_factory=dict)

    def add(self, loss: Loss) -> None:
        """Report an outcome, as `reported` returns it."""
        self._entries[loss] = None

    def preserved(self, kind: Kind, name: str) -> None:
        self._entries[_loss(kind, name, "preserved")] = None

    def adapted(self, kind: Kind, name: str, reason: str) -> None:
        self._entries[_loss(kind, name, "adapted", reason)] = None

    def ignored(self, kind: Kind, name: str, reason: str, param: str, *, matters: bool = True) -> None:
        """Report something as ignored. `param` names the field in the client's request. `matters`: it may change the answer."""
        if self._strict and matters:
            raise invalid_request(f"'{param}' cannot be honoured: {reason}.", param, "unsupported_value")
        self._entries[_loss(kind, name, "ignored", reason)] = None

    def repeat(self, losses: Iterable[Loss]) -> None:
        """Report what was reported before, for what is not read again."""
        self._entries.update(dict.fromkeys(losses))

    @property
    def size(self) -> int:
        """How many entries there are."""
        return len(self._entries)

    def losses(self) -> list[Loss]:
        """Return all entries in the order in which they were reported."""
        return list(self._entries)


def header_value(losses: Iterable[Loss], limit: int = 512) -> str:
    """List what was adapted or ignored, for a response header: `ignored="tool:web_search", adapted="item:reasoning"`. The value
    is ASCII and has at most `limit` characters (entries that do not fit are left out and counted). It may be empty."""
    groups: dict[str, list[str]] = {"ignored": [], "adapted": []}
    left_out = 0
    room = limit - len('ignored="", adapted="", more=99999')
    for loss in losses:
        names = groups.get(loss.outcome)
        entry = f"{loss.kind}:{loss.name}"
        if names is None or entry in names:
            continue
        if room < len(entry) + 1:
            left_out += 1
            continue
        room -= len(entry) + 1
        names.append(entry)
    fields = [f'{outcome}="{" ".join(names)}"' for outcome, names in groups.items() if names]
    if left_out:
        fields.append(f"more={left_out}")
    return ", ".join(fields)
