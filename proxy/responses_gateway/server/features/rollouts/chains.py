"""One list of tokens for the calls that follow each other: prompts as far as they are new, and what the model sampled."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
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

    token_ids: Sequence[int]
    mask: Sequence[int]
    log_probs: Sequence[float | None]
    breaks: Sequence[int]
    call_ids: Sequence[str]


def chain_of(calls: Iterable[ChainedCall]) -> Chain:
    """Return the tokens of calls as one list. A call without tokens is left out, so that the next one begins anew."""
    token_ids: list[int] = []
    mask: list[int] = []
    log_probs: list[float | None] = []
    breaks: list[int] = []
    call_ids: list[str] = []
    known = 0  # how many tokens of the call before stand at the end of the list
    for call in calls:
        if call.prompt is None or call.sampled is None:
            known = 0
            continue
        if not call.unbroken or not known:
            if token_ids:
                breaks.append(len(token_ids))
            known = 0
        new = call.prompt[known:]
        token_ids += new
        token_ids += call.sampled
        mask += [0] * len(new) + [1] * len(call.sampled)
        log_probs += [0.0] * len(new)
        log_probs += [None] * len(call.sampled) if call.log_probs is None else call.log_probs
        call_ids.append(call.id)
        known = len(call.prompt) + len(call.sampled)
    return Chain(token_ids, mask, log_probs, breaks, call_ids)


def pieces_of(calls: Iterable[ChainedCall]) -> list[Chain]:
    """Return the same, as a chain for each part that is not broken."""
    pieces: list[list[ChainedCall]] = []
    anew = True
    for call in calls:
        if call.prompt is None or call.sampled is None:
            anew = True
            continue
        if anew or not call.unbroken:
            pieces.append([])
        pieces[-1].append(call)
        anew = False
    return [chain_of(piece) for piece in pieces]
