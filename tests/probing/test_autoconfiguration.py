"""The gateway finds out while it serves which settings its backend needs."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from aiohttp import web

from responses_gateway.backend.transport.client import Backend
from responses_gateway.probing.autoconfiguration import Autoconfiguration
from responses_gateway.probing.prober import probe, probe_briefly
from responses_gateway.probing.profile import Profile
from responses_gateway.probing.recommend import recommended_settings, settings_to_apply
from responses_gateway.settings import Settings
from responses_gateway.simulator import DIALECTS, serving
from tests.probing.simulated_backend import SimulatedBackend, adapted, settings_of
from tests.server.running_gateway import gateway, post, run, until

WEATHER: Any = {
    "type": "function",
    "name": "get_weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
HISTORY: Any = [
    {"role": "user", "content": "hi"},
    {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "They greet."}]},
    {"role": "assistant", "content": "Hello."},
    {"role": "user", "content": "scenario: plain"},
]

# ---- what fits ----------------------------------------------------------------------------------------------------------


def test_a_vllm_that_parses_is_asked_little_and_changes_nothing(lines: list[str]) -> None:
    async def test() -> None:
        backend = SimulatedBackend()
        async with adapted(backend):
            assert lines == ["examined the backend server=vllm model=simulator"]
            assert [chat.get("max_completion_tokens") for chat in backend.chats] == [8, 512, 1, 1]

    run(test())


RAW = {
    "vllm-raw": {"reasoning_parser": "qwen3", "tool_call_parser": "hermes"},
    "vllm-raw-xml": {"reasoning_parser": "qwen3", "tool_call_parser": "qwen3_coder"},
    "sglang-raw": {
        "reasoning_parser": "qwen3",
        "tool_call_parser": "hermes",
        "reasoning_field": "reasoning_content",  # what this type takes, though no reasoning came in it
    },
}
# What adapting to a server of this type changes.
ADAPTED = {
    "sglang": {"reasoning_field": "reasoning_content"},
    "llamacpp": {"reasoning_field": "reasoning_content", "named_tool_choice": "required"},
    "deepseek": {"reasoning_field": "reasoning_content"},
}


@pytest.mark.parametrize("dialect", RAW)
def test_raw_markup_is_parsed_from_then_on(dialect: str, lines: list[str]) -> None:
    async def test() -> None:
        backend = SimulatedBackend(dialect)
        async with adapted(backend) as served:
            assert settings_of(lines) == RAW[dialect]
            await until(
                lambda: (
                    served.parts.responses.preparation.translator.asks_for_token_ids("simulator", served.parts.live.current)
                    or "vllm" not in dialect
                )
            )
            answer = await post(served, input="scenario: demo", tools=[WEATHER])
            assert [item["type"] for item in answer.final["output"]] == ["reasoning", "message", "function_call"]
            assert ("return_token_ids" in backend.chats[-1]) is ("vllm" in dialect)

    run(test())


def test_a_server_that_fails_at_tools_is_parsed(lines: list[str]) -> None:
    def change(body: dict[str, Any]) -> web.Response | None:
        if body.get("tool_choice") in (None, "none"):
            return None
        return web.json_response({"error": {"message": "tool parsing is disabled by frontend configuration"}}, status=500)

    async def test() -> None:
        async with adapted(SimulatedBackend("vllm-raw", change)) as served:
            assert settings_of(lines) == RAW["vllm-raw"]
            answer = await post(served, input="scenario: tool", tools=[WEATHER])
            assert [item["type"] for item in answer.final["output"]] == ["reasoning", "function_call"]

    run(test())


@pytest.mark.parametrize("dialect", ADAPTED)
def test_reasoning_goes_back_in_the_field_it_came_in(dialect: str, lines: list[str]) -> None:
    async def test() -> None:
        backend = SimulatedBackend(dialect)
        async with adapted(backend) as served:
            assert settings_of(lines) == ADAPTED[dialect]
            await post(served, input=HISTORY)
            assert backend.chats[-1]["messages"][1]["reasoning_content"] == "They greet."
            assert all("return_token_ids" not in chat for chat in backend.chats)  # a strict server would refuse the name

    run(test())


def test_reasoning_goes_back_in_the_field_that_gets_to_the_model(lines: list[str]) -> None:
    """Find it out behind a bridge, which sends reasoning in a field in which it does not pass it on."""

    async def test() -> None:
        backend = SimulatedBackend("litellm")
        async with adapted(backend) as served:
            assert settings_of(lines) == {}
            answer = await post(served, input="scenario: reasoning")
            assert answer.final["output"][0]["type"] == "reasoning"
            await post(served, input=HISTORY)
            assert backend.chats[-1]["messages"][1]["reasoning"] == "They greet."

    run(test())


def test_ollama_is_not_made_to_load_a_model(lines: list[str]) -> None:
    async def test() -> None:
        backend = SimulatedBackend("ollama", models=("a", "b", "c"))
        async with adapted(backend) as served:
            assert backend.chats == []
            assert settings_of(lines) == {"max_tokens_field": "max_tokens"}
            await post(served, max_output_tokens=20)
            assert backend.chats[-1]["max_tokens"] == 20

    run(test())


def test_a_limit_of_the_older_name(lines: list[str]) -> None:
    def change(body: dict[str, Any]) -> web.Response | None:
        if "max_completion_tokens" in body:
            return web.json_response(
                {"error": {"message": "unknown field", "type": "x", "param": None, "code": None}}, status=400
            )
        return None

    async def test() -> None:
        backend = SimulatedBackend("deepseek", change)
        async with adapted(backend) as served:
            assert settings_of(lines)["max_tokens_field"] == "max_tokens"
            await post(served, max_output_tokens=20)
            assert backend.chats[-1]["max_tokens"] == 20

    run(test())


def test_a_template_that_requires_alternating_turns(lines: list[str]) -> None:
    def change(body: dict[str, Any]) -> web.Response | None:
        roles = [message["role"] for message in body["messages"]]
        if any(first == second for first, second in pairwise(roles)):
            return web.json_response({"error": {"message": "roles must alternate", "type": "x", "code": 400}}, status=400)
        return None

    async def test() -> None:
        backend = SimulatedBackend(change=change)
        async with adapted(backend) as served:
            assert settings_of(lines) == {"user_messages": "merge"}
            answer = await post(
                served, input=[{"role": "user", "content": "scenario: plain"}, {"role": "user", "content": "x"}]
            )
            assert answer.final["status"] == "completed"

    run(test())


def test_a_template_that_has_the_assistant_answer_results(lines: list[str]) -> None:
    def change(body: dict[str, Any]) -> web.Response | None:
        roles = [message["role"] for message in body["messages"]]
        if ("tool", "user") in pairwise(roles) or roles[0] == "assistant":
            return web.json_response({"error": {"message": "Unexpected role 'user' after role 'tool'"}}, status=400)
        return None

    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    result = {"type": "function_call_output", "call_id": "c", "output": "sunny"}

    async def test() -> None:
        backend = SimulatedBackend(change=change)
        async with adapted(backend) as served:
            assert settings_of(lines) == {"user_messages": "alternate"}
            probed = len(backend.refused)
            user = {"role": "user", "content": "scenario: plain"}
            answer = await post(served, input=[user, call, result, user])
            assert answer.final["status"] == "completed"
            assert len(backend.refused) == probed

    run(test())


@pytest.mark.parametrize("dialect", sorted(DIALECTS.keys() - {"ollama"}))
def test_the_brief_probe_leads_to_the_settings_of_the_full_one(dialect: str) -> None:
    async def test() -> None:
        backend = SimulatedBackend(dialect, max_model_len=8192)
        async with serving(backend.app) as url:
            full = await probe(f"{url}/v1")
            client = Backend(f"{url}/v1", api_key=None, connect_timeout=5)
            brief = await probe_briefly(client)
            await client.close()
        assert recommended_settings(brief) == recommended_settings(full)

    run(test())


# ---- given settings come first --------------------------------------------------------------------------------------------


def test_given_settings_stay(lines: list[str]) -> None:
    async def test() -> None:
        async with adapted(SimulatedBackend("llamacpp"), reasoning_field="none", named_tool_choice="object"):
            assert settings_of(lines) == {}
        async with adapted(SimulatedBackend("vllm-raw"), tool_call_parser="none"):
            assert settings_of(lines) == {}  # the parsers go together
        models: Any = {"sim*": {"reasoning_parser": "none"}}
        async with adapted(SimulatedBackend("vllm-raw"), models=models):
            assert settings_of(lines) == {}

    run(test())


def test_it_can_be_switched_off() -> None:
    async def test() -> None:
        backend = SimulatedBackend("llamacpp")
        async with serving(backend.app) as url, gateway(url, adapt=False) as served:
            served.parts.autoconfiguration.begin()
            assert served.parts.autoconfiguration.task is None
            await post(served)
            assert len(backend.chats) == 1

    run(test())


def test_it_is_on_by_default() -> None:
    assert Settings().adapt is True


def test_several_settings_may_change_at_once() -> None:
    profile = Profile("http://x/v1", model="m", max_tokens_field="max_tokens", reasoning_field="reasoning_content")
    assert settings_to_apply(Settings(), profile) == {
        "max_tokens_field": "max_tokens",
        "reasoning_field": "reasoning_content",
    }
    assert settings_to_apply(Settings(reasoning_field="both"), profile) == {"max_tokens_field": "max_tokens"}
    assert settings_to_apply(Settings(), replace(profile, max_tokens_field="none", reasoning_field=None)) == {}


def test_several_backends_have_to_agree(lines: list[str]) -> None:
    async def test() -> None:
        used: list[Settings] = []
        async with (
            serving(SimulatedBackend("deepseek").app) as one,
            serving(SimulatedBackend("sglang").app) as two,
            serving(SimulatedBackend("vllm").app) as other,
        ):
            clients = [Backend(f"{url}/v1", api_key=None, connect_timeout=5) for url in (one, two, other)]
            pool: Any = None  # `run` is given the backends
            autoconfiguration = Autoconfiguration(Settings(), pool, used.append)
            await autoconfiguration.run(clients[:2])
            assert [settings.reasoning_field for settings in used] == ["reasoning_content"]
            assert len([line for line in lines if line.startswith("adapted")]) == 1
            await autoconfiguration.run(clients[2:])
            assert used[-1].reasoning_field == "reasoning"
            assert "the backends differ: not adapted setting=reasoning_field model=simulator" in lines
            for client in clients:
                await client.close()

    run(test())
