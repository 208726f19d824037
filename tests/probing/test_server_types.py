"""The table of server types, and how a type is recognised."""

from __future__ import annotations

import pytest

from responses_gateway.backend.server_types import SERVER_TYPES, Server, server_of
from responses_gateway.probing.profile import Profile
from responses_gateway.probing.recommend import recommended_settings
from responses_gateway.settings import Settings
from tests.probing.simulated_backend import SimulatedBackend, adapted, settings_of
from tests.server.running_gateway import post, run


@pytest.mark.parametrize(
    ("owner", "server"),
    [
        ("vllm", "vllm"),
        ("llamacpp", "llamacpp"),
        ("library", "ollama"),
        ("organization_owner", "lmstudio"),
        ("tensorrt_llm", "tensorrt_llm"),
        ("openai", "unknown"),
        (None, "unknown"),
        (7, "unknown"),
    ],
)
def test_a_server_is_recognised_by_what_it_says(owner: object, server: Server) -> None:
    assert server_of(owner) == server


def test_what_a_server_type_wants_is_recommended_though_no_probe_showed_it() -> None:
    for server, server_type in SERVER_TYPES.items():
        wanted = recommended_settings(Profile("http://x/v1", model="m", server=server))
        assert wanted.get("reasoning_field", "reasoning") == (server_type.reasoning_field or "reasoning"), server
        assert wanted.get("named_tool_choice", "object") == server_type.named_tool_choice, server
        assert wanted.keys() <= Settings.model_fields.keys()
    seen = Profile("http://x/v1", model="m", server="llamacpp", reasoning_field="reasoning", named_tool_choice="object")
    assert recommended_settings(seen) == {"backend": "http://x/v1"}  # what was seen comes first


def test_llamacpp_needs_no_setting(lines: list[str]) -> None:
    # The model thinks of nothing in the probe, and the server says nothing of what it ignores.
    tools = [{"type": "function", "name": name, "parameters": {"type": "object"}} for name in ("get_weather", "get_time")]
    thought = {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "They greet."}]}
    history = [{"role": "user", "content": "hi"}, thought, {"role": "assistant", "content": "Hello."}]

    async def test() -> None:
        backend = SimulatedBackend("llamacpp", models=("sim-plain",))
        async with adapted(backend) as served:
            assert settings_of(lines) == {"reasoning_field": "reasoning_content", "named_tool_choice": "required"}
            choice = {"type": "function", "name": "get_time"}
            question = {"input": [*history, {"role": "user", "content": "scenario: tool"}], "tools": tools}
            answer = await post(served, question, tool_choice=choice)
            assert [item["name"] for item in answer.final["output"] if item["type"] == "function_call"] == ["get_time"]
            assert backend.chats[-1]["messages"][1]["reasoning_content"] == "They greet."

    run(test())
