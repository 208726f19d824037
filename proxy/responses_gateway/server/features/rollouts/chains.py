"""One list of tokens for the calls that follow each other: prompts as far as they are new, and what the model sampled."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import NamedTuple


class ChainedCall(NamedTuple):
    """One call, in order. The tokens are None where they are not known. `unbroken`: the prompt begins with all tokens of the
    call before."""

    id: str
    prompt: array[int] | None
    sampled: array[int] | None
    log_probs: array[float] | None
    unbroken: bool


class Chain(NamedTuple):
    """`mask` has 1 for what was sampled. `log_probs` are 0 for the rest, and None where the server told none. `breaks` are the
    places where a whole prompt begins anew, because it does not continue the tokens before it."""

    token_ids: list[int]
    mask: list[int]
    log_probs: list[float | None]
    breaks: list[int]
    call_ids: list[str]


def chain_of(calls: Iterable[ChainedCall]) -> Chain:
    """Return the tokens of calls as one list. A call without tokens is left out, so that the next one begins anew."""
    whole = Chain([], [], [], [], [])
    for piece in pieces_of(calls):
        if whole.token_ids:
            whole.breaks.append(len(whole.token_ids))
        for name in Chain._fields:
            getattr(whole, name).extend(getattr(piece, name))
    return whole


def pieces_of(calls: Iterable[ChainedCall]) -> list[Chain]:
    """Return the same, as a chain for each part that is not broken."""
    pieces: list[Chain] = []
    known = 0  # how many tokens of the call before stand at the end of the last piece
    for call in calls:
        if call.prompt is None or call.sampled is None:
            known = 0
            continue
        if not call.unbroken or not known:
            pieces.append(Chain([], [], [], [], []))
            known = 0
        piece = pieces[-1]
        new = call.prompt[known:]
        piece.token_ids.extend(new + call.sampled)
        piece.mask.extend([0] * len(new) + [1] * len(call.sampled))
        piece.log_probs.extend([0.0] * len(new))
        piece.log_probs.extend([None] * len(call.sampled) if call.log_probs is None else call.log_probs)
        piece.call_ids.append(call.id)
        known = len(call.prompt) + len(call.sampled)
    return pieces
