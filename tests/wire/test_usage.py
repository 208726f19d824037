"""The counts of tokens of many servers: other places, other names, other sums."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from responses_gateway.wire.chat import decode_chunk
from responses_gateway.wire.deltas import Usage
from responses_gateway.wire.usage import counts_of, merged, usage_in

CHAT = {"prompt_tokens": 100, "completion_tokens": 30}
RESPONSES = {"input_tokens": 100, "output_tokens": 30}
PLAIN = (100, 30, None, None, None)
# Of `usage`: input, output, cached, written to the cache, reasoning.
REPORTED: list[tuple[dict[str, Any], tuple[int | None, ...]]] = [
    ({"prompt_tokens": 100, "completion_tokens": 30}, PLAIN),
    ({**CHAT, "prompt_tokens_details": {"cached_tokens": 64}}, (100, 30, 64, None, None)),
    ({**CHAT, "cached_tokens": 64}, (100, 30, 64, None, None)),
    ({**CHAT, "prompt_cache_hit_tokens": 64, "prompt_cache_miss_tokens": 36},
     (100, 30, 64, None, None)),
    ({**CHAT, "prompt_tokens_details": {"cached_tokens": 0}, "prompt_cache_hit_tokens": 64},
     (100, 30, 64, None, None)),
    ({**CHAT, "cache_read_input_tokens": 64, "cache_creation_input_tokens": 9},
     (100, 30, 64, 9, None)),
    ({**CHAT, "reasoning_tokens": 27}, (100, 30, None, None, 27)),
    ({**CHAT, "completion_tokens_details": {"reasoning_tokens": 0}, "reasoning_tokens": 27},
     (100, 30, None, None, 27)),
    ({"input_tokens": 100, "output_tokens": 30}, PLAIN),
    ({**RESPONSES, "prompt_tokens": 0, "completion_tokens": 0}, PLAIN),
    ({**RESPONSES, "input_tokens_details": {"cached_tokens": 64},
      "output_tokens_details": {"reasoning_tokens": 27}}, (100, 30, 64, None, 27)),
    ({"input_tokens": 100}, (100, None, None, None, None)),
    # xAI: reasoning is no part of the completion
    ({**CHAT, "total_tokens": 157, "completion_tokens_details": {"reasoning_tokens": 27}},
     (100, 57, None, None, 27)),
    ({"prompt_tokens": 100, "completion_tokens": 3, "completion_tokens_details": {"reasoning_tokens": 27}},
     (100, 3, None, None, 27)),
    ({**CHAT, "total_tokens": 130, "completion_tokens_details": {"reasoning_tokens": 27}},
     (100, 30, None, None, 27)),
    # Anthropic: what was cached is no part of the input
    ({"input_tokens": 9, "output_tokens": 30, "cache_read_input_tokens": 64, "cache_creation_input_tokens": 20},
     (93, 30, 64, 20, None)),
    ({"input_tokens": 90, "output_tokens": 30, "cache_read_input_tokens": 64}, (154, 30, 64, None, None)),
    ({"input_tokens": 9, "output_tokens": 30, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 20},
     (29, 30, 0, 20, None)),
    ({"input_tokens": 90, "output_tokens": 30, "total_tokens": 120, "cache_read_input_tokens": 64}, (90, 30, 64, None, None)),
    ({"prompt_tokens": 36, "completion_tokens": 30, "cached_tokens": 64}, (36, 30, 64, None, None)),
    # other names
    ({**CHAT, "num_cached_tokens": 64}, (100, 30, 64, None, None)),
    ({**CHAT, "cached_prompt_tokens": 64}, (100, 30, 64, None, None)),
    ({**CHAT, "cache_read_tokens": 64, "cache_write_tokens": 9}, (100, 30, 64, 9, None)),
    ({**CHAT, "promptTokensDetails": {"cachedTokens": 64}, "completionTokensDetails": {"reasoningTokens": 27}},
     (100, 30, 64, None, 27)),
    ({**CHAT, "prompt_token_details": {"cached_tokens": 64}}, (100, 30, 64, None, None)),
    ({**CHAT, "prompt_tokens_details": {"cached_tokens": 64, "cache_write_tokens": 9}}, (100, 30, 64, 9, None)),
    ({**CHAT, "prompt_tokens_details": {"cached_tokens": 64, "cached_creation_tokens": 9}}, (100, 30, 64, 9, None)),
    ({**CHAT, "prompt_tokens_details": {"cached_tokens": 0, "cache_creation_input_tokens": 9,
                                        "cache_creation": {"ephemeral_5m_input_tokens": 9}}}, (100, 30, 0, 9, None)),
    ({**CHAT, "cached_prompt_text_tokens": 64, "prompt_text_tokens": 90}, (100, 30, 64, None, None)),
    ({**CHAT, "thinking_tokens": 27}, (100, 30, None, None, 27)),
    ({**CHAT, "completion_tokens_details": {"thinking_tokens": "27"}}, (100, 30, None, None, 27)),
    ({**CHAT, "output_tokens_details": {"thoughts_token_count": 27}}, (100, 30, None, None, 27)),
    ({"inputTokens": 36, "outputTokens": 30, "totalTokens": 130, "cacheReadInputTokens": 64}, (100, 30, 64, None, None)),
    ({"inputTokens": 100, "outputTokens": 30, "cachedInputTokens": 64}, (100, 30, 64, None, None)),
    ({"input_token_count": 100, "generated_token_count": 30}, PLAIN),
    ({"prompt_tokens": 36, "completion_tokens": 30, "total_tokens": 130, "cache_read_input_tokens": 64},
     (100, 30, 64, None, None)),
    # Gemini: thoughts are in the sum alone
    ({**CHAT, "total_tokens": 157}, (100, 57, None, None, None)),
    ({"prompt_tokens": 100, "completion_tokens": 0, "total_tokens": 127}, (100, 27, None, None, None)),
    # what counts something else
    ({**CHAT, "prompt_cache_miss_tokens": 36, "uncached_tokens": 36, "cached_tokens_cost": 5, "cache_discount": 1,
      "thinking_budget_tokens": 900, "max_reasoning_tokens": 900}, PLAIN),
    ({**CHAT, "cached_tokens_details": {"text_tokens": 5}}, PLAIN),
    ({**CHAT, "cost": 0.1, "cost_details": {"cached_tokens": 9}}, PLAIN),
    # odd types
    ({"prompt_tokens": 100.0, "completion_tokens": "30", "cached_tokens": "64", "reasoning_tokens": 2.0},
     (100, 30, 64, None, 2)),
    ({**CHAT, "cached_tokens": {}, "reasoning_tokens": "many"}, PLAIN),
    ({**CHAT, "cached_tokens": -4, "input_tokens_details": []}, PLAIN),
    ({"input_tokens": "many", "output_tokens": 30}, (None, 30, None, None, None)),
]  # fmt: skip


@pytest.mark.parametrize(("usage", "expected"), REPORTED)
def test_usage_under_whatever_names(usage: dict[str, Any], expected: tuple[int | None, ...]) -> None:
    assert _counts_in({"choices": [], "usage": usage}) == Usage(*expected)


def _counts_in(chunk: dict[str, Any]) -> Usage | None:
    payload = json.dumps(chunk).encode()
    usage = usage_in(payload, decode_chunk(payload).usage)
    return None if usage is None else counts_of(usage)


@pytest.mark.parametrize(
    "usage", [{}, {"total_tokens": 5}, {"prompt_tokens": None}, {"input_tokens": None, "cached_tokens": 5}]
)
def test_usage_without_counts(usage: dict[str, Any]) -> None:
    assert _counts_in({"choices": [{}], "usage": usage}) is None


COUNTS = {**CHAT, "total_tokens": 130, "cached_tokens": 64}
FOUND = Usage(100, 30, 64)


@pytest.mark.parametrize(
    ("chunk", "expected"),
    [
        ({"choices": [{"delta": {}, "finish_reason": "stop", "usage": COUNTS}]}, FOUND),
        ({"choices": [{"delta": {"usage": COUNTS}, "finish_reason": "stop"}]}, FOUND),
        ({"choices": [{"message": {"content": "a", "usage": COUNTS}}]}, FOUND),
        ({"choices": [], "x_groq": {"id": "req", "usage": COUNTS}}, FOUND),
        ({"choices": [], "meta": {"usage": COUNTS}}, FOUND),
        ({"choices": [], "amazon-bedrock-invocationMetrics": {}, "metrics": {"usage": COUNTS}}, FOUND),
        ({"choices": [], **COUNTS}, FOUND),
        ({"choices": [], "usage": None, "stats": {"input_tokens": 100, "output_tokens": 30}}, Usage(100, 30)),
        ({"choices": [], "timings": {"cache_n": 64, "prompt_n": 36, "prompt_ms": 1.5, "predicted_n": 30}}, FOUND),
        ({"choices": [], "timings": {"prompt_n": 36, "predicted_n": 30}}, Usage(36, 30)),
        ({"choices": [], "usage": {"promptTokens": 100, "completionTokens": 30, "cachedInputTokens": 64}}, FOUND),
        (
            {
                "choices": [],
                "usageMetadata": {
                    "promptTokenCount": 100,
                    "candidatesTokenCount": 30,
                    "totalTokenCount": 157,
                    "thoughtsTokenCount": 27,
                },
            },
            Usage(100, 57, None, None, 27),
        ),
        ({"choices": [], "prompt_eval_count": 100, "eval_count": 30}, Usage(100, 30)),
        ({"choices": [], "timings": {"prompt_n": 36, "predicted_n": 30}, "x": {"usage": COUNTS}}, FOUND),
        ({"choices": [{"message": {"content": "a" * 100_000}}], "usage": COUNTS}, FOUND),
    ],
)
def test_usage_in_another_place(chunk: dict[str, Any], expected: Usage) -> None:
    usage = usage_in(json.dumps(chunk).encode(), None)
    assert usage is not None
    assert usage.elsewhere is ("usage" not in chunk or chunk["usage"] is None)
    assert counts_of(usage) == expected


@pytest.mark.parametrize(
    ("beside", "expected"),
    [
        ({"timings": {"cache_n": 64, "prompt_n": 36, "predicted_n": 30}}, Usage(100, 30, 64)),
        ({"perf_metrics": {"cached-prompt-tokens": "64", "prompt-tokens": "100"}}, Usage(100, 30, 64)),
        ({"meta_info": {"cached_tokens": 64, "reasoning_tokens": 27}}, Usage(100, 30, 64, None, 27)),
        ({"usage": {**CHAT, "prompt_tokens_details": {"cached_tokens": 8}}, "timings": {"cache_n": 64}}, Usage(100, 30, 8)),
        ({"timings": {"cache_n": 640, "prompt_n": 36, "predicted_n": 30}}, Usage(100, 30)),
        ({"session": {"tokens": 64, "cache_misses": 7}}, Usage(100, 30)),
    ],
)
def test_what_usage_does_not_tell_is_read_beside_it(beside: dict[str, Any], expected: Usage) -> None:
    assert _counts_in({"choices": [], "usage": CHAT, **beside}) == expected


@pytest.mark.parametrize(
    "payload",
    [
        b'{"choices": [{"delta": {"content": "\\"prompt_tokens\\": 5"}}]}',
        b'{"choices": [], "max_tokens": 5, "limits": {"max_output_tokens": 7}}',
        b'{"choices": [], "x": {"prompt_tokens": "many"}}',
        b'{"x": ' + b"[" * 70_000,
        b"null",
    ],
)
def test_no_usage_anywhere(payload: bytes) -> None:
    assert usage_in(payload, None) is None


def test_a_large_chunk_takes_no_time() -> None:
    chunk = json.dumps({"x": [{"y": [{} for _ in range(2)]} for _ in range(3000)]}).encode()
    begin = time.process_time()
    assert usage_in(chunk, None) is None
    assert time.process_time() - begin < 0.5


def test_later_counts_take_back_none() -> None:
    assert merged(Usage(10, 3, 7, 2, 1), Usage(0, 0)) == Usage(10, 3, 7, 2, 1)
    assert merged(Usage(10, 0), Usage(None, 3, None, None, 2)) == Usage(10, 3, None, None, 2)
    assert merged(Usage(10, 3), Usage(12, 4)) == Usage(12, 4)


_NUMBERS = st.none() | st.integers(-5, 500) | st.floats(-5, 500) | st.text(max_size=4) | st.lists(st.integers(), max_size=2)
_NAMES = [
    "prompt_tokens", "completion_tokens", "total_tokens", "input_tokens", "output_tokens", "cached_tokens", "reasoning_tokens",
    "prompt_cache_hit_tokens", "cache_read_input_tokens", "cache_creation_input_tokens",
]  # fmt: skip


@given(st.dictionaries(st.sampled_from(_NAMES), _NUMBERS))
def test_any_usage_gives_counts_that_can_be_true(usage: dict[str, Any]) -> None:
    counts = _counts_in({"choices": [{"delta": {"content": "a"}}], "usage": usage})
    if counts is not None:
        assert all(count is None or count >= 0 for count in (counts.input, counts.output, counts.cached, counts.reasoning))


@pytest.mark.parametrize(("reason", "searched"), [(None, False), ("stop", True)])
def test_of_counts_in_each_chunk_only_the_last_ones_are_searched_for_other_names(reason: str | None, searched: bool) -> None:
    choice = {"index": 0, "delta": {"content": "a"}, "finish_reason": reason}
    usage = {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11, "num_cached_tokens": 8}
    payload = json.dumps({"choices": [choice], "usage": usage}).encode()
    assert decode_chunk(payload).may_count(payload) is searched
