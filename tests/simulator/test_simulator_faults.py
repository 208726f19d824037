"""Every fault does what it says."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import aiohttp
import pytest

from responses_gateway.simulator import DIALECTS, SimulatorOptions, create_app, serving
from responses_gateway.simulator.faults import Faults, parse_faults
from responses_gateway.simulator.playback import Player
from tests.simulator.chat_client import WEATHER, Ask, Reply, post
from tests.waiting import PATIENCE


@pytest.mark.parametrize("status", [400, 401, 404, 429, 500, 503])
def test_a_status_refuses_with_the_error_object_of_vllm(ask: Ask, status: int) -> None:
    reply = ask(f"hi fault: status={status},retry-after=7")
    assert reply.status == status
    assert reply.json["error"]["code"] == status
    assert reply.headers["retry-after"] == "7"


@pytest.mark.parametrize(
    ("wording", "words"),
    [
        ("vllm", "maximum context length is 131072 tokens. However, your prompt"),
        ("sglang", "longer than the model's context length"),
        ("llamacpp", "exceeds the available context size"),
        ("ollama", "the input length exceeds the context length"),
        ("openai", "Please reduce the length of the messages"),
    ],
)
def test_a_context_overflow_in_the_wording_of_each_server(ask: Ask, wording: str, words: str) -> None:
    reply = ask("hi", headers={"x-simulator-fault": f"overflow={wording}"})
    assert reply.status == 400
    assert words in reply.body.decode()


def test_a_prompt_that_is_too_long_overflows_by_itself(ask: Ask) -> None:
    reply = ask("word " * 200, options=SimulatorOptions(max_model_len=100))
    assert reply.status == 400
    assert reply.json["error"]["param"] == "input_tokens"
    assert "at least 101 input tokens" in reply.json["error"]["message"]


def test_a_reset_cuts_before_the_headers(ask: Ask) -> None:
    assert ask("fault: reset") == Reply(0, {}, b"", broken=True)


def test_a_drop_cuts_inside_a_call(ask: Ask) -> None:
    reply = ask("scenario: tool fault: drop=call", tools=[WEATHER])
    assert reply.broken
    assert reply.calls[0]["name"] == "get_weather"
    with pytest.raises(ValueError, match="Expecting"):
        json.loads(reply.calls[0]["arguments"] + " ")


@pytest.mark.parametrize(("place", "field"), [("reasoning", "reasoning"), ("text", "content")])
def test_a_drop_cuts_inside_the_named_part(ask: Ask, place: str, field: str) -> None:
    whole = ask()
    cut = ask(headers={"x-simulator-fault": f"drop={place}"})
    assert cut.broken
    assert 0 < len(cut.text(field)) < len(whole.text(field))


def test_eof_ends_the_body_without_a_finish_reason(ask: Ask) -> None:
    reply = ask("fault: eof=3")
    assert not reply.broken
    assert len(reply.chunks) == 4  # the role chunk counts besides
    assert (reply.finish_reason, b"[DONE]" in reply.payloads) == (None, False)


def test_no_done_and_no_finish(ask: Ask) -> None:
    reply = ask("fault: no-done")
    assert (reply.finish_reason, b"[DONE]" in reply.payloads) == ("stop", False)
    reply = ask("fault: no-finish")
    assert (reply.finish_reason, b"[DONE]" in reply.payloads) == (None, True)


def test_an_error_chunk_ends_the_stream_as_a_dead_engine_does(ask: Ask) -> None:
    reply = ask("fault: error=2")
    assert reply.chunks[-1]["error"]["type"] == "InternalServerError"
    assert reply.payloads[-1] == b"[DONE]"
    assert all(chunk["choices"][0]["finish_reason"] is None for chunk in reply.chunks[:-1])


def test_a_malformed_chunk_is_followed_by_the_rest(ask: Ask) -> None:
    payloads = ask("fault: malformed=2").payloads
    with pytest.raises(ValueError, match="Expecting"):
        json.loads(payloads[3])
    assert json.loads(payloads[-2])["choices"][0]["finish_reason"] == "stop"


def test_length_and_filter_end_early_with_their_reason(ask: Ask) -> None:
    reply = ask("fault: length=9", stream_options={"include_usage": True})
    assert reply.finish_reason == "length"
    assert reply.chunks[-1]["usage"]["completion_tokens"] == 9
    reply = ask("fault: filter=text")
    assert reply.finish_reason == "content_filter"
    assert 0 < len(reply.text()) < len(ask().text())


@pytest.mark.parametrize("fault", ["slow-headers", "delay", "silence"])
def test_waits_take_their_time(ask: Ask, fault: str) -> None:
    start = time.monotonic()
    reply = ask("hi", headers={"x-simulator-fault": f"{fault}=0.2"})
    assert time.monotonic() - start >= 0.2
    assert reply.payloads[-1] == b"[DONE]"


def test_headers_do_not_wait_for_the_first_token() -> None:
    async def measure() -> float:
        async with serving(create_app()) as url, aiohttp.ClientSession() as session:
            body = {"model": "sim-delay=0.2", "messages": [{"role": "user", "content": "hi"}], "stream": True}
            async with session.post(f"{url}/v1/chat/completions", json=body) as response:
                headers = time.monotonic()
                await response.content.readany()
                return time.monotonic() - headers

    assert asyncio.run(measure()) > 0.1


def test_faults_that_happen_once_do_not_affect_the_retry() -> None:
    async def twice() -> list[int]:
        async with serving(create_app()) as url, aiohttp.ClientSession() as session:
            body = {"model": "m", "messages": [{"role": "user", "content": "fault: status=503,once"}]}
            return [(await post(session, f"{url}/v1/chat/completions", body)).status for _ in range(2)]

    assert asyncio.run(twice()) == [503, 200]


def test_a_fault_may_wait_for_a_step_of_the_work(ask: Ask) -> None:
    later = [
        {"role": "user", "content": "weather? scenario: tool fault: status=500,step=1"},
        {"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "get_weather", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "c", "content": "sunny"},
    ]
    assert ask(later[:1], tools=[WEATHER]).status == 200
    assert ask(later, tools=[WEATHER]).status == 500


def test_a_fault_in_the_model_name(ask: Ask) -> None:
    reply = ask("hello", model="sim-plain+eof-2")
    assert reply.text().startswith("A plain"[: len(reply.text())])
    assert reply.finish_reason is None


def test_faults_without_a_stream(ask: Ask) -> None:
    assert ask("fault: error", stream=False).status == 500
    assert ask("fault: drop", stream=False).broken
    assert ask("fault: filter", stream=False).json["choices"][0]["finish_reason"] == "content_filter"
    with pytest.raises(ValueError, match=r"Unterminated|Expecting"):
        json.loads(ask("fault: malformed", stream=False).body)


@pytest.mark.parametrize("spec", ["bogus", "drop=nowhere", "status=many", "overflow=ibm"])
def test_an_invalid_spec_is_refused(ask: Ask, spec: str) -> None:
    with pytest.raises(ValueError, match=spec.rpartition("=")[2]):
        parse_faults(spec)
    assert ask("hi", headers={"x-simulator-fault": spec}).status == 400


def test_words_of_a_spec_combine() -> None:
    assert parse_faults("drop=call,once delay=0.5") == Faults(drop="call", times=1, delay=0.5)
    assert parse_faults("status-429+retry-after-2") == Faults(status=429, retry_after="2")
    assert not parse_faults("")


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_frees_the_gpu(stream: bool) -> None:
    async def leave() -> dict[str, float]:
        async with serving(create_app(SimulatorOptions(tokens_per_second=20))) as url, aiohttp.ClientSession() as session:
            body = {"model": "sim-long", "messages": [{"role": "user", "content": "go"}], "stream": stream}
            request = asyncio.create_task(_read_slowly(session, f"{url}/v1/chat/completions", body))
            async with asyncio.timeout(PATIENCE):
                while not (await _metrics(session, url))["vllm:num_requests_running"]:
                    pass
                request.cancel()
                while (after := await _metrics(session, url))["vllm:num_requests_running"]:
                    pass
            return after

    after = asyncio.run(leave())
    assert after["simulator:requests_aborted_total"] == 1
    assert after["vllm:generation_tokens_total"] < 100


def test_a_client_that_disconnects_at_the_very_end_is_not_an_error(
    ask: Ask, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def played_to_nobody(player: Player, delay: float) -> str:
        player.transport.abort()
        return "finished"

    monkeypatch.setattr(Player, "play", played_to_nobody)
    assert ask("hi").broken
    assert caplog.records == []


async def _read_slowly(session: aiohttp.ClientSession, url: str, body: dict[str, Any]) -> None:
    async with session.post(url, json=body) as response:
        await response.read()


async def _metrics(session: aiohttp.ClientSession, url: str) -> dict[str, float]:
    """Return the gauges and counters by name, without their labels."""
    async with session.get(f"{url}/metrics") as response:
        lines = (await response.text()).splitlines()
    samples = (line.rpartition(" ") for line in lines if not line.startswith("#"))
    return {name.partition("{")[0]: float(value) for name, _, value in samples}


def test_a_paced_stream_keeps_its_pace(ask: Ask) -> None:
    start = time.monotonic()
    reply = ask("tokens: 40", options=SimulatorOptions(tokens_per_second=200), headers={"x-simulator": "tps: 100"})
    elapsed = time.monotonic() - start
    assert len(reply.text().split()) == 40
    assert 0.35 < elapsed < 3


def test_errors_in_the_shape_of_other_makes(ask: Ask) -> None:
    sglang = ask("fault: status=400", options=SimulatorOptions(dialect=DIALECTS["sglang"])).json
    assert (sglang["object"], "error" in sglang) == ("error", False)
    openai = ask("fault: status=429", options=SimulatorOptions(dialect=DIALECTS["openai"])).json
    assert openai["error"]["code"] == "rate_limit_exceeded"
