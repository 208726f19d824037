"""Validation as in vLLM, the tokenizer, and the endpoints besides chat."""

from __future__ import annotations

import asyncio
import base64
import json
import struct
from typing import Any

import aiohttp
import pytest

from responses_gateway.simulator import DIALECTS, RECEIVED, SimulatorOptions, create_app, serving
from responses_gateway.simulator.tokenizer import count, decode, encode, split
from tests.data_folder import STREAMS
from tests.simulator.chat_client import WEATHER, Ask, Reply, post

MESSAGES = [{"role": "user", "content": "hi"}]


def fetch(method: str, path: str, body: Any = None, options: SimulatorOptions | None = None, **headers: str) -> Reply:
    async def play() -> Reply:
        async with serving(create_app(options)) as url, aiohttp.ClientSession() as session:
            if method == "POST":
                return await post(session, url + path, body, headers)
            async with session.request(method, url + path, headers=headers) as response:
                return Reply(response.status, dict(response.headers), await response.read())

    return asyncio.run(play())


def recorded_errors() -> dict[str, tuple[int, Any]]:
    """Return what vLLM answered to bad requests: name of the case -> status and JSON body."""
    blocks = (STREAMS / "errors.txt").read_text(encoding="utf-8").split("### ")[1:]
    cases = (block.splitlines() for block in blocks)
    return {lines[0]: (int(lines[1].split()[0]), json.loads(lines[2])) for lines in cases if len(lines) > 2 and lines[2]}


@pytest.mark.parametrize(
    ("case", "body"),
    [
        ("bad json", b'{"model":"tiny",x'),
        ("missing messages", {"model": "tiny"}),
        ("bad temperature", {"model": "tiny", "messages": MESSAGES, "temperature": -1}),
        ("max_tokens 0", {"model": "tiny", "messages": MESSAGES, "max_tokens": 0}),
        ("max_tokens too large", {"model": "tiny", "messages": MESSAGES, "max_tokens": 40000}),
        ("tool_choice named missing", {"model": "tiny", "messages": MESSAGES, "tool_choice": {"type": "function"}}),
        ("unknown model", {"model": "nope", "messages": MESSAGES}),
        (
            "context length stream",
            {"model": "tiny", "messages": [{"role": "user", "content": "word " * 33000}], "stream": True},
        ),
        ("bad tool", {"model": "tiny", "messages": MESSAGES, "tools": [{"type": "function"}]}),
    ],
)
def test_bad_requests_get_the_recorded_answer(case: str, body: Any) -> None:
    options = SimulatorOptions(models=("tiny",), strict_models=True, max_model_len=32768)
    reply = fetch("POST", "/v1/chat/completions", body, options)
    status, recorded = recorded_errors()[case]
    answered = reply.json
    if case == "bad json":  # Python's and vLLM's decoders name the place in their own ways
        for error in (recorded["error"], answered["error"]):
            error |= {"message": error["message"].partition("'loc'")[0], "param": None}
    assert (reply.status, answered) == (status, recorded)


def test_a_wrong_content_type_and_broken_history_are_refused(ask: Ask) -> None:
    assert "Unsupported Media Type" in ask(headers={"content-type": "text/plain"}).json["error"]["message"]
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a": '}}
    assert ask([*MESSAGES, {"role": "assistant", "tool_calls": [call]}]).status == 400


def test_a_server_without_parsers_refuses_tools_unless_the_choice_is_none(ask: Ask) -> None:
    options = SimulatorOptions(dialect=DIALECTS["vllm-raw"])
    refused = ask(options=options, tools=[WEATHER])
    assert "--enable-auto-tool-choice" in refused.json["error"]["message"]
    assert ask(options=options, tools=[WEATHER], tool_choice="none").status == 200
    lenient = SimulatorOptions(dialect=DIALECTS["sglang-raw"])
    assert "<tool_call>" in ask("scenario: tool", options=lenient, tools=[WEATHER]).text()


def test_any_model_name_is_accepted_and_echoed(ask: Ask) -> None:
    assert ask(model="org/any-model").chunks[0]["model"] == "org/any-model"


