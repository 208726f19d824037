"""Runs in the environment of verifiers: `verifiers_check.py FILE ADAPTER`. An exception says what does not fit."""

import json
import runpy
import sys

from verifiers.v1.graph import prepare_turn
from verifiers.v1.trace import Trace
from verifiers.v1.types import AssistantMessage, Response, ToolMessage, TurnTokens, UserMessage

with open(sys.argv[1], encoding="utf-8") as file:
    episode = json.load(file)
adapter = runpy.run_path(sys.argv[2])
calls = episode["calls"]
tokens = adapter["turns"](calls)

# Each response of the harness is committed to a trace, with the tokens of the call that has its id.
trace = Trace.model_construct(nodes=[], tools=[], mm_token_type_id_map={}, calls=[])
history = []
for asked, response in zip(episode["asked"], episode["responses"], strict=True):
    history += [ToolMessage(**each) if each["role"] == "tool" else UserMessage(**each) for each in asked]
    text = "".join(
        part["text"] for item in response["output"] for part in item.get("content") or () if item["type"] == "message"
    )
    said = AssistantMessage(content=text)
    assert set(tokens[response["id"]]) <= set(TurnTokens.model_fields)
    turn = TurnTokens(**tokens[response["id"]])
    prepare_turn(trace, list(history)).commit(
        Response(id=response["id"], created=0, model="simulator", message=said, finish_reason="stop", tokens=turn)
    )
    history.append(said)

# There is one branch, and its nodes are the tokens that the model saw and sampled.
nodes = trace.nodes
assert [node.parent for node in nodes] == [None, *range(len(nodes) - 1)]
last = calls[-1]
assert [token for node in nodes for token in node.token_ids] == last["prompt_token_ids"] + last["generation_token_ids"]
sampled = [token for node in nodes for token, mask in zip(node.token_ids, node.mask, strict=True) if mask]
assert sampled == [token for call in calls for token in call["generation_token_ids"]]
log_probs = [value for node in nodes for value in node.logprobs if value]
assert len(log_probs) == len([value for call in calls for value in call["generation_log_probs"] if value])
