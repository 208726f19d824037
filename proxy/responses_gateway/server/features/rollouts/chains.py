"""One list of tokens for the calls that follow each other: prompts as far as they are new, and what the model sampled."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from responses_gateway.state.token_trees import KeptCall


class Chain(NamedTuple):
    """`mask` has 1 for what was sampled. `log_probs` are 0 for the rest, and None where the server told none. `breaks` are the
    places where a whole prompt begins anew, because it does not continue the tokens before it."""

    token_ids: list[int]
    mask: list[int]
    log_probs: list[float | None]
    breaks: list[int]
    call_ids: list[str]


def chain_of(calls: Iterable[KeptCall]) -> Chain:
    """Return the tokens of calls as one list. A call without tokens is left out, so that the next one begins anew."""
    whole = Chain([], [], [], [], [])
    for piece in pieces_of(calls):
        if whole.token_ids:
            whole.breaks.append(len(whole.token_ids))
        for name in Chain._fields:
            getattr(whole, name).extend(getattr(piece, name))
    return whole


def pieces_of(calls: Iterable[KeptCall]) -> list[Chain]:
    """Return the same, as a chain for each part that is not broken."""
    pieces: list[Chain] = []
    known = 0  # how many tokens of the call before stand at the end of the last piece
    for call in calls:
        prompt, sampled, log_probs = call.tokens
        if prompt is None or sampled is None:
            known = 0
            continue
        if not call.unbroken or not known:
            pieces.append(Chain([], [], [], [], []))
            known = 0
        piece = pieces[-1]
        new = prompt[known:]
        piece.token_ids.extend(new + sampled)
        piece.mask.extend([0] * len(new) + [1] * len(sampled))
        piece.log_probs.extend([0.0] * len(new))
        piece.log_probs.extend([None] * len(sampled) if log_probs is None else log_probs)
        piece.call_ids.append(call.id)
        known = len(prompt) + len(sampled)
    return pieces
