"""Streams of the Messages API while they run: every fault at every phase, a client that waits or leaves, the sample that is
checked."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from responses_gateway.stream.writer import messages
from tests.judges import judge_message
from tests.server.fleet_of_simulators import READINGS, WEATHER, fleet
from tests.server.running_gateway import Served, ask, events_of, gateway, run, simulated
from tests.server.scripted_backend import (
    HEAD,
    PHASES,
    SECRETS,
    TRACEBACK,
    UNFINISHED,
    Connection,
    Play,
    backend,
    chat_stream,
    chunk,
)
from tests.stream.message_player import read_blocks
from tests.waiting import until

QUESTION: dict[str, Any] = {
    "model": "m",
    "max_tokens": 1000,
    "stream": True,
    "thinking": {"type": "adaptive"},
    "tools": [{"name": "get_weather", "input_schema": {"type": "object"}}],
    "messages": [{"role": "user", "content": "scenario: reasoning"}],
}
# The blocks that have begun, by phase.
BLOCKS = {
    "before the first token": [],
    "role": [],
    "reasoning": ["thinking"],
    "text": ["thinking", "text"],
    "arguments": ["thinking", "text", "tool_use"],
}
FAULTS: dict[str, bytes] = {
    "garbage": b"data: {nothing\n\n",
    "error": chunk(None, error={"message": "EngineCore encountered an issue.", "traceback": TRACEBACK}),
    "abort": chunk({}, "abort"),
    "half a chunk": chat_stream()[5][:40],
}


def breaking(phase: str, fault: str) -> Play:
    """Return a backend that streams until a phase; then comes a fault, or the end, or the connection is reset."""

    async def play(connection: Connection) -> None:
        connection.write(HEAD)
        connection.send(*chat_stream()[: PHASES[phase]], FAULTS.get(fault, b": comment\n\n"))
        if fault == "reset":
            await asyncio.sleep(0)
            connection.reset()
        else:
            connection.end()

    return play


@pytest.mark.parametrize("fault", ["end", "reset", *FAULTS])
def test_whatever_breaks_whenever_nothing_half_done_looks_whole(fault: str) -> None:
    async def test() -> None:
        for phase in UNFINISHED:
            async with backend(breaking(phase, fault)) as behind, gateway(behind.url) as served:
                streamed = await ask(served, "POST", "/v1/messages", json=QUESTION)
                whole = await ask(served, "POST", "/v1/messages", json={**QUESTION, "stream": False})
                assert whole.status >= 500, (phase, whole.body)
                assert whole.json["type"] == "error"
                for answer in (streamed, whole):
                    assert [secret for secret in SECRETS if secret in answer.body] == []
                if streamed.status != 200:  # nothing had come
                    assert (streamed.status, PHASES[phase]) == (whole.status, 0)
                    continue
                assert judge_message(streamed.body) == []
                events = events_of(streamed.body)
                assert events[-1]["type"] == "error"
                kinds = [block["type"] for block in read_blocks(events)]
                assert kinds in (BLOCKS[phase], BLOCKS[phase][: len(kinds)]) if fault == "reset" else kinds == BLOCKS[phase]
                stopped = sum(event["type"] == "content_block_stop" for event in events)
                assert stopped == max(0, len(kinds) - 1)

    run(test())


@pytest.mark.parametrize("phase", [phase for phase in PHASES if phase not in UNFINISHED])
def test_what_breaks_behind_the_end_of_the_answer_is_not_seen(phase: str) -> None:
    async def test() -> None:
        async with backend(breaking(phase, "garbage")) as behind, gateway(behind.url) as served:
            answer = await ask(served, "POST", "/v1/messages", json=QUESTION)
            assert judge_message(answer.body) == []
            events = events_of(answer.body)
            assert (events[-1]["type"], events[-2]["delta"]["stop_reason"]) == ("message_stop", "tool_use")

    run(test())


@pytest.mark.parametrize("dialect", list(READINGS))
@pytest.mark.parametrize(
    ("scenario", "kinds"), [("demo", ["thinking", "text", "tool_use"]), ("parallel", ["thinking", "tool_use", "tool_use"])]
)
def test_cut_anywhere_another_backend_goes_on_and_each_block_is_opened_once(
    scenario: str, kinds: list[str], dialect: str
) -> None:
    """Cut at many places, others for each dialect: the message is the same.

    All questions begin alike, so the same backend answers them first, and the other one, which goes on, has not failed just
    before. If chance chose the backends, the budget of continuations could be used up."""
    weather = {"name": WEATHER["name"], "input_schema": WEATHER["parameters"]}

    async def test() -> None:
        async with fleet(dialect) as served:

            async def answer(fault: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
                said = (
                    ("user", "How is the weather?"),
                    ("assistant", "Where?"),
                    ("user", f"scenario: {scenario} fault: {fault}"),
                )
                messages = [{"role": role, "content": text} for role, text in said]
                body = {**QUESTION, "model": "simulator", "tools": [weather], "messages": messages}
                streamed = await ask(served, "POST", "/v1/messages", json=body)
                assert judge_message(streamed.body) == []
                events = events_of(streamed.body)
                assert [event["type"] for event in events[-2:]] == ["message_delta", "message_stop"]
                blocks = [{name: value for name, value in block.items() if name != "id"} for block in read_blocks(events)]
                return blocks, {"delta": events[-2]["delta"], "tokens": events[-2]["usage"]["output_tokens"]}

            whole = await answer("drop=5,times=0")
            assert [block["type"] for block in whole[0]] == kinds
            step = 2 if dialect == "vllm-interval" else 7
            for position in range(len(dialect) % step, 14 * step, step):
                assert await answer(f"drop={position},times=1") == whole, position
            assert served.metric("continuations_total", outcome="continued", reason="broke") >= 5

    run(test())


def test_an_error_in_the_middle_names_the_fields_of_this_protocol() -> None:
    async def play(connection: Connection) -> None:
        refused = {"message": "max_completion_tokens is too large: 5", "type": "BadRequestError", "code": 400}
        connection.write(HEAD)
        connection.send(*chat_stream()[: PHASES["text"]], chunk(None, error=refused))
        connection.end()

    async def test() -> None:
        async with backend(play) as behind, gateway(behind.url) as served:
            answer = await ask(served, "POST", "/v1/messages", json=QUESTION)
            assert events_of(answer.body)[-1]["error"]["message"] == "max_tokens is too large: 5"

    run(test())


def test_a_sample_of_the_streams_is_checked_against_the_rules_of_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with simulated(invariant_sampling=1.0) as served:
            await ask(served, "POST", "/v1/messages", json=QUESTION)
            await until(lambda: served.metric("sampled_streams_total") == 1)

    run(test())
    monkeypatch.setattr(messages, "SIGNATURE", "")
    with pytest.raises(AssertionError, match=r"invariant violated.*signature"):  # the gateway reports its own mistakes
        run(test())


def test_a_client_that_waits_gets_pings() -> None:
    async def test() -> None:
        go_on = asyncio.Event()

        async def play(connection: Connection) -> None:
            connection.write(HEAD)
            await go_on.wait()
            connection.send(*chat_stream())
            connection.end()

        def pings(served: Served) -> float:
            return served.metric("keep_alives_total", kind="event")

        async with backend(play) as behind, gateway(behind.url, keepalive_event=0.01) as served:
            asking = asyncio.create_task(ask(served, "POST", "/v1/messages", json=QUESTION))
            await until(lambda: pings(served) >= 2)
            go_on.set()
            answer = await asking
            assert judge_message(answer.body) == []
            assert answer.body.count(b"event: ping\n") == 1 + pings(served)

    run(test())
