"""Runs in the environment of NeMo Gym: `nemo_gym_check.py FILE ADAPTER`. An exception says what does not fit."""

import json
import runpy
import sys

from nemo_gym.openai_utils import NeMoGymResponse, TokenIDLogProbMixin
from nemo_gym.token_id_capture.builder import assert_prefix_contiguity, project_main_chain_response, run_builder
from nemo_gym.token_id_capture.records import TokenEntry, compute_digest, extract_token_fields, strip_token_fields

with open(sys.argv[1], encoding="utf-8") as file:
    episode = json.load(file)
adapter = runpy.run_path(sys.argv[2])
calls = episode["calls"]

# A response with `include: ["token_ids"]`: Gym finds all arrays on the last item, and no other.
for response in episode["responses"]:
    call = next(call for call in calls if call["id"] == response["id"])
    assert extract_token_fields(response) == {**{name: call[name] for name in adapter["ARRAYS"]}, "routed_experts": None}
    _, place = strip_token_fields(response["output"])
    assert place == len(response["output"]) - 1
    [*others, last] = NeMoGymResponse.model_validate(response).output
    assert isinstance(last, TokenIDLogProbMixin)
    assert not any(isinstance(item, TokenIDLogProbMixin) for item in others)

# The record of a rollout: Gym makes one chain of it, in which each prompt extends all tokens before it.
entries = [TokenEntry(**fields) for fields in adapter["entries"](calls, "ep1")]
out = run_builder(entries, terminal_call_id=calls[-1]["id"])
assert [[link.entry.model_call_id for link in chain.links] for chain in out.chains] == [[call["id"] for call in calls]]
projected = project_main_chain_response("ep1", out)
assert_prefix_contiguity(projected)
last = projected["output"][-1]
assert compute_digest(last["prompt_token_ids"] + last["generation_token_ids"]) == compute_digest(
    calls[-1]["prompt_token_ids"] + calls[-1]["generation_token_ids"]
)
