"""rLLM: the calls of a rollout as the traces of its gateway (`TraceRecord` of rllm-model-gateway 0.1).

Give the agent the base URL `URL/rollouts/SID/v1`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


def trace(call: Mapping[str, Any], session: str) -> dict[str, Any]:
    """Return one call as a trace. Empty lists: the server sent no tokens."""
    return {
        "trace_id": call["id"],
        "session_id": session,
        "model": call["model"],
        "timestamp": call["created_at"],
        "prompt_token_ids": call["prompt_token_ids"] or [],
        "completion_token_ids": call["generation_token_ids"] or [],
        "logprobs": call["generation_log_probs"],
        "finish_reason": call.get("finish_reason"),
        "metadata": {name: call.get(name) for name in ("parent", "kind", "reason", "response_id", "weight_version")},
    }


def traces(calls: Iterable[Mapping[str, Any]], session: str) -> list[dict[str, Any]]:
    """Return all calls, the oldest first."""
    return [trace(call, session) for call in calls]
