"""A backend process is killed in each phase of an answer: the stream ends truthfully, or another backend takes over."""

from __future__ import annotations

from functools import partial

import pytest

from tests.chaos.faults import IMPATIENT, ask, behind, ended, key_for, shows, simulators
from tests.server.gateway_process import program
from tests.server.running_gateway import RawClient, assert_error, run, until

WEATHER = {"type": "function", "name": "get_weather", "parameters": {"type": "object"}}
SLOW_DEMO = "scenario: demo tps: 60"
# Phase -> what is asked, and what the client has seen when the backend dies.
PHASES = {
    "after the headers": ("scenario: demo fault: delay=30", b"response.in_progress"),
    "in the reasoning": (SLOW_DEMO, b"response.reasoning_text.delta"),
    "in the text": (SLOW_DEMO, b"response.output_text.delta"),
    # Its arguments are `{}`, which may stand for what has not come yet: they are given out when the answer has ended.
    "in a call": (SLOW_DEMO, b'"type":"function_call"'),
}


def test_a_single_backend_dies_in_each_phase_and_comes_back() -> None:
    async def test() -> None:
        async with simulators() as (backend,), program(*behind(backend)) as running:
            for phase, (question, seen) in PHASES.items():
                client = await RawClient.connect(running)
                await client.post(input=question, tools=[WEATHER])
                await client.read_until(seen)
                await backend.kill()
                final = await ended(client)
                assert (final["status"], final["error"]["code"]) == ("failed", "server_error"), phase
                assert [item["status"] for item in final["output"][-1:]] in ([], ["incomplete"]), phase
                assert_error(await ask(running), 502, "server_error")
                await backend.start()
                assert (await ask(running)).final["status"] == "completed", phase
            await running.says("broke in the middle of the answer", times=len(PHASES))
            await running.says("cannot be reached", times=len(PHASES))
            assert "Traceback" not in running.said
            for kind in ("server_error", "connect"):
                counted = f'responses_gateway_backend_errors_total{{kind="{kind}"}} {len(PHASES)}.0'
                await shows(running, partial(str.__eq__, counted))

    run(test())


def test_before_the_headers_it_is_an_http_error() -> None:
    async def test() -> None:
        async with simulators() as (backend,), program(*behind(backend)) as running:
            backend.halt()
            client = await RawClient.connect(running)
            await client.post()
            await until(lambda: backend.connections, "the request is there")
            await backend.kill()
            await client.read_until(b"}}")
            assert client.received.startswith(b"HTTP/1.1 502 ")
            client.close()

    run(test())


@pytest.mark.parametrize("phase", ["before the headers", "before the first token"])
def test_what_has_shown_nothing_is_answered_by_another(phase: str) -> None:
    """However many there are at once: what a dead backend leaves behind needs no budget."""
    crowd = 40

    async def test() -> None:
        thinking = ("--first-token-seconds", "1.5")
        async with simulators(2, *thinking) as (dying, other), program(*behind(dying, other), *IMPATIENT) as running:
            if phase == "before the headers":
                dying.halt()
            clients = [await RawClient.connect(running) for _ in range(crowd)]
            for client in clients:
                await client.post(input="tokens: 5", prompt_cache_key=key_for(dying, other))
            await until(lambda: dying.connections > crowd // 2, "many are there")
            await dying.kill()
            assert [(await ended(client))["status"] for client in clients] == ["completed"] * crowd
            await shows(running, lambda line: f'retries_total{{backend="{dying.place}"' in line)
            await shows(running, lambda line: line == f'responses_gateway_backend_up{{backend="{dying.place}"}} 0.0')
            await dying.start()
            await running.says(f"backend healthy backend={dying.place}")
            assert (await ask(running, prompt_cache_key=key_for(dying, other))).final["status"] == "completed"

    run(test())
