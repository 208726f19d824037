"""Backends are killed, or told to stop, in the middle of answers: with `continue_answers` no client notices it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.chaos.faults import IMPATIENT, ask, behind, busy, ended, key_for, shows, simulators
from tests.hosted.websites import SearchEngine, Website, open_site
from tests.server.gateway_process import program
from tests.server.running_gateway import RawClient, run

WEATHER = {"type": "function", "name": "get_weather", "parameters": {"type": "object"}}
DEMO = "scenario: demo tps: 60"
CONTINUED = (*IMPATIENT, "--continue-answers", "2")
RAW = ("--reasoning-parser", "qwen3", "--tool-call-parser", "hermes")
SETTINGS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "parsed": ((), ()),
    "raw": (("--dialect", "vllm-raw"), RAW),
}


def spoken(final: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the items of a response without their ids."""
    return [{name: value for name, value in item.items() if name not in ("id", "call_id")} for item in final["output"]]


@pytest.mark.parametrize("setting", list(SETTINGS))
def test_two_of_three_are_killed_during_one_answer(setting: str) -> None:
    simulator, gateway = SETTINGS[setting]

    async def test() -> None:
        async with simulators(3, "--tokens-per-second", "60", *simulator) as several:
            first, *others = several
            async with program(*behind(*several), *CONTINUED, *gateway) as running:
                fields = {"input": DEMO, "tools": [WEATHER], "prompt_cache_key": key_for(first, *others)}
                whole = (await ask(running, **fields)).final
                client = await RawClient.connect(running)
                await client.post(**fields)
                await client.read_until(b"response.reasoning_text.delta")
                await first.kill()
                second = await busy(others)
                await client.read_until(b"response.output_text.delta")
                await second.kill()
                final = await ended(client)
                assert spoken(final) == spoken(whole)
                assert final["usage"]["input_tokens"] == whole["usage"]["input_tokens"]
                assert final["usage"]["output_tokens"] == whole["usage"]["output_tokens"]
                await running.says("answer continued at another backend", times=2)
                await shows(running, lambda line: 'continuations_total{outcome="continued",reason="broke"} 2.0' in line)

    run(test())


def test_one_is_killed_while_the_model_answers_with_what_it_has_read() -> None:
    site = Website()
    engine = SearchEngine()
    long = "The tower of Example is high" + ", and higher than other towers" * 60
    page = f"<html><head><title>The tower</title></head><body><article><p>{long}.</p></article></body></html>"

    async def test() -> None:
        async with open_site(site), open_site(engine), simulators(2, "--tokens-per-second", "80") as (dying, other):
            site.page("/tower", page)
            engine.results = [{"url": f"{site.url}/tower", "title": "The tower", "content": "All about it."}]
            search = ("--web-search-url", engine.url, "--web-fetch-private-hosts", site.host)
            async with program(*behind(dying, other), *CONTINUED, *search) as running:
                fields = {
                    "input": "scenario: research How high is it?",
                    "tools": [{"type": "web_search"}],
                    "prompt_cache_key": key_for(dying, other),
                }
                whole = (await ask(running, **fields)).final
                assert whole["output"][-1]["content"][0]["annotations"]
                client = await RawClient.connect(running)
                await client.post(**fields)
                await client.read_until(b"output_text.delta")
                await dying.kill()
                assert spoken(await ended(client)) == spoken(whole)
                await running.says("answer continued at another backend")
                assert len(engine.queries) == 2  # and none once more

    run(test())


@pytest.mark.parametrize("setting", list(SETTINGS))
def test_a_rolling_restart_of_the_backends_is_not_noticed(setting: str) -> None:
    simulator, gateway = SETTINGS[setting]

    async def test() -> None:
        pace = ("--tokens-per-second", "60")
        async with (
            simulators(2, *pace, *simulator) as (stopping, other),
            program(*behind(stopping, other), *CONTINUED, *gateway) as running,
        ):
            fields = {"input": DEMO, "tools": [WEATHER], "prompt_cache_key": key_for(stopping, other)}
            whole = (await ask(running, **fields)).final
            client = await RawClient.connect(running)
            await client.post(**fields)
            await client.read_until(b"response.function_call_arguments.delta")
            stopping.stop()
            assert spoken(await ended(client)) == spoken(whole)
            await shows(running, lambda line: 'continuations_total{outcome="continued",reason="abort"} 1.0' in line)

    run(test())


def test_a_crowd_moves_and_the_last_backend_leaves_the_truth() -> None:
    crowd = 30

    async def test() -> None:
        pace = ("--tokens-per-second", "30")
        async with simulators(2, *pace) as (dying, other), program(*behind(dying, other), *CONTINUED) as running:

            async def asking() -> list[RawClient]:
                """Return clients whose answers have begun."""
                clients = [await RawClient.connect(running) for _ in range(crowd)]
                for client in clients:
                    await client.post(input="tokens: 100", prompt_cache_key=key_for(dying, other))
                await asyncio.gather(*(client.read_until(b"output_text.delta") for client in clients))
                return clients

            clients = await asking()
            await dying.kill()
            finals = await asyncio.gather(*(ended(client) for client in clients))
            assert [final["status"] for final in finals] == ["completed"] * crowd
            assert len({str(spoken(final)) for final in finals}) == 1
            clients = await asking()
            await other.kill()
            finals = await asyncio.gather(*(ended(client) for client in clients))
            assert [final["status"] for final in finals] == ["failed"] * crowd

    run(test())
