"""verifiers 0.4: the calls of a rollout as the `TurnTokens` of its responses (`verifiers.v1.types`).

Its own `TrainClient` trains on chat alone. For a harness that speaks the Responses or the Messages API, relay it to the gateway
with the key `KEY:ROLLOUT`, and give each response that is committed to the trace the tokens of the call that has its id."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

Call = Mapping[str, Any]


def turn_tokens(call: Call) -> dict[str, Any] | None:
    """Return the fields of `TurnTokens` for one call; None where the server did not send all tokens."""
    if call["generation_log_probs"] is None:
        return None
    return {
        "prompt_ids": call["prompt_token_ids"],
        "completion_ids": call["generation_token_ids"],
        "completion_logprobs": call["generation_log_probs"],
    }


def turns(calls: Iterable[Call]) -> dict[str, dict[str, Any] | None]:
    """Return the tokens of the calls of the policy, by call: titles, compactions and reviews are no turns of it."""
    return {call["id"]: turn_tokens(call) for call in calls if call["kind"] in (None, "main", "subagent")}
