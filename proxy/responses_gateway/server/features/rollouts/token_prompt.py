"""The next prompt of a chain as ids: all tokens so far as they were, and the ids of what is new.

What is new is cut out of a rendered prompt: it stands behind the end of the last answer, which is told by counting the token
that ends answers. So it does not matter in what other words or pieces a template writes earlier answers."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

from responses_gateway.wire.chat import has_media

# Why a prompt is sent as messages all the same.
Misfit: TypeAlias = Literal[
    "history_differs", "no_token_ids", "answer_cut", "media", "not_rendered", "ends_differ", "ids_ignored", "parameter",
    "store_unavailable",
]  # fmt: skip
# How an answer ends that the model has ended itself.
ENDS = frozenset({"stop", "tool_calls", "function_call"})


class Earlier(NamedTuple):
    """A call that a prompt continues: its tokens, how it ended, and how many messages of the prompt end with its answer."""

    prompt: array[int] | None
    sampled: array[int] | None
    finish_reason: str | None
    messages: int


class Extension(NamedTuple):
    """A prompt as ids. `certain`: the rendered prompt begins with the same tokens. Else the messages up to the last answer have
    to contain as many `ends`, which are tokens `end`."""

    ids: list[int]
    certain: bool
    end: int
    ends: int


def misfit_of(body: Mapping[str, Any], earlier: Earlier) -> Misfit | None:
    """Return why the prompt of a chat request cannot continue the tokens of an earlier call; None if it may."""
    if earlier.prompt is None or not earlier.sampled:
        return "no_token_ids"
    if earlier.finish_reason not in ENDS:
        return "answer_cut"
    if has_media(body["messages"]):
        return "media"
    if body.get("echo") or body.get("kv_transfer_params") or body.get("continue_final_message"):
        return "parameter"
    return None


def extended(before: array[int], rendered: Sequence[int]) -> Extension | None:
    """Return the prompt that continues these tokens, which end with an answer; `rendered` is the whole prompt as the server
    renders it. None if that has no such end, or nothing behind it."""
    end = before[-1]
    ends = before.count(end)
    place = -1
    try:
        for _ in range(ends):
            place = rendered.index(end, place + 1)
    except ValueError:
        return None
    new = rendered[place + 1 :]
    if not new:
        return None
    known = before.tolist()
    return Extension([*known, *new], list(rendered[: place + 1]) == known, end, ends)
