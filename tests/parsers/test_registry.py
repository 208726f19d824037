"""The names of formats, and those that are found for a model."""

from __future__ import annotations

import time

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


# Models as they are served: repositories, files of llama.cpp, names of Ollama, folders, aliases without dots.
FOUND: dict[tuple[str | None, str | None], list[str]] = {
    ("qwen3", "hermes"): [
        "Qwen/Qwen3-8B",
        "Qwen/Qwen3-30B-A3B-Thinking-2507",
        "deepseek-ai/DeepSeek-R1-0528-Qwen3-8B",
        "JetBrains/Mellum2-12B-A2.5B-Thinking",
        "qwen3:8b",
        "Qwen3VL-8B-Thinking-Q4_K_M.gguf",
        "/models/Llama-4/../qwen_3_14b-awq",
        "/root/.cache/huggingface/hub/models--Qwen--Qwen3-8B/snapshots/9c925d64d72725edaf899c6cb9c377fd0709d9c5",
    ],
    (None, "hermes"): [
        "JetBrains/Mellum2-12B-A2.5B-Instruct",
        "inclusionAI/Ling-2.6-flash",
        "inclusionAI/Ling-mini-2.0-GGUF",
        "LGAI-EXAONE/K-EXAONE-236B-A23B",
        "Qwen/Qwen3-30B-A3B-Instruct-2507",
        "Qwen/Qwen3-VL-8B-Instruct-FP8",
        "Qwen/Qwen3-Next-80B-A3B-Instruct",
        "Qwen/Qwen2.5-Coder-32B-Instruct-AWQ",
        "qwen2-5-7b-instruct",
        "qwen2.5vl:7b",
        "NousResearch/Hermes-3-Llama-3.2-3B",
        "NousResearch/DeepHermes-3-Llama-3-8B-Preview",
        "XiaomiMiMo/MiMo-VL-7B-RL",
    ],
    (None, "qwen3_coder"): ["Qwen/Qwen3-Coder-30B-A3B-Instruct", "unsloth/Qwen3-Coder-Next-GGUF:Q4_K_M", "qwen3-coder:30b"],
    ("qwen3", "qwen3_coder"): [
        "Qwen/Qwen3.5-35B-A3B",
        "Qwen3.6-27B-UD-Q4_K_XL.gguf",
        "qwen3-8-27b",
        "internlm/Intern-S2-Preview",
    ],
    ("deepseek_r1", "deepseek_v3"): ["deepseek-ai/DeepSeek-R1", "deepseek-r1:1.5b"],
    (None, "deepseek_v3"): ["deepseek-ai/DeepSeek-V3-0324", "mlx-community/DeepSeek-V3-2bit"],
    ("deepseek_v3", "deepseek_v31"): ["deepseek-ai/DeepSeek-V3.1", "deepseek-v3-1-terminus"],
    ("deepseek_v41", "deepseek_v41"): ["deepseek-ai/DeepSeek-V4.1"],
    ("openai_gptoss", "openai"): ["openai/gpt-oss-120b", "hf.co/unsloth/gpt-oss-20b-GGUF:Q4_K_M", "GPT_OSS_20B"],
    ("glm45", "glm45"): ["zai-org/GLM-4.6", "zai-org/GLM-4.5V", "glm-4-5-air", "GLM-5.2-FP8", "glm4.7-flash"],
    ("kimi_k2", "kimi_k2"): ["moonshotai/Kimi-K2-Thinking", "moonshotai/Kimi-K2.6"],
    (None, "kimi_k2"): ["moonshotai/Kimi-K2-Instruct-0905"],
    ("minimax_m2", "minimax_m2"): ["MiniMaxAI/MiniMax-M2.5"],
    (None, "llama3_json"): [
        "meta-llama/Llama-3.1-8B-Instruct",
        "nvidia/Llama-3.1-Nemotron-70B-Instruct-HF",
        "Meta-Llama-3-8B-Instruct.Q5_K_M.gguf",
        "llama3.3:70b",
    ],
    (None, "llama4_pythonic"): ["meta-llama/Llama-4-Scout-17B-16E-Instruct"],
    ("hy_v3", "hy_v3"): ["tencent/Hy3-preview", "tencent/HY-3"],
    ("hy_v4", "hy_v4"): ["tencent/Hy-V4"],
    ("gemma4", "gemma4"): ["google/gemma-4-E4B-it", "gemma4:31b"],
    ("mimo", "mimo"): ["XiaomiMiMo/MiMo-V2.5-Pro"],
    (None, "granite4"): ["ibm-granite/granite-4.0-h-small"],
    ("granite_thinking_parser", "qwen3_coder"): ["ibm-granite/granite-4.2-8b"],
    ("granite", "granite"): ["ibm-granite/granite-3.3-8b-instruct", "granite3.1-moe:3b"],
    (None, "granite-20b-fc"): ["ibm-granite/granite-20b-functioncalling"],
    ("ernie45", "ernie45"): ["baidu/ERNIE-4.5-21B-A3B-Thinking", "baidu/ERNIE-4.5-VL-28B-A3B-PT"],
    (None, "ernie45"): ["baidu/ERNIE-4.5-21B-A3B-PT"],
    ("olmo3", "olmo3"): ["allenai/Olmo-3-32B-Think"],
    (None, "olmo3"): ["allenai/Olmo-3-7B-Instruct"],
    ("cohere_command3", "cohere_command3"): ["CohereLabs/command-a-reasoning-08-2025", "command-r7b:7b"],
    ("step3", "step3"): ["stepfun-ai/step3"],
    ("step3p5", "step3p5"): ["stepfun-ai/step3p5", "stepfun-ai/Step-3.5-Flash"],
    ("deepseek_r1", "hermes"): [
        "stepfun-ai/Step3-VL-10B",
        "Qwen/QwQ-32B",
        "inclusionAI/Ring-2.5-1T",
        "Ring-flash-2.0-Q4_K_M.gguf",
    ],
    ("mistral", "mistral"): ["mistralai/Mistral-Small-3.2", "ministral-3:8b"],
    ("deepseek_r1", "internlm"): ["internlm/Intern-S1"],
    ("deepseek_r1", "qwen3_coder"): ["arcee-ai/Trinity-Large-Thinking"],
    ("deepseek_r1", "glm45"): ["inclusionAI/Ring-2.6-1T"],
    ("ling3", "ling3"): ["inclusionAI/Ling-3.0-flash", "ling-3.0-tiny"],
    ("exaone_deep", None): ["LGAI-EXAONE/EXAONE-Deep-7.8B-AWQ", "exaone-deep:7.8b"],
    ("deepseek_v3", "hermes"): ["LGAI-EXAONE/EXAONE-4.0-32B", "HuggingFaceTB/SmolLM3-3B", "SmolLM3-3B-Q4_K_M.gguf"],
    ("nemotron_v3", "nemotron_json"): ["nvidia/NVIDIA-Nemotron-Nano-9B-v2-FP8", "NVIDIA-Nemotron-Nano-12B-v2"],
    (None, "nemotron_json"): ["nvidia/Llama-3_3-Nemotron-Super-49B-v1_5", "nvidia/Llama-3.1-Nemotron-Nano-8B-v1"],
    ("nemotron_v3", "qwen3_coder"): ["nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "nemotron-3-nano:30b"],
    ("qwen3", "dots"): ["dots-studio/dots3-note-prev"],
    (None, "pythonic"): ["Team-ACE/ToolACE-8B", "Team-ACE/ToolACE-2-Llama-3.1-8B"],
    (None, "phi4_mini_json"): ["microsoft/Phi-4-mini-instruct", "phi4-mini:3.8b"],
}
# Names that only look like another family's, and models whose name does not tell what they write.
UNKNOWN = [
    "someone/unheard-of",
    "someone/Philosophy3-7B",
    "openlm-research/open_llama_3b_v2",
    "huggyllama/llama-30b",
    "google/gemma-3-4b-it",
    "google/medgemma-4b-it",
    "Qwen/Qwen-32B-Instruct",
    "ibm-granite/granite-34b-code-instruct-8k",
    "zai-org/GLM-4-9B-0414",
    "my-command-assistant",
    "mimosa-7b",
    "spring-mini",
    "ai-sage/GigaChat3.5-100B",
    "meta-llama/Llama-3.2-3B-Instruct",
    "",
]


@pytest.mark.parametrize(("names", "model"), [(names, model) for names, models in FOUND.items() for model in models])
def test_a_model_is_known_by_its_name(model: str, names: tuple[str | None, str | None]) -> None:
    assert detect(model, None) == names


def test_a_long_name_takes_no_time() -> None:
    begin = time.process_time()
    assert detect("qwen3-" * 100_000, None) == ("qwen3", "hermes")
    assert time.process_time() - begin < 0.1


@pytest.mark.parametrize("model", UNKNOWN)
def test_a_name_that_tells_nothing_is_taken_for_no_family(model: str) -> None:
    assert detect(model, None) == (None, None)


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
    others = [
        detect(name, None) for name in ("jamba", "xlam", "lfm2", "longcat", "internlm2.5", "apertus", "step-5", "qwen3.5")
    ]
    for reasoning, tools in [*FOUND, *others]:
        parser(reasoning, tools, schemas={})
