"""What a chunk costs in calls, counted and not timed: with tools no more than without them, and little more with all that helps
models that end early and make broken calls."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from responses_gateway.stream.outcomes import EarlyEnds
from responses_gateway.stream.sampling import CallRecorder
from responses_gateway.stream.text_loops import TextLoopWatch
from responses_gateway.stream.validity.call_rules import CallRules
from responses_gateway.wire.tools import ToolTable, ToolTarget
from tests.server.scripted_backend import call, chunk
from tests.stream.stream_player import event, new_translator

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS = [{"type": "function", "function": {"name": "get_weather", "parameters": SCHEMA}}]
TABLE: ToolTable = {"get_weather": ToolTarget("function", "get_weather")}
WARM = 50
COUNTED = 400
TEXT = [chunk({"content": f" word {number}"}) for number in range(WARM + COUNTED)]
ARGUMENTS = [
    chunk(call('{"city": "', id="c1", type="function")),
    *(chunk(call(f" word {number}")) for number in range(WARM + COUNTED)),
]
# A text that may be a loop is looked at each 2 KB: this much is the look's share of a chunk, and what counts its bytes.
LOOKING = 6


def counted(feed: Callable[[bytes], bytes], chunks: Sequence[bytes]) -> float:
    """Return how many calls each of the last chunks makes."""
    calls = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    for data in chunks[:-COUNTED]:
        feed(data)
    sys.setprofile(count)
    try:
        for data in chunks[-COUNTED:]:
            feed(data)
    finally:
        sys.setprofile(None)
    return calls / COUNTED


def plain(chunks: Sequence[bytes]) -> float:
    translator = new_translator(tools=TABLE)
    translator.start()
    return counted(translator.feed, chunks)


def off(chunks: Sequence[bytes]) -> float:
    rules = CallRules(TOOLS, repairs=False, drops_nulls=False)
    translator = new_translator(tools=TABLE, calls=rules, early_ends=EarlyEnds("off", tool_ran=True))
    translator.start()
    return counted(translator.feed, chunks)


def on(chunks: Sequence[bytes]) -> float:
    rules = CallRules(TOOLS, repairs=True, drops_nulls=False)
    translator = new_translator(tools=TABLE, calls=rules, early_ends=EarlyEnds("certain", tool_ran=True))
    translator.start()
    return counted(TextLoopWatch(translator).feed, chunks)


def test_a_chunk_of_text_makes_no_more_calls_while_nothing_is_on() -> None:
    assert off(TEXT) <= plain(TEXT) + 0.1


def test_a_chunk_of_text_makes_few_more_calls_while_all_is_on() -> None:
    assert on(TEXT) <= plain(TEXT) + LOOKING


def test_a_chunk_of_a_call_makes_no_more_calls_whatever_is_on() -> None:
    assert off(ARGUMENTS) <= plain(ARGUMENTS) + 0.1
    assert on(ARGUMENTS) <= plain(ARGUMENTS) + LOOKING


def sampled(number: int) -> bytes:
    """Return a chunk with its token, as vLLM sends it for a rollout."""
    entry = {"token": f" word {number}", "logprob": -0.5, "bytes": [32, 119], "top_logprobs": []}
    choice = {"index": 0, "delta": {"content": f" word {number}"}, "logprobs": {"content": [entry]}, "finish_reason": None}
    return event({"object": "chat.completion.chunk", "choices": [{**choice, "token_ids": [number]}]})


def test_a_chunk_whose_token_is_kept_is_not_decoded_whole() -> None:
    translator = new_translator(tools=TABLE, recorder=CallRecorder(hides_logprobs=True, shows=None))
    translator.start()
    cost = counted(translator.feed, [sampled(number) for number in range(WARM + COUNTED)])
    assert cost <= plain(TEXT) + 10
