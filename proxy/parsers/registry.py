"""The names of formats: those of vLLM's `--reasoning-parser` and `--tool-call-parser`."""

from __future__ import annotations

from proxy.parsers.families import (
    cohere_command,
    deepseek_v3,
    deepseek_v32,
    ernie45,
    gemma4,
    glm45,
    granite,
    hermes,
    hunyuan_a13b,
    json_calls,
    kimi_k2,
    kimi_k3,
    llama3_json,
    mimo,
    minicpm5,
    minimax_m2,
    minimax_m3,
    mistral,
    nemotron_v3,
    openai,
    pythonic,
    qwen3_coder,
    seed_oss,
    step3,
)
from proxy.parsers.format import Block, Call, Format, Reasoning, Tools

REASONING: dict[str, Reasoning] = {
    "apertus": json_calls.APERTUS_REASONING,
    "cohere_command3": cohere_command.REASONING,
    "cohere_command4": cohere_command.REASONING,
    "deepseek_r1": deepseek_v3.R1_REASONING,
    "deepseek_v3": deepseek_v3.REASONING,
    "deepseek_v4": deepseek_v32.V4_REASONING,
    "deepseek_v41": deepseek_v32.V4_REASONING,
    "ernie45": ernie45.REASONING,
    "gemma4": gemma4.REASONING,
    "glm45": glm45.REASONING,
    "glm47": glm45.REASONING,
    "granite": granite.REASONING,
    "granite_thinking_parser": nemotron_v3.REASONING,
    "holo2": hermes.REASONING,
    "hunyuan_a13b": hunyuan_a13b.REASONING,
    "kimi_k2": kimi_k2.REASONING,
    "kimi_k3": kimi_k3.REASONING,
    "ling3": glm45.REASONING,
    "longcat": json_calls.LONGCAT_REASONING,
    "mimo": mimo.REASONING,
    "minicpmv": minicpm5.REASONING,
    "minimax_m2": minimax_m2.REASONING,
    "minimax_m2_append_think": Reasoning(),  # its reasoning stays in the answer, as it does in vLLM
    "minimax_m3": minimax_m3.REASONING,
    "mistral": mistral.REASONING,
    "nemotron_v3": nemotron_v3.REASONING,
    "olmo3": pythonic.OLMO3_REASONING,
    "openai_gptoss": openai.REASONING,
    "qwen3": hermes.REASONING,
    "seed_oss": seed_oss.REASONING,
    "step3": step3.REASONING,
    "step3p5": hermes.REASONING,
}

TOOLS: dict[str, Tools] = {
    "apertus": json_calls.APERTUS_TOOLS,
    "cohere_command3": cohere_command.TOOLS,
    "cohere_command4": cohere_command.TOOLS,
    "deepseek_v3": deepseek_v3.TOOLS,
    "deepseek_v31": deepseek_v3.TOOLS,
    "deepseek_v32": deepseek_v32.V32_TOOLS,
    "deepseek_v4": deepseek_v32.V4_TOOLS,
    "deepseek_v41": deepseek_v32.V41_TOOLS,
    "dots": minimax_m2.DOTS_TOOLS,
    "ernie45": ernie45.TOOLS,
    "functiongemma": gemma4.FUNCTIONGEMMA_TOOLS,
    "gemma4": gemma4.TOOLS,
    "gigachat3": json_calls.GIGACHAT3_TOOLS,
    "glm45": glm45.TOOLS,
    "glm47": glm45.TOOLS,
    "granite": granite.TOOLS,
    "granite-20b-fc": granite.FUNCTION_CALLING_TOOLS,
    "granite4": hermes.TOOLS,
    "hermes": hermes.TOOLS,
    "hunyuan_a13b": hunyuan_a13b.TOOLS,
    "internlm": json_calls.INTERNLM_TOOLS,
    "jamba": hunyuan_a13b.TOOLS,
    "kimi_k2": kimi_k2.TOOLS,
    "kimi_k3": kimi_k3.TOOLS,
    "lfm2": pythonic.LFM2_TOOLS,
    "ling3": glm45.TOOLS,
    "llama3_json": llama3_json.TOOLS,
    "llama4_json": llama3_json.TOOLS,
    "llama4_pythonic": pythonic.LLAMA4_TOOLS,
    "longcat": json_calls.LONGCAT_TOOLS,
    "mimo": mimo.TOOLS,
    "minicpm5": minicpm5.TOOLS,
    "minimax_m2": minimax_m2.TOOLS,
    "minimax_m3": minimax_m3.TOOLS,
    "mistral": mistral.TOOLS,
    "muse_glimmer": minimax_m2.MUSE_GLIMMER_TOOLS,
    "olmo3": pythonic.OLMO3_TOOLS,
    "openai": openai.TOOLS,
    "phi4_mini_json": json_calls.PHI4_MINI_TOOLS,
    "pythonic": pythonic.TOOLS,
    "qwen3_coder": qwen3_coder.TOOLS,
    "qwen3_json": hermes.TOOLS,
    "qwen3_xml": qwen3_coder.TOOLS,
    "seed_oss": seed_oss.TOOLS,
    "step3": step3.TOOLS,
    "step3p5": qwen3_coder.TOOLS,
    "xlam": json_calls.XLAM_TOOLS,
}

NONE = ("none", "")
AUTO = "auto"


def format_of(reasoning: str | None, tools: str | None) -> Format:
    """The format of two parser names; "none" or None for no parser, "auto" for the family of the first markers seen.

    Raises `ValueError` for an unknown name.
    """
    return Format(_reasoning(reasoning), _tools(tools))


def _reasoning(name: str | None) -> Reasoning | None:
    if name is None or name in NONE:
        return None
    if name == AUTO:
        return _any_reasoning()
    if name not in REASONING:
        raise ValueError(f"unknown reasoning parser {name!r}; known: {', '.join(sorted(REASONING))}")
    return REASONING[name]


def _tools(name: str | None) -> Tools | None:
    if name is None or name in NONE:
        return None
    if name == AUTO:
        return _any_tools()
    if name not in TOOLS:
        raise ValueError(f"unknown tool parser {name!r}; known: {', '.join(sorted(TOOLS))}")
    return TOOLS[name]


def _any_reasoning() -> Reasoning:
    """Every family's markers at once. Prose markers (`at_start`) and answer wrappings need their family's name."""
    parts = [part for part in dict.fromkeys(REASONING.values()) if not part.at_start]
    return Reasoning(
        opens=tuple(dict.fromkeys(marker for part in parts for marker in part.opens)),
        closes=tuple(dict.fromkeys(marker for part in parts for marker in part.closes)),
        channels=openai.CHANNELS,
    )


def _any_tools() -> Tools:
    """Every family's calls at once. Families that share an opening are told apart by the character that follows it."""
    first = (qwen3_coder.TOOLS, hermes.TOOLS)  # MiMo and others vary these; the original is the better guess
    parts = dict.fromkeys((*first, *TOOLS.values()))
    calls: dict[tuple[str, str], Call] = {}
    blocks: dict[tuple[str, str], Block] = {}
    for part in parts:
        for call in part.calls:
            calls.setdefault((call.opens[0], call.first), call)
        for block in part.blocks:
            blocks.setdefault((block.opens[0], block.first), block)
    return Tools(
        calls=tuple(calls.values()),
        blocks=tuple(blocks.values()),
        bare=(*llama3_json.TOOLS.bare, *pythonic.TOOLS.bare),
        channels=openai.CHANNELS,
    )
