"""verifiers: the calls of a rollout as the tokens of trajectory steps (`verifiers.types.TrajectoryStepTokens`).

verifiers names a rollout by its API key: give the client the key `KEY:ROLLOUT`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

Call = Mapping[str, Any]


def step_tokens(call: Call, longest: int | None = None) -> dict[str, Any] | None:
    """Return the tokens of one call; None where the server sent none. `longest`: the tokens that a sample may have."""
    prompt = call["prompt_token_ids"]
    completion = call["generation_token_ids"]
    log_probs = call["generation_log_probs"]
    if prompt is None or completion is None or log_probs is None:
        return None
    room = None if longest is None else max(0, longest - len(prompt))
    return {
        "prompt_ids": prompt if longest is None else prompt[:longest],
        "prompt_mask": [0] * (len(prompt) if longest is None else min(longest, len(prompt))),
        "completion_ids": completion[:room],
        "completion_mask": [1] * len(completion[:room]),
        "completion_logprobs": log_probs[:room],
        "overlong_prompt": longest is not None and len(prompt) > longest,
        "is_truncated": room is not None and len(completion) > room,
        "routed_experts": None,
    }


def steps(calls: Iterable[Call]) -> list[dict[str, Any] | None]:
    """Return the tokens of the calls of the policy: titles, compactions and reviews are no steps of it."""
    return [step_tokens(call) for call in calls if call["kind"] in (None, "main", "subagent")]
