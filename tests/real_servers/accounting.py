"""Checks of limits and numbers: answers that are cut, prompts that are too long, clients that leave, and token counts."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

from tests.real_servers.answers import WEATHER, expect_no_markup
from tests.real_servers.conversation import Conversation, Refusal, Wrong, refusal_of

_CUT_AFTER = 12
# 40,000 tokens: more than the context of every server here.
_TOO_LONG = "word " * 20_000
# Tokens of the script `long`, where it comes word for word.
_LONG = 1350
_GENERATED = ("vllm:generation_tokens_total", "llamacpp:tokens_predicted_total")
_RUNNING = ("vllm:num_requests_running", "llamacpp:requests_processing")
# The server must stop within this time, and before this share of the whole answer.
_STOPS_WITHIN = 20.0
_SHARE = 0.9
_CLIENTS = 4
_ATTEMPTS = 3


def no_limit(with_: Conversation) -> None:
    """Check that a long answer for which no limit was asked is complete."""
    answer = with_.ask("long")
    if answer.response["status"] != "completed":
        raise Wrong(f"status {answer.response['status']}")


def cut(with_: Conversation) -> None:
    """Check that an answer that reaches its limit is incomplete, and so is its last item."""
    for name in ("long", "think"):
        answer = with_.ask(name, max_output_tokens=_CUT_AFTER)
        expect_no_markup(answer)
        reason = (answer.response.get("incomplete_details") or {}).get("reason")
        if answer.response["status"] != "incomplete" or reason != "max_output_tokens":
            raise Wrong(f"{name}: status {answer.response['status']}, reason {reason}")
        if not answer.items or answer.items[-1]["status"] != "incomplete":
            raise Wrong(f"{name}: output {answer.shape()}, the last item is not incomplete")
        if answer.usage["output_tokens"] != _CUT_AFTER:
            raise Wrong(f"{name}: {answer.usage['output_tokens']} output tokens instead of {_CUT_AFTER}")


def overflow(with_: Conversation) -> None:
    """Check that a prompt that exceeds the context gets its own code, and that errors name the client's parameters."""
    refused = with_.try_asking(_TOO_LONG)
    if not isinstance(refused, Refusal):
        raise Wrong(f"a prompt of {refused.usage['input_tokens']} tokens was accepted")
    if refused.error.get("code") != "context_length_exceeded":
        raise Wrong(str(refused))
    limited = with_.try_asking("hello", max_output_tokens=10_000_000)
    if isinstance(limited, Refusal) and "completion_tokens" in f"{limited.error}":
        raise Wrong(f"max_output_tokens of 10,000,000: {limited}")


def cancel(with_: Conversation) -> None:
    """Check that the server stops soon after its clients have left: several, and repeatedly, since a fast server on a busy
    machine may be done before."""
    if with_.server.metrics is None:
        raise Wrong("the server has no metrics")
    whole = _CLIENTS * (_LONG if with_.setting.exact else with_.ask("long").usage["output_tokens"])
    generated = min(_generated_for_nobody(with_) for _ in range(_ATTEMPTS))
    if generated > _SHARE * whole:
        raise Wrong(f"{generated:.0f} of {whole} tokens were generated after {_CLIENTS} clients had left")


def _generated_for_nobody(with_: Conversation) -> float:
    """Return how many tokens the server generates for clients that leave at once."""
    _wait_until_idle(with_)
    before = with_.metric(*_GENERATED)
    with ThreadPoolExecutor(_CLIENTS) as pool:
        list(pool.map(_leave_early, [with_] * _CLIENTS))
    _wait_until_idle(with_)
    return with_.metric(*_GENERATED) - before


def _leave_early(with_: Conversation) -> None:
    with with_.client.stream("POST", f"{with_.url}/v1/responses", json=with_.body("long", stream=True)) as reply:
        for line in reply.iter_lines():
            if ".delta" in line:
                break


def usage(with_: Conversation) -> None:
    """Check that token counts are the server's own, and that reasoning has tokens."""
    answer = with_.ask("think")
    theirs = with_.ask_server("think")["usage"]
    ours = (answer.usage["input_tokens"], answer.usage["output_tokens"])
    if ours != (theirs["prompt_tokens"], theirs["completion_tokens"]):
        raise Wrong(f"{ours[0]} + {ours[1]} tokens; the server says {theirs['prompt_tokens']} + {theirs['completion_tokens']}")
    reasoning = answer.usage["output_tokens_details"]["reasoning_tokens"]
    if not answer.of("reasoning"):
        raise Wrong("no reasoning item to count")
    if not 0 < reasoning < ours[1]:
        raise Wrong(f"reasoning_tokens {reasoning} beside a reasoning item, of {ours[1]}")


def input_tokens(with_: Conversation) -> None:
    """Check that `/v1/responses/input_tokens` counts what the request will be charged for."""
    counted = with_.post("/v1/responses/input_tokens", with_.body("weather", tools=[WEATHER]))
    if counted.status_code != 200:
        raise Wrong(str(refusal_of(counted)))
    charged = with_.ask("weather", tools=[WEATHER]).usage["input_tokens"]
    if counted.json()["input_tokens"] != charged:
        raise Wrong(f"counted {counted.json()['input_tokens']}, charged {charged}")


def _wait_until_idle(with_: Conversation) -> None:
    deadline = time.monotonic() + _STOPS_WITHIN
    while with_.metric(*_RUNNING) > 0:
        if time.monotonic() > deadline:
            raise Wrong("the server goes on")
        time.sleep(0.05)
    time.sleep(0.3)  # counters are written after the request has ended
