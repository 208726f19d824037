"""The markup of every family, written the other way round: items in, the text that a model of the family would write."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

# An item: ("reasoning", text), ("text", text) or ("call", name, arguments).
Item = tuple[Any, ...]
Arguments = dict[str, Any]


@dataclass(frozen=True)
class Family:
    """`opened`: the prompt ends inside reasoning. `mixed`: text and reasoning may follow calls."""

    reasoning: str | None
    tools: str
    think: Callable[[str], str] | None
    calls: Callable[[list[tuple[str, Arguments]]], str]
    opened: bool = False
    mixed: bool = True
    answer: Callable[[str], str] = str


def render(family: Family, items: list[Item]) -> str:
    """Write the text of a turn. Neighbouring calls share a block."""
    parts: list[str] = []
    calls: list[tuple[str, Arguments]] = []
    for position, item in enumerate(items):
        if item[0] != "call" and calls:
            parts.append(family.calls(calls))
            calls = []
        if item[0] == "call":
            calls.append((item[1], item[2]))
        elif item[0] == "text":
            parts.append(family.answer(item[1]))
        else:
            assert family.think is not None
            block = family.think(item[1])
            if position == 0 and family.opened:
                block = block[block.index(item[1]) :] if item[1] else block.split(">", 1)[1]
            parts.append(block)
    if calls:
        parts.append(family.calls(calls))
    return "".join(parts)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else _json(value)


def _each(one: Callable[[str, Arguments], str], before: str = "", between: str = "", after: str = "") -> Any:
    return lambda calls: before + between.join(one(name, arguments) for name, arguments in calls) + after


def _tags(opening: str, closing: str) -> Callable[[str], str]:
    return lambda text: f"{opening}{text}{closing}"


def _envelope(name: str, arguments: Arguments) -> str:
    return _json({"name": name, "arguments": arguments})


def _functions(block: str, newline: str = "\n") -> Any:
    def one(name: str, arguments: Arguments) -> str:
        values = "".join(
            f"<parameter={key}>{newline}{_plain(value)}{newline}</parameter>\n" for key, value in arguments.items()
        )
        return f"<{block}>\n<function={name}>\n{values}</function>\n</{block}>"

    return _each(one, between="\n")


def _deepseek_v3(name: str, arguments: Arguments) -> str:
    return f"<｜tool▁call▁begin｜>function<｜tool▁sep｜>{name}\n```json\n{_json(arguments)}\n```<｜tool▁call▁end｜>"


def _deepseek_v31(name: str, arguments: Arguments) -> str:
    return f"<｜tool▁call▁begin｜>{name}<｜tool▁sep｜>{_json(arguments)}<｜tool▁call▁end｜>"


def _dsml(block: str, gap: str = "") -> Any:
    def one(name: str, arguments: Arguments) -> str:
        values = "".join(
            f'<｜DSML｜{gap}parameter name="{key}" string="{str(isinstance(value, str)).lower()}">{_plain(value)}'
            f"</｜DSML｜{gap}parameter>\n"
            for key, value in arguments.items()
        )
        return f'<｜DSML｜{gap}invoke name="{name}">\n{values}</｜DSML｜{gap}invoke>\n'

    return _each(one, before=f"<｜DSML｜{gap}{block}>\n", after=f"</｜DSML｜{gap}{block}>")


def _glm(name: str, arguments: Arguments) -> str:
    values = "".join(f"<arg_key>{key}</arg_key>\n<arg_value>{_plain(value)}</arg_value>\n" for key, value in arguments.items())
    return f"<tool_call>{name}\n{values}</tool_call>"


def _solar_open2(name: str, arguments: Arguments) -> str:
    values = "".join(
        f"<|tool_arg:start|>{key}<|tool_arg:value|>{_plain(value)}<|tool_arg:end|>\n" for key, value in arguments.items()
    )
    return f"<|tool_call:start|>{name}\n{values}<|tool_call:end|>"


def _hunyuan(suffix: str, separator: str, newline: str) -> Any:
    def one(name: str, arguments: Arguments) -> str:
        values = "".join(
            f"<arg_key{suffix}>{key}</arg_key{suffix}>{newline}<arg_value{suffix}>{_plain(value)}</arg_value{suffix}>{newline}"
            for key, value in arguments.items()
        )
        return f"<tool_call{suffix}>{name}{separator}{newline}{values}</tool_call{suffix}>{newline}"

    return _each(one, before=f"<tool_calls{suffix}>{newline}", after=f"</tool_calls{suffix}>")


def _k2_horizon(name: str, arguments: Arguments) -> str:
    values = "".join(
        f"<ifm|arg_key>{key}</ifm|arg_key>\n<ifm|arg_value>{_plain(value)}</ifm|arg_value>\n"
        for key, value in arguments.items()
    )
    return f"<ifm|tool_call>{name}\n{values}</ifm|tool_call>\n"


def _plamo(tag: str, content: str) -> str:
    return f"<|plamo:begin_{tag}:plamo|>{content}<|plamo:end_{tag}:plamo|>"


def _plamo3(name: str, arguments: Arguments) -> str:
    body = _plamo("tool_arguments", "<|plamo:constrain|>json<|plamo:msg|>" + _json(arguments))
    return _plamo("tool_request", _plamo("tool_name", name) + body)


def _inkling(name: str, arguments: Arguments) -> str:
    call = _json({"name": name, "args": arguments})
    return f"<|message_model|>{name}<|content_invoke_tool_json|>{call}<|end_message|>"


def _muse(name: str, arguments: Arguments) -> str:
    body = _invoke("atem:function_calls", prefix="atem:")([(f"{name}.{name}", arguments)])
    return f"<|start|>assistant to={name}.{name}<|message|>{body}<|eom|>"


def _kimi_k2(name: str, arguments: Arguments) -> str:
    return f"<|tool_call_begin|>functions.{name}:0<|tool_call_argument_begin|>{_json(arguments)}<|tool_call_end|>"


def _kind(value: Any) -> str:
    return "string" if isinstance(value, str) else "object"


def _kimi_k3(name: str, arguments: Arguments) -> str:
    values = "".join(
        f'<|open|>argument key="{key}" type="{_kind(value)}"<|sep|>{_plain(value)}<|close|>argument<|sep|>'
        for key, value in arguments.items()
    )
    return f'<|open|>call tool="{name}" index="1"<|sep|>{values}<|close|>call<|sep|>'


def _invoke(block: str, prefix: str = "") -> Any:
    def one(name: str, arguments: Arguments) -> str:
        values = "".join(
            f'<{prefix}parameter name="{key}">{_plain(value)}</{prefix}parameter>\n' for key, value in arguments.items()
        )
        return f'<{prefix}invoke name="{name}">\n{values}</{prefix}invoke>\n'

    return _each(one, before=f"<{block}>\n", after=f"</{block}>")


_MARK = "]<]minimax[>["


def _element(key: str, value: Any) -> str:
    if isinstance(value, dict) and value:
        inner = "".join(_element(name, item) for name, item in value.items())
    elif isinstance(value, list) and value:
        inner = "".join(_element("item", item) for item in value)
    else:
        inner = _plain(value)
    return f"{_MARK}<{key}>{inner}{_MARK}</{key}>"


def _minimax_m3(name: str, arguments: Arguments) -> str:
    values = "".join(_element(key, value) for key, value in arguments.items())
    return f'{_MARK}<invoke name="{name}">{values}{_MARK}</invoke>'


def _harmony(name: str, arguments: Arguments) -> str:
    return f"<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>{_json(arguments)}<|call|>"


def _python(name: str, arguments: Arguments) -> str:
    return f"{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})"


def _literal(value: Any, quote: str) -> str:
    if isinstance(value, str):
        return f"{quote}{value}{quote}"
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{_literal(item, quote)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(_literal(item, quote) for item in value) + "]"
    return _json(value)


def _gemma(name: str, arguments: Arguments) -> str:
    values = _literal(arguments, '<|"|>')
    return f"<|tool_call>call:{name}{values}<tool_call|>"


def _functiongemma(name: str, arguments: Arguments) -> str:
    return f"<start_function_call>call:{name}{_literal(arguments, '<escape>')}<end_function_call>"


def _step3(name: str, arguments: Arguments) -> str:
    values = "".join(f'<steptml:parameter name="{key}">{_plain(value)}</steptml:parameter>' for key, value in arguments.items())
    invoke = f'<steptml:invoke name="{name}">{values}</steptml:invoke>'
    return f"<｜tool_call_begin｜>function<｜tool_sep｜>{invoke}<｜tool_call_end｜>"


def _minicpm(name: str, arguments: Arguments) -> str:
    values = "".join(f'<param name="{key}">{_plain(value)}</param>' for key, value in arguments.items())
    return f'<function name="{name}">{values}</function>'


def _array(before: str, after: str = "") -> Any:
    return _each(_envelope, before=before + "[", between=", ", after="]" + after)


_THINK = _tags("<think>\n", "\n</think>\n\n")
_TIGHT = _tags("<think>", "</think>")
_HERMES = _each(lambda name, arguments: f"<tool_call>\n{_envelope(name, arguments)}\n</tool_call>", between="\n")

FAMILIES: dict[str, Family] = {
    "hermes": Family("qwen3", "hermes", _THINK, _HERMES),
    "qwen3_coder": Family("qwen3", "qwen3_coder", _THINK, _functions("tool_call")),
    "mimo": Family("mimo", "mimo", _TIGHT, _functions("tool_call", newline="")),
    "seed_oss": Family("seed_oss", "seed_oss", _tags("<seed:think>\n", "\n</seed:think>\n"), _functions("seed:tool_call")),
    "deepseek_r1": Family("deepseek_r1", "hermes", _THINK, _HERMES, opened=True),
    "deepseek_v3": Family(
        "deepseek_v3",
        "deepseek_v3",
        _TIGHT,
        _each(_deepseek_v3, before="<｜tool▁calls▁begin｜>", between="\n", after="<｜tool▁calls▁end｜>"),
    ),
    "deepseek_v31": Family(
        "deepseek_v3",
        "deepseek_v31",
        _TIGHT,
        _each(_deepseek_v31, before="<｜tool▁calls▁begin｜>", after="<｜tool▁calls▁end｜>"),
        opened=True,
    ),
    "deepseek_v32": Family("deepseek_v3", "deepseek_v32", _TIGHT, _dsml("function_calls")),
    "deepseek_v4": Family("deepseek_v4", "deepseek_v4", _TIGHT, _dsml("tool_calls"), opened=True),
    "deepseek_v41": Family("deepseek_v41", "deepseek_v41", _TIGHT, _dsml("calls", gap=" ")),
    "glm45": Family("glm45", "glm45", _tags("<think>", "</think>\n"), _each(_glm, between="\n")),
    "kimi_k2": Family(
        "kimi_k2",
        "kimi_k2",
        _TIGHT,
        _each(_kimi_k2, before="<|tool_calls_section_begin|>", after="<|tool_calls_section_end|>"),
    ),
    "kimi_k3": Family(
        "kimi_k3",
        "kimi_k3",
        _tags("<|open|>think<|sep|>", "<|close|>think<|sep|>"),
        _each(_kimi_k3, before="<|open|>tools<|sep|>", after="<|close|>tools<|sep|>"),
        answer=_tags("<|open|>response<|sep|>", "<|close|>response<|sep|>"),
    ),
    "minimax_m2": Family("minimax_m2", "minimax_m2", _THINK, _invoke("minimax:tool_call"), opened=True),
    "minimax_m3": Family(
        "minimax_m3",
        "minimax_m3",
        _tags("<mm:think>", "</mm:think>"),
        _each(_minimax_m3, before=f"{_MARK}<tool_call>", after=f"{_MARK}</tool_call>"),
    ),
    "openai": Family(
        "openai_gptoss",
        "openai",
        _tags("<|channel|>analysis<|message|>", "<|end|><|start|>assistant"),
        _each(_harmony, between="<|start|>assistant"),
        answer=_tags("<|channel|>final<|message|>", "<|end|>"),
    ),
    "llama3_json": Family(
        None,
        "llama3_json",
        None,
        _each(lambda name, arguments: _json({"name": name, "parameters": arguments}), between="; "),
        mixed=False,
    ),
    "pythonic": Family(None, "pythonic", None, _each(_python, before="[", between=", ", after="]"), mixed=False),
    "llama4_pythonic": Family(
        None,
        "llama4_pythonic",
        None,
        _each(_python, before="<|python_start|>[", between=", ", after="]<|python_end|>"),
    ),
    "olmo3": Family(
        "olmo3",
        "olmo3",
        _TIGHT,
        _each(_python, before="<function_calls>\n", between="\n", after="\n</function_calls>"),
    ),
    "lfm2": Family(None, "lfm2", None, _each(_python, before="<|tool_call_start|>[", between=", ", after="]<|tool_call_end|>")),
    "mistral": Family(
        "mistral",
        "mistral",
        _tags("[THINK]", "[/THINK]"),
        _each(lambda name, arguments: f"[TOOL_CALLS]{name}[ARGS]{_json(arguments)}"),
    ),
    "mistral_v7": Family("mistral", "mistral", _tags("[THINK]", "[/THINK]"), _array("[TOOL_CALLS]")),
    "gemma4": Family("gemma4", "gemma4", _tags("<|channel>thought\n", "\n<channel|>"), _each(_gemma)),
    "functiongemma": Family(None, "functiongemma", None, _each(_functiongemma)),
    "step3": Family(
        "step3",
        "step3",
        _TIGHT,
        _each(_step3, before="<｜tool_calls_begin｜>", after="<｜tool_calls_end｜>"),
        opened=True,
    ),
    "granite": Family(
        "granite",
        "granite",
        _tags("Here is my thought process:\n", "\nHere is my response:\n"),
        _array("<|tool_call|>"),
        mixed=False,
    ),
    "granite4": Family(None, "granite4", None, _HERMES),
    "granite_20b_fc": Family(
        None,
        "granite-20b-fc",
        None,
        _each(lambda name, arguments: f"<function_call> {_envelope(name, arguments)}", between="\n"),
    ),
    "nemotron_json": Family("nemotron_v3", "nemotron_json", _THINK, _array("<TOOLCALL>", "</TOOLCALL>")),
    "hunyuan_a13b": Family(
        "hunyuan_a13b",
        "hunyuan_a13b",
        _tags("<think>\n", "\n</think>\n"),
        _array("<tool_calls>", "</tool_calls>"),
        answer=_tags("<answer>\n", "\n</answer>\n"),
    ),
    "ernie45": Family(
        "ernie45",
        "ernie45",
        _tags("<think>\n", "\n</think>\n\n"),
        _HERMES,
        opened=True,
        answer=_tags("<response>\n", "\n</response>\n"),
    ),
    "cohere_command": Family(
        "cohere_command3",
        "cohere_command3",
        _tags("<|START_THINKING|>", "<|END_THINKING|>"),
        _each(
            lambda name, arguments: _json({"tool_call_id": "0", "tool_name": name, "parameters": arguments}),
            before="<|START_ACTION|>[\n",
            between=",\n",
            after="\n]<|END_ACTION|>",
        ),
        answer=_tags("<|START_RESPONSE|>", "<|END_RESPONSE|>"),
    ),
    "phi4_mini_json": Family(None, "phi4_mini_json", None, _array("functools")),
    "longcat": Family(
        "longcat",
        "longcat",
        _tags("<longcat_think>\n", "\n</longcat_think>\n"),
        _each(lambda name, arguments: f"<longcat_tool_call>{_envelope(name, arguments)}</longcat_tool_call>\n"),
    ),
    "internlm": Family(
        None,
        "internlm",
        None,
        _each(
            lambda name, arguments: (
                "<|action_start|><|plugin|>\n" + _json({"name": name, "parameters": arguments}) + "<|action_end|>"
            ),
            between="\n",
        ),
    ),
    "jamba": Family(None, "jamba", None, _array("<tool_calls>", "</tool_calls>")),
    "apertus": Family(
        "apertus",
        "apertus",
        _tags("<|inner_prefix|>", "<|inner_suffix|>"),
        _each(
            lambda name, arguments: _json({name: arguments}),
            before="<|tools_prefix|>[",
            between=", ",
            after="]<|tools_suffix|>",
        ),
    ),
    "minicpm5": Family("minicpmv", "minicpm5", _THINK, _each(_minicpm, between="\n")),
    "muse_glimmer": Family(
        "muse_glimmer",
        "muse_glimmer",
        _tags("<|start|>assistant to=self<|message|>", "<|eom|>"),
        _each(_muse),
        answer=_tags("<|start|>assistant to=user<|message|>", "<|eom|>"),
    ),
    "muse": Family(
        "muse",
        "muse",
        _tags("<|start|>assistant<|message|>", "<|eom|>"),
        _each(_muse),
        answer=_tags("<|start|>assistant to=commentary<|message|>", "<|eom|>"),
    ),
    "hy_v3": Family(
        "hy_v3",
        "hy_v3",
        _tags("<think:opensource>", "</think:opensource>"),
        _hunyuan(":opensource", "<tool_sep:opensource>", "\n"),
    ),
    "hy_v4": Family("hy_v4", "hy_v4", _tags("<think:6124c78e>", "</think:6124c78e>"), _hunyuan(":6124c78e", "", "")),
    "inkling": Family(
        "inkling",
        "inkling",
        _tags("<|message_model|><|content_thinking|>", "<|end_message|>"),
        _each(_inkling),
        answer=_tags("<|message_model|><|content_text|>", "<|end_message|>"),
    ),
    "k2_horizon": Family(
        "k2_horizon",
        "k2_horizon",
        _tags("<ifm|think>", "</ifm|think>"),
        _each(_k2_horizon, before="<ifm|tool_calls>\n", after="</ifm|tool_calls>"),
    ),
    "plamo3": Family(
        "plamo3",
        "plamo3",
        _tags("<|plamo:begin_think:plamo|>", "<|plamo:end_think:plamo|>"),
        _each(_plamo3, before="<|plamo:begin_tool_requests:plamo|>", after="<|plamo:end_tool_requests:plamo|>"),
    ),
    "poolside_v1": Family("poolside_v1", "poolside_v1", _tags("<think>", "</think>\n"), _each(_glm, between="\n")),
    "solar_open2": Family(
        "solar_open2", "solar_open2", _tags("<|think:start|>", "<|think:end|>"), _each(_solar_open2, between="\n")
    ),
    "dots": Family(None, "dots", None, _invoke("dots_function_call")),
    "xlam": Family(None, "xlam", None, _each(_envelope, before="[", between=", ", after="]"), mixed=False),
    "gigachat3": Family(
        None,
        "gigachat3",
        None,
        _each(lambda name, arguments: f"function call<|role_sep|>\n{_envelope(name, arguments)}", between="\n"),
    ),
}
