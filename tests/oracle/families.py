"""The families that are compared: their parsers' names, and the tokens that their models have for markers."""

from __future__ import annotations

from dataclasses import dataclass

THINK = ("<think>", "</think>")
CALL = ("<tool_call>", "</tool_call>")


@dataclass(frozen=True)
class Family:
    """`reasoning`, `tools`: names in vLLM and here. `tokens`: markers that are one token of the family's models. `suffix`: that
    of a checkpoint, as its tokenizer's configuration has it. `block`: opens a block of calls of which vLLM gives out nothing
    before it ends, and the markup as text if it does not. `efforts`: the `reasoning_effort` with and without thinking, for
    parsers that go by it."""

    reasoning: str | None
    tools: str
    tokens: tuple[str, ...] = ()
    suffix: str = ""
    block: str = ""
    efforts: tuple[str, str] | None = None


_DEEPSEEK = (
    *THINK,
    "<｜tool▁calls▁begin｜>",
    "<｜tool▁calls▁end｜>",
    "<｜tool▁call▁begin｜>",
    "<｜tool▁call▁end｜>",
    "<｜tool▁sep｜>",
)
_DSML = (*THINK, "｜DSML｜")
_MISTRAL = ("[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", "[THINK]", "[/THINK]")
_STEP3 = (
    *THINK,
    "<｜tool_calls_begin｜>",
    "<｜tool_calls_end｜>",
    "<｜tool_call_begin｜>",
    "<｜tool_call_end｜>",
    "<｜tool_sep｜>",
)
_KIMI_K2 = (
    *THINK,
    "<|tool_calls_section_begin|>",
    "<|tool_calls_section_end|>",
    "<|tool_call_begin|>",
    "<|tool_call_argument_begin|>",
    "<|tool_call_end|>",
)


def _both(*names: str, suffix: str = "") -> tuple[str, ...]:
    """Return the opening and the closing tag of each name."""
    return tuple(tag for name in names for tag in (f"<{name}{suffix}>", f"</{name}{suffix}>"))


_HY = ("think", "tool_calls", "tool_call", "arg_key", "arg_value")
_INKLING = (
    "<|message_model|>",
    "<|content_text|>",
    "<|content_thinking|>",
    "<|content_invoke_tool_json|>",
    "<|content_invoke_tool_text|>",
    "<|content_tool_error|>",
    "<|content_model_end_sampling|>",
    "<|end_message|>",
)
_IFM = ("ifm|think", "ifm|tool_calls", "ifm|tool_call", "ifm|arg_key", "ifm|arg_type", "ifm|arg_value")

