"""The ways in which the real servers are started: data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Program = Literal["vLLM", "llama.cpp", "transformers serve", "LiteLLM"]

_CALLS = ("--enable-auto-tool-choice", "--tool-call-parser")
_QWEN3 = ("--reasoning-parser", "qwen3")
_HERMES = (*_QWEN3, *_CALLS, "hermes")
_NO_FORCED_TOOL = {"forced tool": "vLLM refuses a forced tool without `--tool-call-parser`"}
_NO_COUNTING = {"input tokens": "the server has no endpoint that counts tokens"}
_WITH_TOOLS = ("call", "parallel", "reasoning sent back", "forced tool", "arguments first", "input tokens")


@dataclass(frozen=True)
class Setting:
    """A server, how it is started, and what it cannot do.

    `flags` are those that matter to the reader of the table. `markup`: how the model writes its calls and thoughts (hermes,
    xml, r1). `questions`: the model also thinks and calls for the ordinary questions of a probe; otherwise it greets. `cannot`:
    name of a check -> why no gateway could pass it. `left_out`: name of a check -> why it is not even tried. `codex`: whether
    to run the Codex CLI as well."""

    name: str
    program: Program
    flags: tuple[str, ...] = ()
    markup: str = "hermes"
    questions: bool = True
    cannot: Mapping[str, str] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)
    codex: bool = False

    @property
    def engine(self) -> tuple[object, ...]:
        """What the server with the model is started by: settings for which it is the same share one."""
        program = "vLLM" if self.program == "LiteLLM" else self.program
        return (program, self.flags, self.markup, self.questions)

    @property
    def takes_answers_for_thoughts(self) -> bool:
        """Whether the server's own parser calls an answer without any marker reasoning."""
        return "qwen3" in self.flags

    @property
    def exact(self) -> bool:
        """Whether long scripts come word for word: llama.cpp ignores the model's sliding window."""
        return self.program != "llama.cpp"


SETTINGS = (
    Setting("vllm-raw-silent", "vLLM", questions=False, cannot=_NO_FORCED_TOOL, codex=True),
    Setting("vllm-raw", "vLLM", cannot=_NO_FORCED_TOOL),
    Setting("vllm-raw-r1", "vLLM", markup="r1", cannot=_NO_FORCED_TOOL),
    Setting("vllm-token-ids", "vLLM", ("--return-tokens-as-token-ids",), cannot=_NO_FORCED_TOOL),
    Setting("vllm-hermes-silent", "vLLM", _HERMES, questions=False),
    Setting("vllm-hermes", "vLLM", _HERMES, codex=True),
    Setting("vllm-interval", "vLLM", (*_HERMES, "--stream-interval", "7")),
    Setting("vllm-xml", "vLLM", (*_QWEN3, *_CALLS, "qwen3_coder"), markup="xml"),
    Setting("vllm-r1", "vLLM", ("--reasoning-parser", "deepseek_r1", *_CALLS, "hermes"), markup="r1"),
    Setting("vllm-reasoning-only", "vLLM", _QWEN3, cannot=_NO_FORCED_TOOL),
    Setting("vllm-tools-only", "vLLM", (*_CALLS, "hermes")),
    Setting("vllm-wrong-parser", "vLLM", _HERMES, markup="xml"),
    Setting("llamacpp-silent", "llama.cpp", questions=False),
    Setting("llamacpp", "llama.cpp"),
    Setting("llamacpp-raw", "llama.cpp", ("--raw",)),
    Setting(
        "llamacpp-no-jinja",
        "llama.cpp",
        ("--no-jinja",),
        cannot=dict.fromkeys(_WITH_TOOLS, "the server takes tools only with `--jinja`"),
    ),
    Setting(
        "transformers",
        "transformers serve",
        cannot={
            "reasoning sent back": "the server drops earlier reasoning, whatever the field",
            "logprobs": "the server sends none",
            "forced tool": "the server ignores `tool_choice`",
            **_NO_COUNTING,
        },
        left_out={
            "cancel": "the server has no metrics that show it",
            "overflow": "the server limits no prompt; a long one exhausts the memory",
        },
    ),
    Setting("litellm-raw", "LiteLLM", cannot={**_NO_FORCED_TOOL, **_NO_COUNTING}),
    Setting("litellm-hermes", "LiteLLM", _HERMES, cannot=_NO_COUNTING),
)