def test_a_configured_key_is_required() -> None:
    options = SimulatorOptions(api_key="secret")
    body = {"model": "m", "messages": MESSAGES}
    assert fetch("POST", "/v1/chat/completions", body, options).status == 401
    assert fetch("POST", "/v1/chat/completions", body, options, authorization="Bearer secret").status == 200
    assert fetch("GET", "/health", options=options).status == 200


def test_models_version_and_unknown_paths() -> None:
    models = fetch("GET", "/v1/models", options=SimulatorOptions(models=("a", "b"), max_model_len=4096)).json
    assert [(model["id"], model["owned_by"], model["max_model_len"]) for model in models["data"]] == [
        ("a", "vllm", 4096),
        ("b", "vllm", 4096),
    ]
    assert fetch("GET", "/version").json == {"version": "0.32.0"}
    assert (fetch("GET", "/nope").status, fetch("GET", "/nope").json) == (404, {"detail": "Not Found"})
    assert fetch("GET", "/v1/chat/completions").json == {"detail": "Method Not Allowed"}


@pytest.mark.parametrize(
    ("dialect", "path"), [("llamacpp", "/props"), ("ollama", "/api/version"), ("sglang", "/get_server_info")]
)
def test_each_server_type_has_the_endpoint_by_which_it_is_known(dialect: str, path: str) -> None:
    options = SimulatorOptions(dialect=DIALECTS[dialect])
    assert fetch("GET", path, options=options).status == 200
    assert fetch("GET", "/version", options=options).status == 404


@pytest.mark.parametrize(
    "text", ["", "Hello, world!", "naïve 東京 👩‍🚀\n\n\t x", 'a <think>b</think>{"k": "v"} <|im_end|>', "\x00\u2028"]
)
def test_joined_tokens_are_the_text(text: str) -> None:
    assert "".join(split(text)) == text
    assert decode(encode(text)) == text
    assert count(text) == len(encode(text))


def test_tokenize_counts_what_usage_reports(ask: Ask) -> None:
    asked = {"messages": MESSAGES, "tools": [WEATHER]}
    counted = fetch("POST", "/tokenize", asked).json
    reply = ask(MESSAGES, tools=[WEATHER], stream_options={"include_usage": True})
    assert counted["count"] == len(counted["tokens"]) == reply.chunks[-1]["usage"]["prompt_tokens"]
    shown = fetch("POST", "/tokenize", {"prompt": "Hi there", "return_token_strs": True}).json
    assert shown["token_strs"] == ["Hi", " there"]
    assert fetch("POST", "/detokenize", {"tokens": shown["tokens"]}).json == {"prompt": "Hi there"}
    assert fetch("POST", "/detokenize", {"tokens": [-5]}).status == 400


def test_text_completions_and_embeddings() -> None:
    assert fetch("POST", "/v1/completions", {"model": "m", "prompt": "Once"}).json["choices"][0]["text"].endswith("Once")
    assert fetch("POST", "/v1/completions", {"model": "m", "prompt": "Once", "stream": True}).payloads[-1] == b"[DONE]"
    plain = fetch("POST", "/v1/embeddings", {"model": "m", "input": ["a", "b"]}).json
    packed = fetch("POST", "/v1/embeddings", {"model": "m", "input": "a", "encoding_format": "base64"}).json
    vector = struct.unpack("<8f", base64.b64decode(packed["data"][0]["embedding"]))
    assert list(vector) == plain["data"][0]["embedding"]


def test_received_requests_can_be_read() -> None:
    async def play() -> Any:
        app = create_app()
        async with serving(app) as url, aiohttp.ClientSession() as session:
            await post(session, f"{url}/v1/chat/completions", {"model": "m", "messages": MESSAGES}, {"x-trace": "1"})
            async with session.get(f"{url}/simulator/requests") as response:
                return await response.json(), app[RECEIVED][0]["headers"]["x-trace"]

    bodies, header = asyncio.run(play())
    assert (bodies[0]["messages"], header) == (MESSAGES, "1")
