"""The names of formats, and those that are found for a model."""

from __future__ import annotations

import pytest
from markup_outcome import TOOLS, agree, at_random, characters, play, whole
from markup_rendering import FAMILIES, render

from responses_gateway.parsers import REASONING, detect, parser
from responses_gateway.parsers import TOOLS as TOOL_FORMATS


@pytest.mark.parametrize("name", ["hermes3", "HERMES", "qwen"])
def test_an_unknown_name_is_an_error_that_lists_the_known(name: str) -> None:
    with pytest.raises(ValueError, match=r"unknown tool parser .*qwen3_coder"):
        parser(None, name, schemas={})
    with pytest.raises(ValueError, match=r"unknown reasoning parser .*deepseek_r1"):
        parser(name, None, schemas={})


@pytest.mark.parametrize(
    ("name", "alias"),
    [("qwen3_coder", "qwen3_xml"), ("hermes", "qwen3_json"), ("glm45", "glm47"), ("llama3_json", "llama4_json")],
)
def test_aliases_are_one_format(name: str, alias: str) -> None:
    assert TOOL_FORMATS[name] is TOOL_FORMATS[alias]


@pytest.mark.parametrize("name", sorted(REASONING))
@pytest.mark.parametrize("opened", [True, False, None])
def test_every_reasoning_format_passes_plain_text(name: str, opened: bool | None) -> None:
    outcome = play(parser(name, None, schemas={}, thinking_open=opened), characters("Hello."))
    assert [next(iter(item.values())) for item in outcome.items] == ["Hello."]


@pytest.mark.parametrize("name", sorted(TOOL_FORMATS))
def test_every_tool_format_passes_plain_text(name: str) -> None:
    assert play(parser(None, name, schemas=TOOLS), characters("Hello, [a] and {b}.")).items == [{"text": "Hello, [a] and {b}."}]


def test_append_think_leaves_reasoning_in_the_answer() -> None:
    outcome = play(parser("minimax_m2_append_think", "minimax_m2", schemas=TOOLS), whole("Hm.</think>Done."))
    assert outcome.items == [{"text": "Hm.</think>Done."}]


# Formats whose markers tell them apart from all others; the rest need their names.
NEED_THEIR_NAMES = {
    "mimo",
    "granite",
    "xlam",
    "hunyuan_a13b",
    "ernie45",
    "cohere_command",
    "kimi_k3",
    "minicpm5",
    "inkling",
    "muse",
    "muse_glimmer",
}


@pytest.mark.parametrize("name", sorted(set(FAMILIES) - NEED_THEIR_NAMES))
def test_auto_knows_the_format_by_its_markers(name: str) -> None:
    family = FAMILIES[name]
    items = [("call", "get_weather", {"city": "Rome", "unit": "celsius"}), ("call", "list_files", {})]
    if family.think is not None:
        items.insert(0, ("reasoning", "I look."))
    text = render(family, items)
    opened = family.opened and family.think is not None
    expected = [{"call": item[1], "arguments": item[2]} if item[0] == "call" else {item[0]: item[1]} for item in items]
    for pieces in (whole(text), characters(text), at_random(text, 1)):
        outcome = play(parser("auto", "auto", schemas=TOOLS, thinking_open=opened), pieces)
        assert agree(outcome.items, expected), outcome


@pytest.mark.parametrize(
    ("model", "names"),
    [
        ("Qwen/Qwen3-8B", ("qwen3", "hermes")),
        ("Qwen/Qwen3-Coder-30B-A3B-Instruct", (None, "qwen3_coder")),
        ("deepseek-ai/DeepSeek-R1", ("deepseek_r1", "deepseek_v3")),
        ("deepseek-ai/DeepSeek-V3.1", ("deepseek_v3", "deepseek_v31")),
        ("openai/gpt-oss-120b", ("openai_gptoss", "openai")),
        ("zai-org/GLM-4.6", ("glm45", "glm45")),
        ("moonshotai/Kimi-K2-Thinking", ("kimi_k2", "kimi_k2")),
        ("MiniMaxAI/MiniMax-M2", ("minimax_m2", "minimax_m2")),
        ("meta-llama/Llama-3.1-8B-Instruct", (None, "llama3_json")),
        ("meta-llama/Llama-3.2-3B-Instruct", (None, "pythonic")),
        ("NousResearch/Hermes-3-Llama-3.2-3B", (None, "hermes")),
        ("deepseek-ai/DeepSeek-R1-0528-Qwen3-8B", ("qwen3", "hermes")),
        ("deepseek-ai/DeepSeek-V4.1", ("deepseek_v41", "deepseek_v41")),
        ("stepfun-ai/step3p5", ("step3p5", "step3p5")),
        ("mistralai/Mistral-Small-3.2", ("mistral", "mistral")),
        ("someone/unheard-of", (None, None)),
    ],
)
def test_a_model_is_known_by_its_name(model: str, names: tuple[str | None, str | None]) -> None:
    assert detect(model, None) == names


@pytest.mark.parametrize(
    ("model", "template", "names"),
    [
        ("x", "<think> <tool_call> {{ tool | tojson }}", ("qwen3", "hermes")),
        ("x", "<tool_call><function=name><parameter=", (None, "qwen3_coder")),
        ("x", "</think> <tool_call>{name}<arg_key>", ("glm45", "glm45")),
        ("x", "<｜tool▁calls▁begin｜> </think>", ("deepseek_v3", "deepseek_v31")),
        ("x", "<｜tool▁calls▁begin｜> function<｜tool▁sep｜>", (None, "deepseek_v3")),
        ("x", "<｜DSML｜function_calls> ｜DSML｜", (None, "deepseek_v32")),
        ("x", "<|python_tag|> <tool_call>", (None, "hermes")),
        ("deepseek-r1", "function<｜tool▁sep｜> </think>", ("deepseek_r1", "deepseek_v3")),
        ("x", "<|channel|>analysis <|channel|>commentary", ("openai_gptoss", "openai")),
        ("qwen3", "nothing of interest", ("qwen3", "hermes")),
        ("nemotron-3", "<think> <tool_call><function=", ("nemotron_v3", "qwen3_coder")),
        ("x", "[THINK] [TOOL_CALLS]", ("mistral", "mistral")),
    ],
)
def test_the_template_decides_where_it_shows_markup(model: str, template: str, names: tuple[str | None, str | None]) -> None:
    assert detect(model, template) == names


def test_every_detected_name_exists() -> None:
    for name in (
        "qwq",
        "granite-4",
        "step-3.5",
        "command-a",
        "jamba",
        "xlam",
        "lfm2",
        "longcat",
        "internlm",
        "apertus",
    ):
        reasoning, tools = detect(name, None)
        parser(reasoning, tools, schemas={})