# By the name of the file in `tests/parsers/vectors`.
FAMILIES: dict[str, Family] = {
    "apertus": Family(None, "apertus", ("<|tools_prefix|>", "<|tools_suffix|>", "<|inner_prefix|>", "<|inner_suffix|>")),
    "deepseek_r1": Family("deepseek_r1", "hermes", (*THINK, *CALL)),
    "deepseek_v3": Family("deepseek_v3", "deepseek_v3", _DEEPSEEK),
    "deepseek_v31": Family("deepseek_v3", "deepseek_v31", _DEEPSEEK),
    "deepseek_v32": Family("deepseek_v3", "deepseek_v32", _DSML),
    "deepseek_v4": Family("deepseek_v4", "deepseek_v4", _DSML),
    "deepseek_v41": Family("deepseek_v41", "deepseek_v41", _DSML),
    "dots": Family(None, "dots"),
    "ernie45": Family("ernie45", "ernie45", (*THINK, *CALL, "<response>", "</response>")),
    "functiongemma": Family(None, "functiongemma", ("<start_function_call>", "<end_function_call>", "<escape>")),
    "gemma4": Family("gemma4", "gemma4", ("<|tool_call>", "<tool_call|>", "<|channel>", "<channel|>", '<|"|>')),
    "gigachat3": Family(None, "gigachat3", ("<|role_sep|>",)),
    "glm45": Family("glm45", "glm45", (*THINK, *CALL, "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>")),
    "granite": Family("granite", "granite", ("<|tool_call|>",)),
    "granite4": Family(None, "granite4", CALL),
    "granite_20b_fc": Family(None, "granite-20b-fc", ("<function_call>",)),
    "hermes": Family("qwen3", "hermes", (*THINK, *CALL)),
    "hunyuan_a13b": Family(None, "hunyuan_a13b"),
    "hy_v3": Family(
        "hy_v3",
        "hy_v3",
        (*_both(*_HY, suffix=":opensource"), "<tool_sep:opensource>"),
        suffix=":opensource",
        efforts=("high", "no_think"),
    ),
    "hy_v4": Family("hy_v4", "hy_v4", _both(*_HY, suffix=":6124c78e"), efforts=("high", "no_think")),
    "inkling": Family("inkling", "inkling", _INKLING),
    "internlm": Family(None, "internlm", ("<|action_start|>", "<|action_end|>", "<|plugin|>")),
    "jamba": Family(None, "jamba", ("<tool_calls>", "</tool_calls>")),
    "k2_horizon": Family("k2_horizon", "k2_horizon", _both(*_IFM), block="<ifm|tool_calls>"),
    "kimi_k2": Family("kimi_k2", "kimi_k2", _KIMI_K2),
    "kimi_k3": Family("kimi_k3", "kimi_k3", ("<|open|>", "<|close|>", "<|sep|>")),
    "lfm2": Family(None, "lfm2", ("<|tool_call_start|>", "<|tool_call_end|>")),
    "llama3_json": Family(None, "llama3_json", ("<|python_tag|>",)),
    "llama4_pythonic": Family(None, "llama4_pythonic", ("<|python_start|>", "<|python_end|>")),
    "longcat": Family(None, "longcat", ("<longcat_tool_call>", "</longcat_tool_call>")),
    "mimo": Family("mimo", "mimo", (*THINK, *CALL)),
    "minicpm5": Family("minicpmv", "minicpm5", THINK),
    "minimax_m2": Family("minimax_m2", "minimax_m2", (*THINK, "<minimax:tool_call>", "</minimax:tool_call>")),
    "minimax_m3": Family("minimax_m3", "minimax_m3", ("<mm:think>", "</mm:think>", "]<]minimax[>[")),
    "mistral": Family("mistral", "mistral", _MISTRAL),
    "mistral_v7": Family("mistral", "mistral", ("[TOOL_CALLS]", "[THINK]", "[/THINK]")),
    "muse_glimmer": Family("muse_glimmer", "muse_glimmer", ("<|start|>", "<|message|>", "<|eom|>", "<|eot|>")),
    "olmo3": Family("olmo3", "olmo3"),
    "phi4_mini_json": Family(None, "phi4_mini_json"),
    "plamo3": Family("plamo3", "plamo3", ("<|plamo:begin_", "<|plamo:end_", ":plamo|>")),
    "poolside_v1": Family(
        "poolside_v1", "poolside_v1", (*THINK, *CALL, "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>", "<assistant>")
    ),
    "pythonic": Family(None, "pythonic"),
    "qwen3_coder": Family("qwen3", "qwen3_coder", (*THINK, *CALL)),
    "seed_oss": Family("seed_oss", "seed_oss", ("<seed:think>", "</seed:think>", "<seed:tool_call>", "</seed:tool_call>")),
    "step3": Family("step3", "step3", _STEP3),
    "xlam": Family(None, "xlam"),
}

# Format of the recordings -> family.
RECORDED = {
    "hermes": "hermes",
    "xml": "qwen3_coder",
    "r1": "deepseek_r1",
    "glm": "glm45",
    "kimi": "kimi_k2",
    "deepseek_v31": "deepseek_v31",
    "deepseek_v4": "deepseek_v4",
    "minimax": "minimax_m2",
    "seed": "seed_oss",
    "llama3": "llama3_json",
    "mistral": "mistral",
    "gemma4": "gemma4",
    "pythonic": "pythonic",
}

# Vectors of families that are not compared, and why.
NOT_COMPARED = {
    "openai": "vLLM reads harmony with a vocabulary file of its own that has to be downloaded",
    "muse": "vLLM has it since 0.33, of which there is no build for processors",
    "solar_open2": "vLLM does not have it",
    "exaone_deep": "vLLM does not have it",
    "nemotron_json": "vLLM has it only as a plug-in of NVIDIA's",
    "cohere_command": "vLLM hands it to a compiled parser of another package",
}
