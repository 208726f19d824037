"""The one table of client quirks: what differs from client to client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Client(NamedTuple):
    """How a client deviates from what the specification expects of one."""

    name: str
    # Runs every call that reaches `output_item.done`, whatever the item's status.
    runs_cut_calls: bool = False
    # Keeps every text that reaches `output_item.done`, although it repeats the request of a failed response: the user would
    # read a broken answer and then the whole one.
    keeps_broken_text: bool = False
    # Shows the message of a 400 only under the code `invalid_prompt`; under others the user reads raw JSON.
    reads_invalid_prompt: bool = False
    # Drops a message that has a refusal part.
    drops_refusals: bool = False


STANDARD = Client("standard")
CODEX = Client("codex", runs_cut_calls=True, keeps_broken_text=True, reads_invalid_prompt=True, drops_refusals=True)


def recognise(headers: Mapping[str, str]) -> Client:
    """Return the client behind a request. Codex names itself in `originator` (`codex_exec`, `codex-tui`, ...)."""
    return CODEX if headers.get("originator", "").startswith("codex") else STANDARD
