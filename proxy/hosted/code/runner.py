"""What runs code: the interface of the sandbox and of MCP servers, and what comes of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol


class ContainerKey(NamedTuple):
    """A container, and whose it is. Another tenant's container of the same id is another container."""

    tenant: str
    id: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a run.

    `logs`: what the code printed, the value of its last expression, the traceback of an exception. `images`: `data:` URLs of
    the images that it wrote. `files`: the paths of all files that it wrote. `error`: what ended it, unless it ended by itself
    or with an exception; words for the model. `losses`: what was left out, in words for the log."""

    logs: str
    images: Sequence[str] = ()
    files: Sequence[str] = ()
    error: str | None = None
    losses: Sequence[str] = ()


class CodeRunner(Protocol):
    """Runs code in containers, which keep variables and files between runs."""

    async def has(self, container: ContainerKey) -> bool:
        """Return whether a request may name this container."""

    async def run(self, code: str, container: ContainerKey, files: Mapping[str, bytes]) -> Outcome:
        """Run code in a container, which is made if there is none yet. Of the files, by name, it gets those that it was not
        given before. Raise `ToolFailure` if the code was not run. Cancelling stops it."""
