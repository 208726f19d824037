"""`prompt_cache_diagnostics`: why a backend could not use its cache, judged by the prompts that it got."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from openai.types.responses import Response

from responses_gateway.simulator import create_app, serving
from responses_gateway.state.prompt_hashes import LIFETIME, PromptHashMemory
from tests.request.builders import function, user
from tests.server.running_gateway import Served, gateway, post, run, simulated

SCHEMA = {"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}}}
BASE: dict[str, Any] = {
    "input": [user("scenario: plain"), user("Again.")],
    "tools": [function("f")],
    "instructions": "Be brief.",
}


async def compared(served: Served, response_id: str, **fields: Any) -> Any:
    """Return the diagnostics of a request that names another response, as the SDK reads them."""
    options = {"prompt_cache_options": {"comparison_response_id": response_id}}
    answer = await post(served, **{**BASE, **fields, **options})
    assert "prompt_cache_options" not in answer.headers.get("x-responses-gateway-losses", "")
    begun = [event["response"] for event in answer.events if event["type"] in ("response.created", "response.in_progress")]
    assert not any("prompt_cache_diagnostics" in response for response in begun)
    return Response.model_validate(answer.final).prompt_cache_diagnostics


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, None),
        ({"text": SCHEMA, "temperature": 0.5, "max_output_tokens": 50, "service_tier": "flex"}, None),
        ({"input": [*BASE["input"], user("More.")]}, None),
        ({"input": BASE["input"][:1]}, None),
        ({"model": "sim-plain"}, "model_changed"),
        ({"tools": [function("g")]}, "tools_changed"),
        ({"tools": [function("g")], "reasoning": {"effort": "low"}}, "tools_changed"),
        ({"reasoning": {"effort": "low"}}, "reasoning_effort_changed"),
        ({"instructions": "Be long."}, "input_changed"),
        ({"input": [BASE["input"][0], user("Other.")]}, "input_changed"),
        ({"prompt_cache_key": "mine"}, None),
    ],
    ids=str,
)
def test_the_first_reason_that_changed_the_prompt_is_told(changes: dict[str, Any], reason: str | None) -> None:
    async def test() -> None:
        async with simulated() as served:
            first = (await post(served, **BASE, prompt_cache_options={})).final
            assert "prompt_cache_diagnostics" not in first
            assert "prompt_cache_options" not in first
            found = await compared(served, first["id"], **changes)
            if reason is None:
                assert found.type in ("cache_hit", "unavailable")
            else:
                assert (found.type, found.reason) == ("cache_miss", reason)
                assert found.cache_missed_tokens > 0

    run(test())


def test_with_several_backends_the_key_counts() -> None:
    async def test() -> None:
        async with serving(create_app()) as one, serving(create_app()) as other, gateway(one, other) as served:
            first = (await post(served, **BASE, prompt_cache_options={}, prompt_cache_key="a")).final
            assert (await compared(served, first["id"], prompt_cache_key="b")).reason == "prompt_cache_key_changed"

    run(test())


@pytest.mark.parametrize("store", ["none", "file"])
def test_only_ones_own_responses_can_be_compared_with(store: str, tmp_path: Path) -> None:
    """A response that is unknown, of another key, or neither stored nor asked for with these options; with a store, after a
    restart too."""
    path = "none" if store == "none" else str(tmp_path / "store.sqlite3")

    async def test() -> None:
        async with serving(create_app()) as url:
            async with gateway(url, store=path) as served:
                first = (await post(served, **BASE, prompt_cache_options={})).final
                silent = (await post(served, **BASE, store=False)).final
                for response_id in ("resp_unknown", silent["id"], ""):
                    assert (await compared(served, response_id)).type == "comparison_response_not_found"
                stranger = {"Authorization": "Bearer other"}
                answer = await post(
                    served, **BASE, prompt_cache_options={"comparison_response_id": first["id"]}, headers=stranger
                )
                assert answer.final["prompt_cache_diagnostics"] == {"type": "comparison_response_not_found"}
            async with gateway(url, store=path) as served:
                found = await compared(served, first["id"], tools=[])
                expected = "comparison_response_not_found" if store == "none" else "cache_miss"
                assert found.type == expected

    run(test())


def test_a_summary_that_took_the_place_of_the_context_is_told() -> None:
    async def test() -> None:
        async with simulated() as served:
            long = [user("word " * 400), user("scenario: plain")]
            first = (await post(served, input=long, prompt_cache_options={})).final
            limit = [{"type": "compaction", "compact_threshold": 50}]
            found = await compared(served, first["id"], input=long, context_management=limit)
            assert (found.type, found.reason) == ("cache_miss", "context_compacted")

    run(test())


def test_the_hashes_of_one_tenant_push_out_none_of_another() -> None:
    async def test() -> None:
        kept = PromptHashMemory()
        await kept.exchange("quiet", "one", b"1", None)
        for number in range(5000):
            await kept.exchange("busy", str(number), b"x", None)
        assert await kept.exchange("busy", "a", b"", "0") is None
        assert await kept.exchange("quiet", "two", b"", "one") == b"1"

    asyncio.run(test())


def test_hashes_expire() -> None:
    async def test() -> None:
        now = 0.0
        kept = PromptHashMemory(lambda: now)
        assert await kept.exchange("t", "one", b"1", None) is None
        assert await kept.exchange("t", "two", b"2", "one") == b"1"
        assert await kept.exchange("other", "three", b"3", "one") is None
        now = LIFETIME + 1
        assert await kept.exchange("t", "four", b"4", "one") is None

    asyncio.run(test())


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, None),
        ({"input": [*BASE["input"], user("More.")]}, None),
        ({"input": BASE["input"][:1]}, None),
        ({"text": SCHEMA, "temperature": 0.5}, None),
        ({"model": "sim-plain"}, "model_changed"),
        ({"tools": [function("g")]}, "tools_changed"),
        ({"reasoning": {"effort": "low"}}, "reasoning_effort_changed"),
        ({"instructions": "Be long."}, "input_changed"),
        ({"input": [BASE["input"][0], user("Other.")]}, "input_changed"),
    ],
    ids=str,
)
def test_any_stored_response_can_be_compared_with(changes: dict[str, Any], reason: str | None) -> None:
    """Its request had no such options: what is stored of it tells what it was asked."""

    async def test() -> None:
        async with simulated(store="memory") as served:
            first = (await post(served, **BASE)).final
            found = await compared(served, first["id"], **changes)
            assert found.type in ("cache_hit", "unavailable") if reason is None else found.reason == reason
            follow = {"prompt_cache_options": {"comparison_response_id": first["id"]}, "previous_response_id": first["id"]}
            answer = await post(served, **{**BASE, "input": [user("And then?")], **follow})
            assert answer.final["prompt_cache_diagnostics"]["type"] in ("cache_hit", "unavailable")

    run(test())
