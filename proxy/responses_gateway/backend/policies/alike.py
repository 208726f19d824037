"""Which backends serve the same model from the same checkpoint, so that one may continue the answers of another.

A vLLM server tells in its list of models what it was started with. Two entries that are equal in all but their times describe
the same model: the same name, checkpoint (`root`) and length of the context, and whatever else the server tells of it, its
quantisation for one. Other servers do not tell enough."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from responses_gateway.backend.server_types import server_of

_NAMED = 20  # how many backends a line of the log names
# What differs between two servers of the same model, or between two answers of one.
_PASSING = frozenset({"created", "permission"})


def checkpoint_of(entry: Mapping[str, Any]) -> str | None:
    """Return what an entry of a list of models says of the model, as a text to be compared; None if that is not enough."""
    complete = isinstance(entry.get("root"), str) and type(entry.get("max_model_len")) is int
    if not complete or server_of(entry.get("owned_by")) != "vllm":
        return None
    lasting = {name: value for name, value in entry.items() if name not in _PASSING}
    return msgspec.json.encode(lasting, order="deterministic").decode()


def difference(checkpoints: Sequence[str | None]) -> str:
    """Return why backends with these checkpoints are not alike; nothing if they are."""
    first = checkpoints[0]
    for other in checkpoints:
        if first is None or other is None:
            return "not all are vLLM servers that list root and max_model_len"
        if other != first:
            one = msgspec.json.decode(first)
            two = msgspec.json.decode(other)
            names = sorted(name for name in one.keys() | two.keys() if one.get(name) != two.get(name))
            return f"they list another {', '.join(names)}"
    return ""


class AlikeLog:
    """Logs for which models answers are continued by other backends without a setting, and why not: once per change."""

    def __init__(self, log: Callable[..., None]) -> None:
        """`log` takes a message, the names of the backends, and fields."""
        self._log = log
        self._reasons: dict[str, str] = {}

    def update(self, backends: Mapping[str, Mapping[str, str | None]]) -> None:
        """Take for each model what its backends list, by their names. Those of one backend alone are of no interest."""
        for model in [*self._reasons.keys() - backends.keys()]:
            del self._reasons[model]
        for model, checkpoints in backends.items():
            alone = len(checkpoints) == 1
            reason = "one backend alone serves it" if alone else difference(list(checkpoints.values()))
            if self._reasons.get(model, reason if alone else None) == reason:
                continue
            self._reasons[model] = reason
            names = ", ".join([*checkpoints][:_NAMED]) + (
                f", … ({len(checkpoints)} in all)" if len(checkpoints) > _NAMED else ""
            )
            if reason:
                self._log("answers are not continued by other backends", names, model=model, reason=reason)
            else:
                self._log("answers are continued by other backends", names, model=model)
