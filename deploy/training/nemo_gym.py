"""NeMo Gym: the calls of a rollout as its records of model calls.

With `include: ["token_ids"]` Gym's own agents find the arrays on the last item of each response, and need none of this. For a
harness such as Codex: run it below `URL/rollouts/ID/v1`, then read the chain that ends with its last response."""

from __future__ import annotations

import json
from typing import Any
from urllib.request import Request, urlopen

ARRAYS = ("prompt_token_ids", "generation_token_ids", "generation_log_probs")


def fetch(url: str, rollout: str, key: str = "") -> list[dict[str, Any]]:
    """Return all calls of a rollout."""
    calls: list[dict[str, Any]] = []
    query = ""
    while True:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        with urlopen(Request(f"{url}/rollouts/{rollout}{query}", headers=headers), timeout=60) as answer:
            page = json.load(answer)
        calls += page["calls"]
        if not page["has_more"]:
            return calls
        query = f"?after={page['last_id']}"


def chain_to(calls: list[dict[str, Any]], response_id: str) -> list[dict[str, Any]]:
    """Return the calls that led to a response, the first one first: sub-agents and titles are on other branches."""
    by_id = {call["id"]: call for call in calls}
    chain: list[dict[str, Any]] = []
    call = by_id.get(response_id)
    while call is not None:
        chain.insert(0, call)
        call = by_id.get(call["parent"])
    return chain


def records(chain: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the token metadata of each call. Raise `ValueError` where tokens are missing: the sample is to be masked."""
    missing = [call["reason"] for call in chain if call["generation_log_probs"] is None]
    if missing:
        raise ValueError(f"tokens are missing: {missing[0]}")
    return [{name: call[name] for name in ARRAYS} for call in chain]
