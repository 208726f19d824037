"""Runs in the environment of rllm-model-gateway: `rllm_check.py FILE ADAPTER`. An exception says what does not fit."""

import json
import runpy
import sys
from itertools import pairwise

from rllm_model_gateway.models import TraceRecord

with open(sys.argv[1], encoding="utf-8") as file:
    calls = json.load(file)["calls"]
traces = runpy.run_path(sys.argv[2])["traces"](calls, "ep1")

# No member is lost: the type would leave out one that it does not know.
for call, fields in zip(calls, traces, strict=True):
    assert set(fields) <= set(TraceRecord.model_fields)
    record = TraceRecord(**fields)
    assert record.prompt_token_ids == call["prompt_token_ids"]
    assert record.completion_token_ids == call["generation_token_ids"]
    assert record.logprobs == call["generation_log_probs"]
# What its sample is made of needs the tokens of every call to extend those before it.
for before, after in pairwise(traces):
    known = before["prompt_token_ids"] + before["completion_token_ids"]
    assert after["prompt_token_ids"][: len(known)] == known
