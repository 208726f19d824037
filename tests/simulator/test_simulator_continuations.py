"""A prompt in ids is gone on with as vLLM 0.32 does it, by chat and by text completions; a server that stops tells so."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

import aiohttp
import pytest

from responses_gateway.simulator import DIALECTS, SimulatorOptions, create_app, serving
from responses_gateway.simulator.tokenizer import decode
from tests.simulator.chat_client import WEATHER, Ask, Reply, post

RAW = SimulatorOptions(dialect=DIALECTS["vllm-raw"])
CALL = {"message": "weather in 東京 🗼? scenario: unicode", "tools": [WEATHER], "return_token_ids": True}


def completions(body: dict[str, Any], options: SimulatorOptions | None = None) -> Reply:
    async def play() -> Reply:
        async with serving(create_app(options)) as url, aiohttp.ClientSession() as session:
            return await post(session, f"{url}/v1/completions", {"model": "simulator", "stream": True, **body})

    return asyncio.run(play())


def ids_of(reply: Reply) -> tuple[list[int], list[int]]:
    """Return the ids of the prompt, and those of the answer."""
    chunks = reply.chunks
    answer = [number for chunk in chunks for choice in chunk["choices"] for number in choice.get("token_ids") or ()]
    return chunks[0]["prompt_token_ids"], answer


@pytest.mark.parametrize("options", [None, RAW])
def test_a_completion_goes_on_with_raw_text_behind_any_whole_text(ask: Ask, options: SimulatorOptions | None) -> None:
    prompt, ids = ids_of(ask(**CALL, options=options, tool_choice="auto" if options is None else "none"))
    whole = decode(ids).removesuffix("<|im_end|>")
    for count in range(0, len(ids), 7):
        if decode(ids[:count]).endswith("\ufffd"):
            continue
        body = {"prompt": prompt + ids[:count], "max_tokens": 5000, "return_token_ids": True, "skip_special_tokens": False}
        reply = completions(body, options)
        choices = [chunk["choices"][0] for chunk in reply.chunks]
        assert choices[0]["prompt_token_ids"] == prompt + ids[:count]
        assert [number for choice in choices for number in choice["token_ids"]] == ids[count:]
        assert decode(ids[:count]) + "".join(choice["text"] for choice in choices) == whole
        assert choices[-1]["finish_reason"] == "stop"


def test_a_completion_has_16_tokens_unless_told(ask: Ask) -> None:
    prompt, _ = ids_of(ask(**CALL))
    choices = [chunk["choices"][0] for chunk in completions({"prompt": prompt, "return_token_ids": True}).chunks]
    assert len(choices) == 16
    assert choices[-1]["finish_reason"] == "length"


def test_behind_a_part_of_a_character_the_whole_prompt_comes_once_more(ask: Ask) -> None:
    prompt, ids = ids_of(ask(**CALL))
    count = next(count for count in range(len(ids)) if decode(ids[:count]).endswith("\ufffd"))
    body = {"prompt": prompt + ids[:count], "max_tokens": 1, "skip_special_tokens": False}
    text = completions(body).chunks[0]["choices"][0]["text"]
    assert text == decode(prompt + ids[: count + 1])


def test_a_character_of_two_tokens_comes_with_the_second(ask: Ask) -> None:
    choices = [chunk["choices"][0] for chunk in ask(**CALL, options=RAW, tool_choice="none").chunks[1:-1]]
    pairs = pairwise(choices)
    halves = [pair for pair in pairs if decode(pair[0]["token_ids"]) == "\ufffd" and not pair[0]["delta"]["content"]]
    assert halves
    for first, second in halves:
        assert first["delta"]["content"] == ""
        assert second["delta"]["content"] == decode(first["token_ids"] + second["token_ids"])


def test_chat_goes_on_with_ids_and_its_parser_knows_nothing_of_the_call(ask: Ask) -> None:
    asked = {"message": "scenario: tool", "tools": [WEATHER], "return_token_ids": True}
    first = ask(**asked)
    prompt, ids = ids_of(first)
    inside = decode(ids).index('"arguments"')
    count = next(count for count in range(len(ids)) if len(decode(ids[:count])) > inside)
    reply = ask(**asked, kv_transfer_params={"prompt_token_ids": prompt + ids[:count]})
    assert ids_of(reply) == (prompt + ids[:count], ids[count:])
    assert not reply.calls
    assert reply.text() == decode(ids[count:]).removesuffix("<|im_end|>")


def test_ids_are_ignored_beside_an_image(ask: Ask) -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    messages = [{"role": "user", "content": [{"type": "text", "text": "hi"}, image]}]
    reply = ask(messages, return_token_ids=True, kv_transfer_params={"prompt_token_ids": [1, 2, 3]})
    assert ids_of(reply)[0] != [1, 2, 3]
    assert ask(kv_transfer_params={"prompt_token_ids": []}).status == 400


def test_an_aborted_answer_ends_with_a_token_and_usage(ask: Ask) -> None:
    reply = ask("fault: abort=5", return_token_ids=True, stream_options={"include_usage": True})
    whole = ids_of(ask("fault: abort=5", return_token_ids=True, headers={"x-simulator-fault": ""}))[1]
    assert reply.finish_reason == "abort"
    assert ids_of(reply)[1] == whole[:6]
    assert reply.chunks[-1]["usage"]["completion_tokens"] == 6
    assert reply.payloads[-1] == b"[DONE]"


def test_a_server_that_is_told_to_stop_aborts_its_answers() -> None:
    async def stop() -> Reply:
        async with aiohttp.ClientSession() as session:
            options = SimulatorOptions(tokens_per_second=20)
            async with serving(create_app(options)) as url:
                body = {"model": "sim-long", "messages": [{"role": "user", "content": "go"}], "stream": True}
                request = asyncio.create_task(post(session, f"{url}/v1/chat/completions", body))
                while b"vllm:generation_tokens_total" not in (text := await _metrics(session, url)) or text.endswith(b" 0.0"):
                    pass
            return await request

    async def _metrics(session: aiohttp.ClientSession, url: str) -> bytes:
        async with session.get(f"{url}/metrics") as response:
            lines = (await response.read()).splitlines()
        return next((line for line in lines if line.startswith(b"vllm:generation_tokens_total{")), b"")

    reply = asyncio.run(stop())
    assert reply.finish_reason == "abort"
    assert reply.payloads[-1] == b"[DONE]"
    assert not reply.broken
