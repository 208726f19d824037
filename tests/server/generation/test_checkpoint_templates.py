"""What a checkpoint itself says of its markup: its own response template, and the suffix of its markers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from responses_gateway.backend.tokenizer.tokenizers import ModelTokenizer
from responses_gateway.request import Policy
from responses_gateway.server.generation.parser_choice.choice import ParserChoice
from responses_gateway.server.generation.parser_choice.settings import check_tokenizer
from responses_gateway.settings import Settings
from responses_gateway.wire.deltas import Reasoning, Text
from tests.server.generation.test_raw_backends import WEATHER
from tests.server.generation.test_token_counts import model_folder
from tests.server.running_gateway import gateway, post, run
from tests.server.scripted_backend import backend, streaming, text_stream
from tests.stream.vocabularies import vocabulary

RESPONSE_TEMPLATE: dict[str, Any] = {
    "start_anchor": "<|assistant|>",
    "fields": {
        "thinking": {"open": "<think>", "close": "</think>"},
        "tool_calls": {
            "open": "<call>",
            "close": "</call>",
            "content": "json",
            "transform": {"function": {"name": "{content.tool}", "arguments": "{content.with}"}},
        },
    },
}


def _with_response_template(folder: Path, response_template: object = RESPONSE_TEMPLATE) -> str:
    (folder / "tokenizer_config.json").write_text(json.dumps({"response_template": response_template}), encoding="utf-8")
    return model_folder(folder, "{% for m in messages %}{{ m.content }}{% endfor %}<|assistant|><think>")


def _settings(**fields: Any) -> Settings:
    return Settings(backend=["http://127.0.0.1:9"], **fields)


def test_the_checkpoints_own_template_tells_how_its_text_is_read(tmp_path: Path) -> None:
    """Read a format that the gateway knows nothing of; the prompt has opened the reasoning."""
    text = 'I look.</think>One moment.<call>{"tool": "get_weather", "with": {"city": "Rome"}}</call>'

    async def test() -> None:
        settings = {"reasoning_parser": "beam", "tool_call_parser": "hf", "tokenizer": _with_response_template(tmp_path)}
        async with backend(streaming(*text_stream(text))) as behind, gateway(behind.url, **settings) as running:
            final = (await post(running, model="m", input="How is the weather?", tools=[WEATHER])).final
            assert [item["type"] for item in final["output"]] == ["reasoning", "message", "function_call"]
            assert json.loads(final["output"][2]["arguments"]) == {"city": "Rome"}
            plain = (await post(running, model="m", input="How is the weather?")).final
            assert [item["type"] for item in plain["output"]] == ["reasoning", "message"]
            assert plain["output"][1]["content"][0]["text"].endswith("</call>")

    run(test())


@pytest.mark.parametrize(
    ("response_template", "settings", "complaint"),
    [
        (None, {"reasoning_parser": "template"}, "has no response_template"),
        ({"fields": {}}, {"reasoning_parser": "template"}, "response_template: it has no fields"),
        ({"start_anchor": "a", "fields": {"content": {}}}, {"tool_call_parser": "hf"}, "has no field for it"),
    ],
)
def test_a_template_that_cannot_be_used_is_an_error_at_the_start(
    tmp_path: Path, response_template: object, settings: dict[str, str], complaint: str
) -> None:
    tokenizer = ModelTokenizer(Path(_with_response_template(tmp_path, response_template)) / "tokenizer.json")
    with pytest.raises(ValueError, match=complaint):
        ParserChoice(_settings(**settings), Policy(), tokenizer=tokenizer)


def test_a_template_needs_a_tokenizer_and_stands_alone() -> None:
    settings = _settings(reasoning_parser="template")
    with pytest.raises(ValueError, match="read from the model's tokenizer"):
        check_tokenizer(settings)
    choice = ParserChoice(settings, Policy())
    start = choice.start_without_template({"model": "m"})
    with pytest.raises(ValueError, match="read from the model's tokenizer"):
        choice.markup({"model": "m"}, start)
    with pytest.raises(ValueError, match="name both template"):
        ParserChoice(_settings(reasoning_parser="template", tool_call_parser="hermes"), Policy())


def test_the_suffix_of_a_checkpoint_is_taken_from_its_tokenizer(tmp_path: Path) -> None:
    folder = Path(model_folder(tmp_path, "x"))
    tokens = vocabulary("llama3")
    tokens.add_special_tokens(["<think:0abc>", "</think:0abc>"])
    (folder / "tokenizer.json").write_text(tokens.to_str(), encoding="utf-8")
    choice = ParserChoice(
        _settings(reasoning_parser="hy_v4", tool_call_parser="hy_v4"),
        Policy(),
        tokenizer=ModelTokenizer(folder / "tokenizer.json"),
    )
    start = choice.start_without_template({"model": "m"})
    markup = choice.markup({"model": "m"}, msgspec.structs.replace(start, opened=True))
    assert markup is not None
    assert markup.read([Text("Hm.</think:0abc>Done.")], None) == [Reasoning("Hm."), Text("Done.")]


def test_the_suffix_of_a_checkpoint_can_be_named() -> None:
    choice = ParserChoice(_settings(reasoning_parser="hy_v4:0abc", tool_call_parser="hy_v4:0abc"), Policy())
    assert choice.policy("m").special_tokens
    with pytest.raises(ValueError, match="there is no parser qwen3:0abc"):
        ParserChoice(_settings(reasoning_parser="qwen3:0abc"), Policy())
