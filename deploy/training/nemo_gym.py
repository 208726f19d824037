"""NeMo Gym 0.7: the calls of a rollout as the fields of its `TokenEntry`, which `run_builder` makes chains of.

With `include: ["token_ids"]` Gym's own agents find the arrays on the last item of each response, and need none of this. A
harness such as Codex runs below `URL/rollouts/ID/v1`; its last response is `terminal_call_id`."""

from __future__ import annotations

import json
from typing import Any
from urllib.request import Request, urlopen

ARRAYS = ("prompt_token_ids", "generation_token_ids", "generation_log_probs")


def fetch(url: str, rollout: str, key: str = "") -> list[dict[str, Any]]:
    """Return all calls of a rollout, the oldest first."""
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


def entries(calls: list[dict[str, Any]], rollout: str) -> list[dict[str, Any]]:
    """Return the entry of each call that its agent has seen the end of. Raise `ValueError` where tokens are missing: the sample
    is to be masked."""
    told: dict[str, list[int]] = {}
    found: list[dict[str, Any]] = []
    for call in calls:
        if call["reason"] in ("client_left", "cancelled"):
            continue
        if call["generation_log_probs"] is None:
            raise ValueError(f"tokens are missing: {call['reason']}")
        before = told.get(call["parent"])
        follows = before is not None and call["prompt_token_ids"][: len(before)] == before
        told[call["id"]] = call["prompt_token_ids"] + call["generation_token_ids"]
        entry = {name: call[name] for name in (*ARRAYS, "response_id", "model", "created_at")}
        # A prompt that does not begin with the tokens of its parent begins a chain.
        lineage = {
            "parent_call_id": call["parent"] if follows else None,
            "parent_resolution": "resolved" if follows else "root",
        }
        found.append({"rollout_id": rollout, "model_call_id": call["id"], **entry, **lineage})
    return found
