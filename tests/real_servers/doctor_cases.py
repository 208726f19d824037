"""What the doctor must say about each server: data. An expert who knows the server would say the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.real_servers.gateway import Diagnosis

_NEEDS_SETTINGS = ("works with the settings below",)
_WITH_LOSSES = ("works, with losses",)
_USABLE = ("works", "works with the settings below", "works, with losses")


@dataclass(frozen=True)
class Case:
    """The expected diagnosis of one setting.

    `verdicts`: any of them. `says`: texts that the findings contain, above all the flag that mends it. `never`: texts that they
    do not contain. `recommends`: settings of the gateway that it must recommend. `facts`: fields of the profile."""

    verdicts: tuple[str, ...]
    says: tuple[str, ...] = ()
    never: tuple[str, ...] = ()
    recommends: tuple[tuple[str, Any], ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)


# What holds for vLLM, whatever its flags.
_VLLM: dict[str, Any] = {
    "server": "vllm",
    "models": [{"id": "tiny", "max_length": 32768}],
    "token_ids": True,
    "tokenize": "messages",
    "stops": True,
    "max_tokens_field": "max_completion_tokens",
    "error_shape": "openai",
    "overflow": "recognised",
}


CASES: dict[str, Case] = {
    "vllm-raw-silent": Case(_NEEDS_SETTINGS, says=("--enable-auto-tool-choice --tool-call-parser",), facts=_VLLM),
    "vllm-raw": Case(
        _NEEDS_SETTINGS,
        says=("--tool-call-parser hermes", "--reasoning-parser qwen3"),
        recommends=(("reasoning_parser", "qwen3"), ("tool_call_parser", "hermes")),
    ),
    "vllm-raw-r1": Case(
        _NEEDS_SETTINGS,
        says=("--tool-call-parser hermes", "--reasoning-parser"),
        recommends=(("tool_call_parser", "hermes"),),
    ),
    "vllm-token-ids": Case(
        _NEEDS_SETTINGS,
        says=("--tool-call-parser hermes", "--reasoning-parser qwen3"),
        recommends=(("reasoning_parser", "qwen3"), ("tool_call_parser", "hermes")),
    ),
    "vllm-hermes-silent": Case(_WITH_LOSSES, says=("as reasoning",), never=("--tool-call-parser hermes",)),
    "vllm-hermes": Case(_USABLE, never=("--tool-call-parser",), facts=_VLLM),
    "vllm-interval": Case(_USABLE, never=("--tool-call-parser",)),
    "vllm-xml": Case(_USABLE, never=("--tool-call-parser",)),
    "vllm-r1": Case(_USABLE, never=("--tool-call-parser", "--reasoning-parser")),
    "vllm-reasoning-only": Case(
        _NEEDS_SETTINGS,
        says=("--enable-auto-tool-choice --tool-call-parser hermes",),
        recommends=(("tool_call_parser", "hermes"),),
    ),
    "vllm-tools-only": Case(_NEEDS_SETTINGS, says=("--reasoning-parser qwen3",), recommends=(("reasoning_parser", "qwen3"),)),
    "vllm-wrong-parser": Case((*_NEEDS_SETTINGS, *_WITH_LOSSES), says=("--tool-call-parser qwen3_coder",)),
    "llamacpp-silent": Case(
        _NEEDS_SETTINGS, never=("--jinja", "--reasoning-format"), recommends=(("reasoning_field", "reasoning_content"),)
    ),
    "llamacpp": Case(
        _NEEDS_SETTINGS, never=("--jinja", "--reasoning-format"), recommends=(("reasoning_field", "reasoning_content"),)
    ),
    "llamacpp-raw": Case(
        _NEEDS_SETTINGS,
        says=("--reasoning-format auto",),
        recommends=(("reasoning_parser", "qwen3"), ("opened_thinking", "no")),
    ),
    "llamacpp-no-jinja": Case(("broken",), says=("--jinja",)),
    "llamacpp-python": Case(
        _NEEDS_SETTINGS,
        says=("JSON schema", "no usage"),
        never=("Answers break",),
        recommends=(("reasoning_parser", "qwen3"), ("tool_call_parser", "hermes"), ("max_tokens_field", "max_tokens")),
        facts={"server": "llamacpp_python", "structured_output": False},
    ),
    "mlx": Case(
        _NEEDS_SETTINGS,
        says=("--max-tokens", "tool_parser_type"),
        recommends=(("default_max_output_tokens", 32768), ("tool_call_parser", "hermes")),
        facts={"server": "mlx", "reasoning_field": "reasoning"},
    ),
    "mlx-tools": Case(
        _NEEDS_SETTINGS,
        says=("--max-tokens",),
        never=("tool_parser_type",),
        recommends=(("default_max_output_tokens", 32768), ("tool_call_parser", None)),
        facts={"server": "mlx", "calls": "parsed"},
    ),
    "transformers": Case(
        _USABLE,
        says=("after 1024 tokens", "generation_config.json"),
        never=("refuses chat requests", "See the log of the server"),
        recommends=(("default_max_output_tokens", 32768),),
        facts={"own_limit": 1024},
    ),
    "litellm-raw": Case(_NEEDS_SETTINGS, recommends=(("reasoning_parser", "qwen3"), ("tool_call_parser", "hermes"))),
    "litellm-hermes": Case(_USABLE, never=("--tool-call-parser",)),
}


def differences(case: Case, found: Diagnosis) -> list[str]:
    """Return what the doctor should have said otherwise."""
    wrong = []
    if found.verdict not in case.verdicts:
        wrong.append(f"verdict `{found.verdict}` instead of {' or '.join(f'`{verdict}`' for verdict in case.verdicts)}")
    if found.status != (1 if found.verdict == "broken" else 0):
        wrong.append(f"exit status {found.status}")
    wrong += [f"does not say `{text}`" for text in case.says if text not in found.words]
    wrong += [f"says `{text}`" for text in case.never if text in found.words]
    wrong += [
        f"recommends `{name}: {found.settings.get(name)}` instead of `{value}`"
        for name, value in case.recommends
        if found.settings.get(name) != value
    ]
    wrong += [
        f"finds `{name}: {found.profile.get(name)}` instead of `{value}`"
        for name, value in case.facts.items()
        if found.profile.get(name) != value
    ]
    return wrong
