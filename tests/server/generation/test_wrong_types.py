"""Every field of a request, one after another, with a value of a wrong type: an error 400, never a defect."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import aiohttp
import pytest

from tests.server.running_gateway import gateway, post, run
from tests.server.scripted_backend import backend, refusing, streaming, text_stream
from tests.thoroughness import one_in

Path = tuple[str | int, ...]

INPUT: list[dict[str, Any]] = [
    {"type": "message", "role": "user", "id": "msg_1", "status": "completed", "content": [
        {"type": "input_text", "text": "Hi."},
        {"type": "input_image", "image_url": "data:image/png;base64,AAAA", "detail": "auto"},
        {"type": "input_file", "filename": "a.txt", "file_data": "data:text/plain;base64,aGk="},
    ]},
    {"role": "developer", "content": "Be brief."},
    {"type": "message", "role": "assistant", "phase": "commentary", "content": [
        {"type": "output_text", "text": "Hello.", "annotations": [], "logprobs": []},
        {"type": "refusal", "refusal": "No."},
    ]},
    {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "s"}],
     "content": [{"type": "reasoning_text", "text": "r"}], "encrypted_content": "sealed elsewhere"},
    {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "f", "namespace": "ns", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "o"}]},
    {"type": "custom_tool_call", "call_id": "c2", "name": "custom", "input": "a"},
    {"type": "custom_tool_call_output", "call_id": "c2", "output": "o"},
    {"type": "local_shell_call", "call_id": "c3", "id": "ls_1", "status": "completed",
     "action": {"type": "exec", "command": ["ls"], "env": {"A": "b"}, "timeout_ms": 1, "working_directory": "/"}},
    {"type": "local_shell_call_output", "id": "c3", "call_id": "c3", "output": "o"},
    {"type": "shell_call", "call_id": "c4", "action": {"commands": ["ls"], "timeout_ms": 1}, "status": "completed"},
    {"type": "shell_call_output", "call_id": "c4",
     "output": [{"stdout": "a", "stderr": "b", "outcome": {"type": "exit", "exit_code": 0}}]},
    {"type": "apply_patch_call", "call_id": "c5", "operation": {"type": "update_file", "path": "a", "diff": "d"}},
    {"type": "apply_patch_call_output", "call_id": "c5", "status": "completed", "output": "o"},
    {"type": "tool_search_call", "call_id": "c6", "arguments": {"query": "q"}, "execution": "client"},
    {"type": "tool_search_output", "call_id": "c6", "execution": "client", "tools": [{"type": "function", "name": "g"}]},
    {"type": "computer_call", "call_id": "c7", "action": {"type": "click", "x": 1, "y": 2}},
    {"type": "computer_call_output", "call_id": "c7",
     "output": {"type": "computer_screenshot", "image_url": "data:image/png;base64,AA"}},
    {"type": "additional_tools", "role": "developer", "tools": [{"type": "function", "name": "h", "parameters": {}}]},
    {"type": "agent_message", "author": "a", "recipient": "b", "content": [{"type": "input_text", "text": "t"}]},
    {"type": "web_search_call", "id": "ws_1", "action": {"type": "search", "query": "q"}},
    {"type": "compaction", "id": "cmp_1", "encrypted_content": "sealed elsewhere"},
    {"type": "message", "role": "user", "content": "Say hello."},
]  # fmt: skip

REQUEST: dict[str, Any] = {
    "model": "m",
    "input": INPUT,
    "instructions": "i",
    "tools": [
        {"type": "function", "name": "f", "description": "d", "strict": True, "defer_loading": False,
         "parameters": {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}},
        {"type": "custom", "name": "custom", "description": "d",
         "format": {"type": "grammar", "syntax": "lark", "definition": 'start: "a"+'}},
        {"type": "namespace", "name": "ns", "description": "d", "tools": [{"type": "function", "name": "f"}]},
        {"type": "local_shell"},
        {"type": "tool_search", "execution": "client", "description": "d", "parameters": {"type": "object"}},
        {"type": "web_search", "filters": {"allowed_domains": ["a"]}, "search_context_size": "low"},
        {"type": "mcp", "server_label": "l", "server_url": "http://x", "allowed_tools": ["a"]},
    ],
    "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "custom", "name": "custom"}]},
    "text": {"format": {"type": "json_schema", "name": "n", "strict": True, "schema": {"type": "object"}}, "verbosity": "low"},
    "reasoning": {"effort": "low", "summary": "auto", "generate_summary": "auto"},
    "context_management": [{"type": "compaction", "compact_threshold": 1_000_000}],
    "include": ["reasoning.encrypted_content"],
    "stream_options": {"include_obfuscation": False},
    "metadata": {"k": "v"},
    "client_metadata": {"k": "v"},
    "stop": ["x"],
    "logit_bias": {"1": 1},
    "chat_template_kwargs": {"a": 1},
    **dict.fromkeys(("max_output_tokens", "max_tool_calls", "temperature", "top_p", "top_logprobs", "seed", "top_k"), 1),
    **dict.fromkeys(("parallel_tool_calls", "background", "store", "stream"), False),
    **dict.fromkeys(("service_tier", "prompt_cache_key", "safety_identifier", "user"), "a"),
    "truncation": "auto",
}  # fmt: skip

WRONG: dict[str, Any] = {"null": None, "a number": -1, "text": "\x00", "a list": [[]], "an object": {"a": [1]}}


def paths(value: Any, path: Path = ()) -> Iterator[Path]:
    """Yield the paths of all values inside this one."""
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in children:
        yield (*path, key)
        yield from paths(child, (*path, key))


def replaced(value: Any, path: Path, by: Any) -> Any:
    """Return a copy with another value at that path."""
    if not path:
        return by
    copy = value.copy()
    copy[path[0]] = replaced(value[path[0]], path[1:], by)
    return copy


@pytest.mark.slow
@pytest.mark.parametrize("wrong", WRONG)
def test_a_value_of_a_wrong_type_is_no_defect(wrong: str) -> None:
    """Whatever is let through is refused by this backend, so that every answer is an error 400."""

    async def test() -> None:
        refusal = b'{"error": {"message": "refused by the backend", "type": "BadRequestError", "code": 400}}'
        async with (
            backend(refusing(400, refusal)) as server,
            gateway(server.url, store="memory", adapt=False) as served,
            aiohttp.ClientSession() as session,
        ):

            async def post(path: Path) -> str | None:
                """Return what is wrong with the answer, if anything."""
                body = replaced(REQUEST, path, WRONG[wrong])
                async with session.post(served.url + "/v1/responses", data=json.dumps(body)) as answer:
                    text = await answer.text()
                error = json.loads(text).get("error", {})
                named = error.get("param") or "refused by the backend" in error.get("message", "")
                return None if answer.status == 400 and named else f"{path}: {answer.status} {text[:200]}"

            async def several(places: list[Path]) -> list[str | None]:
                return [await post(place) for place in places]

            places = one_in(3, list(paths(REQUEST)))
            answers = await asyncio.gather(*(several(places[first::8]) for first in range(8)))
            assert [complaint for some in answers for complaint in some if complaint] == []

    run(test())


# A model that writes its call as text has the gateway look at what the tool takes.
@pytest.mark.parametrize(
    "schema",
    [{"required": True}, {"required": [["city"]]}, {"properties": ["city"]}, {"required": {"a": 1}}, {"properties": 5}],
)
@pytest.mark.parametrize("arguments", ['{"city": "Paris"}', '{"city": ' + "[" * 9_000 + "]" * 9_000 + "}", '{}, "city": 1'])
@pytest.mark.parametrize("settings", [{}, {"tool_call_parser": "hermes"}], ids=["unknown", "known"])
def test_a_schema_of_a_wrong_type_leaves_no_request_behind_where_a_call_is_written_as_text(
    schema: Any, arguments: str, settings: dict[str, str]
) -> None:
    call = f'<tool_call>\n{{"name": "f", "arguments": {arguments}}}\n</tool_call>'

    async def test() -> None:
        async with (
            backend(streaming(*text_stream("Sure.\n", call))) as server,
            gateway(server.url, concurrent_requests=1, **settings) as served,
        ):
            parameters = {"type": "object", "properties": {"city": {}}, **schema}
            tool = {"type": "function", "name": "f", "parameters": parameters, "strict": False}
            for stream in (False, True, False):
                answer = await post(served, tools=[tool], stream=stream)
                assert answer.status == 200, answer.body
            assert served.parts.in_flight.activities == set()

    run(test())
