"""Which format a model speaks, as far as its chat template and its name tell."""

from __future__ import annotations

# Parts of a chat template that tell the tool format; the first that fits wins, the special before the general.
_TOOL_SIGNS: tuple[tuple[str, str], ...] = (
    ("<|channel|>commentary", "openai"),
    ("<|tool_calls_section_begin|>", "kimi_k2"),
    ("<|open|>tools", "kimi_k3"),
    ("]<]minimax[>[", "minimax_m3"),
    ("<minimax:tool_call>", "minimax_m2"),
    ("<｜DSML｜function_calls", "deepseek_v32"),
    ("<｜DSML｜ calls", "deepseek_v41"),
    ("｜DSML｜", "deepseek_v4"),
    ("function<｜tool▁sep｜>", "deepseek_v3"),
    ("<｜tool▁calls▁begin｜>", "deepseek_v31"),
    ("<steptml:invoke", "step3"),
    ("<seed:tool_call>", "seed_oss"),
    ("<longcat_tool_call>", "longcat"),
    ("<start_function_call>", "functiongemma"),
    ("<|tool_call>call:", "gemma4"),
    ("<|tools_prefix|>", "apertus"),
    ("<|START_ACTION|>", "cohere_command3"),
    ("<|action_start|>", "internlm"),
    ("<|tool_call_start|>", "lfm2"),
    ("<atem:function_calls>", "muse_glimmer"),
    ("<dots_function_call>", "dots"),
    ("<arg_key>", "glm45"),
    ("<function=", "qwen3_coder"),
    ("<function name=", "minicpm5"),
    ("<function_calls>", "olmo3"),
    ("functools[", "phi4_mini_json"),
    ("[TOOL_CALLS]", "mistral"),
    ("<tool_calls>", "hunyuan_a13b"),
    ("<|tool_call|>", "granite"),
    ("<tool_call>", "hermes"),
    ("<|python_start|>", "llama4_pythonic"),
    ("<|python_tag|>", "llama3_json"),
)
_REASONING_SIGNS: tuple[tuple[str, str], ...] = (
    ("<|channel|>analysis", "openai_gptoss"),
    ("<|open|>think", "kimi_k3"),
    ("<seed:think>", "seed_oss"),
    ("<longcat_think>", "longcat"),
    ("<|channel>thought", "gemma4"),
    ("<|START_THINKING|>", "cohere_command3"),
    ("<|inner_prefix|>", "apertus"),
    ("[THINK]", "mistral"),
    ("Here is my thought process", "granite"),
)
# Parts of a model's name, for models whose template is not known: reasoning, tools.
_NAMES: tuple[tuple[str, str | None, str], ...] = (
    ("gpt-oss", "openai_gptoss", "openai"),
    ("qwen3-coder", None, "qwen3_coder"),
    ("qwen3.5", "qwen3", "qwen3_coder"),
    ("qwen3", "qwen3", "hermes"),
    ("qwen2.5", None, "hermes"),
    ("qwq", "deepseek_r1", "hermes"),
    ("hermes", None, "hermes"),
    ("nemotron-3", "nemotron_v3", "qwen3_coder"),
    ("deepseek-r1", "deepseek_r1", "deepseek_v3"),
    ("deepseek-v4.1", "deepseek_v41", "deepseek_v41"),
    ("deepseek-v4", "deepseek_v4", "deepseek_v4"),
    ("deepseek-v3.2", "deepseek_v3", "deepseek_v32"),
    ("deepseek-v3.1", "deepseek_v3", "deepseek_v31"),
    ("deepseek-v3", None, "deepseek_v3"),
    ("glm-4", "glm45", "glm45"),
    ("glm-5", "glm45", "glm45"),
    ("kimi-k3", "kimi_k3", "kimi_k3"),
    ("kimi-k2", "kimi_k2", "kimi_k2"),
    ("minimax-m3", "minimax_m3", "minimax_m3"),
    ("minimax-m2", "minimax_m2", "minimax_m2"),
    ("mimo", "mimo", "mimo"),
    ("seed-oss", "seed_oss", "seed_oss"),
    ("step3p5", "step3p5", "step3p5"),
    ("step-3.5", "step3p5", "step3p5"),
    ("step3", "step3", "step3"),
    ("functiongemma", None, "functiongemma"),
    ("gemma-4", "gemma4", "gemma4"),
    ("granite-4", None, "granite4"),
    ("granite-3", "granite", "granite"),
    ("granite-20b", None, "granite-20b-fc"),
    ("hunyuan-a13b", "hunyuan_a13b", "hunyuan_a13b"),
    ("ernie-4.5", "ernie45", "ernie45"),
    ("olmo-3", "olmo3", "olmo3"),
    ("phi-4-mini", None, "phi4_mini_json"),
    ("command-a", "cohere_command3", "cohere_command3"),
    ("magistral", "mistral", "mistral"),
    ("mistral", "mistral", "mistral"),
    ("devstral", "mistral", "mistral"),
    ("ministral", "mistral", "mistral"),
    ("llama-4", None, "llama4_pythonic"),
    ("llama-3.2", None, "pythonic"),
    ("llama-3", None, "llama3_json"),
    ("longcat", "longcat", "longcat"),
    ("internlm", None, "internlm"),
    ("jamba", None, "jamba"),
    ("xlam", None, "xlam"),
    ("lfm2", None, "lfm2"),
    ("apertus", "apertus", "apertus"),
    ("minicpm5", "minicpmv", "minicpm5"),
)
# Reasoning of families whose template shows only `<think>`, by their tool format.
_THINKING: dict[str, str] = {
    "deepseek_v3": "deepseek_r1",
    "deepseek_v31": "deepseek_v3",
    "deepseek_v32": "deepseek_v3",
    "deepseek_v4": "deepseek_v4",
    "deepseek_v41": "deepseek_v41",
    "glm45": "glm45",
    "hunyuan_a13b": "hunyuan_a13b",
    "kimi_k2": "kimi_k2",
    "minimax_m2": "minimax_m2",
    "minimax_m3": "minimax_m3",
    "olmo3": "olmo3",
    "step3": "step3",
}


def detect(model_name: str, chat_template: str | None) -> tuple[str | None, str | None]:
    """The names of the reasoning and the tool format of a model; None where nothing tells.

    The template decides where it shows markup, else the model's name does.
    """
    by_name = _by_name(model_name)
    if chat_template is None:
        return by_name
    tools = next((name for sign, name in _TOOL_SIGNS if sign in chat_template), by_name[1])
    reasoning = next((name for sign, name in _REASONING_SIGNS if sign in chat_template), None)
    if reasoning is None and "think>" in chat_template:
        reasoning = by_name[0] or _THINKING.get(tools or "", "qwen3")
    return reasoning or by_name[0], tools


def _by_name(model_name: str) -> tuple[str | None, str | None]:
    name = model_name.lower().replace("_", "-")
    for part, reasoning, tools in _NAMES:
        if part in name:
            return reasoning, tools
    return None, None
