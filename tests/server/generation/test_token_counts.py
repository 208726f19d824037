"""Tokens through the front door: ids asked of servers that send them, usage and metrics where the backend reports none."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from responses_gateway import parsers as formats
from responses_gateway.parsers import vllm as vllm_parser
from responses_gateway.request import Policy
from responses_gateway.server.generation.parser_choice.choice import ParserChoice
from responses_gateway.server.generation.parser_choice.settings import load_vllm_parsers
from responses_gateway.settings import Settings
from tests.server.generation.test_raw_backends import RAW, WEATHER, received, served
from tests.server.resources.test_websocket_resource import connect
from tests.server.running_gateway import ask, gateway, post, run, until
from tests.server.scripted_backend import HEAD, Connection, backend, streaming, text_stream
from tests.stream.vocabularies import vocabulary

OPENING = "{% for m in messages %}{{ m.content }}\n{% endfor %}{% if add_generation_prompt %}<think>\n{% endif %}"
PLAIN = "{% for m in messages %}{{ m.content }}\n{% endfor %}"


def model_folder(folder: Path, template: str) -> str:
    """Write a model's tokenizer and chat template."""
    (folder / "tokenizer.json").write_text(vocabulary("llama3").to_str(), encoding="utf-8")
    (folder / "chat_template.jinja").write_text(template, encoding="utf-8")
    return str(folder)


def test_a_raw_vllm_is_asked_for_token_ids_and_each_kind_is_counted() -> None:
    async def test() -> None:
        async with served("vllm-raw", **RAW["vllm-raw"]) as (running, simulator):
            asks = running.parts.responses.preparation.translator.asks_for_token_ids
            await until(lambda: asks("simulator", running.parts.live.current), "the backend says that it is a vLLM")
            final = (await post(running, model="simulator", input="scenario: demo", tools=[WEATHER])).final
            assert received(simulator)["return_token_ids"] is True
            kinds = ("reasoning", "text", "tool_arguments", "other")
            counted = {kind: running.metric("tokens_total", model="simulator", kind=kind) for kind in kinds}
            assert all(counted.values())
            assert sum(counted.values()) == final["usage"]["output_tokens"]
            assert final["usage"]["output_tokens_details"]["reasoning_tokens"] == counted["reasoning"]

    run(test())


@pytest.mark.parametrize("dialect", ["vllm", "sglang-raw"])
def test_others_are_not_asked(dialect: str) -> None:
    async def test() -> None:
        async with served(dialect, **RAW.get(dialect, {})) as (running, simulator):
            await post(running, model="simulator", input="hello")
            assert "return_token_ids" not in received(simulator)

    run(test())


@pytest.mark.parametrize("way", ["http", "background", "websocket", "compaction"])
def test_usage_of_a_backend_that_reports_none_is_counted(tmp_path: Path, way: str) -> None:
    go_on = asyncio.Event()

    async def slowly(connection: Connection) -> None:
        connection.write(HEAD)
        await until(go_on.is_set, "the input is counted")
        connection.send(*text_stream("I am", " well."))
        connection.end()

    async def test() -> None:
        folder = model_folder(tmp_path, PLAIN)
        async with backend(slowly) as behind, gateway(behind.url, tokenizer=folder, store="memory") as running:
            assert running.parts.responses.preparation.tokenizer is not None
            counted = running.parts.responses.preparation.tokenizer.count_input

            def watched(body: Any) -> int:
                found = counted(body)
                loop.call_soon_threadsafe(loop.call_later, 0.05, go_on.set)
                return found

            loop = asyncio.get_running_loop()
            running.parts.responses.preparation.tokenizer.count_input = watched  # type: ignore[method-assign]
            asked = {"model": "m", "input": "How are you?"}
            if way in ("http", "background"):
                final = (await post(running, **asked, background=way == "background")).final
            elif way == "compaction":
                final = (await ask(running, "POST", "/v1/responses/compact", json=asked)).json
            else:
                async with connect(running) as socket:
                    final = await socket.ask("How are you?", model="m")
            assert final["usage"]["input_tokens"] > 2
            assert final["usage"]["output_tokens"] > 0
            assert sum(final["usage"][name] for name in ("input_tokens", "output_tokens")) == final["usage"]["total_tokens"]

    run(test())


@pytest.mark.parametrize(("template", "kinds"), [(OPENING, ["reasoning", "message"]), (PLAIN, ["message"])])
def test_the_chat_template_tells_whether_thinking_is_open(tmp_path: Path, template: str, kinds: list[str]) -> None:
    """Read the same text both ways: if the template has opened a block, it begins with reasoning."""
    text = "Think first.</think>Then answer." if len(kinds) == 2 else "Only an answer."

    async def test() -> None:
        settings = {"reasoning_parser": "qwen3", "tokenizer": model_folder(tmp_path, template)}
        async with backend(streaming(*text_stream(text))) as behind, gateway(behind.url, **settings) as running:
            final = (await post(running, model="m", input="How are you?")).final
            assert [item["type"] for item in final["output"]] == kinds
            async with connect(running) as socket:
                assert [item["type"] for item in (await socket.ask("How are you?", model="m"))["output"]] == kinds

    run(test())


class StandIn:
    """What `vllm_parser.load` gives, without vLLM."""

    def parser(
        self,
        *,
        schemas: Mapping[str, Mapping[str, Any]],
        thinking_open: bool | None = None,
        template_kwargs: Mapping[str, Any] | None = None,
    ) -> formats.MarkupParser:
        return formats.parser("qwen3", "hermes", schemas=schemas, thinking_open=bool(thinking_open))


def test_parsers_of_vllm_take_the_seat(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Any, ...]] = []

    def load(*names: Any) -> StandIn:
        asked.append(names)
        return StandIn()

    monkeypatch.setattr(vllm_parser, "load", load)

    async def test() -> None:
        settings = _settings(reasoning_parser="vllm:qwen3", tool_call_parser="vllm:hermes", tokenizer="some/model")
        choice = ParserChoice(settings, Policy(), vllm_parsers=load_vllm_parsers(settings))
        assert asked == [("vllm:qwen3", "vllm:hermes", "some/model")]
        body = {"model": "m", "tools": [{"function": {"name": "get_weather"}}]}
        markup = choice.markup(body, await choice.start(body))
        assert markup is not None
        assert choice.policy("m").raw_tools

    run(test())


def test_parsers_of_vllm_need_a_tokenizer_and_each_other() -> None:
    with pytest.raises(ValueError, match="need the model's tokenizer"):
        load_vllm_parsers(_settings(reasoning_parser="vllm:qwen3"))
    with pytest.raises(ValueError, match="cannot be combined"):
        ParserChoice(_settings(reasoning_parser="vllm:qwen3", tool_call_parser="hermes"), Policy())


def _settings(**fields: Any) -> Settings:
    return Settings(backend=["http://127.0.0.1:9"], **fields)
