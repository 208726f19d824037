"""The ways in which the real servers are started: data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Program = Literal["vLLM", "llama.cpp", "llama-cpp-python", "mlx_lm.server", "transformers serve", "LiteLLM"]

_CALLS = ("--enable-auto-tool-choice", "--tool-call-parser")
_QWEN3 = ("--reasoning-parser", "qwen3")
_HERMES = (*_QWEN3, *_CALLS, "hermes")
_NO_FORCED_TOOL = {"forced tool": "vLLM refuses a forced tool without `--tool-call-parser`"}
_NO_COUNTING = {"input tokens": "the server has no endpoint that counts tokens"}
_NO_METRICS = {"cancel": "the server has no metrics that show it"}
_NO_PROMPT_LIMIT = {"overflow": "the server limits no prompt; a long one exhausts the memory"}
_NOT_ON_MLX = {
    "logprobs": "the server sends none in a stream",
    "forced tool": "the server ignores `tool_choice`",
    **_NO_COUNTING,
}
_WITH_TOOLS = ("call", "parallel", "reasoning sent back", "forced tool", "arguments first", "input tokens", "Messages API")


@dataclass(frozen=True)
class Setting:
    """A server, how it is started, and what it cannot do.

    `flags` are those that matter to the reader of the table. `markup`: how the model writes its calls and thoughts (hermes,
    xml, r1). `tokenizer`: more of its tokenizer_config.json. `questions`: the model also thinks and calls for the ordinary
    questions of a probe; otherwise it greets. `drops_thoughts`: its template leaves out the thoughts before the user's last
    message, and nothing else. `cannot`: name of a check -> why no gateway could pass it. `left_out`: name of a check -> why
    it is not even tried. `codex`: whether to run the Codex CLI as well."""

    name: str
    program: Program
    flags: tuple[str, ...] = ()
    markup: str = "hermes"
    tokenizer: Mapping[str, str] = field(default_factory=dict)
    questions: bool = True
    drops_thoughts: bool = False
    cannot: Mapping[str, str] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)
    codex: bool = False

    @property
    def engine(self) -> tuple[object, ...]:
        """What the server with the model is started by: settings for which it is the same share one."""
        program = "vLLM" if self.program == "LiteLLM" else self.program
        return (program, self.flags, self.markup, *self.tokenizer.items(), self.questions, self.drops_thoughts)

    @property
    def takes_answers_for_thoughts(self) -> bool:
        """Whether the server's own parser calls an answer without any marker reasoning."""
        return "qwen3" in self.flags

    @property
    def exact(self) -> bool:
        """Whether long scripts come word for word: some servers ignore the model's sliding window."""
        return self.program not in ("llama.cpp", "llama-cpp-python", "mlx_lm.server")

    @property
    def exact_calls(self) -> bool:
        """Whether a second call comes word for word, too: llama.cpp has grammars that keep the model to the declared tools."""
        return self.exact or self.program == "llama.cpp"


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
        "llamacpp-python",
        "llama-cpp-python",
        cannot={
            **dict.fromkeys(("reasoning sent back", "cut", "usage"), "the server counts no tokens in a stream"),
            "JSON schema": "the server enforces no JSON schema",
            "forced tool": "a call cannot be forced if the gateway does the parsing",
            "overflow": "if a prompt is too long, the server ends the stream without an error",
            **_NO_COUNTING,
        },
        left_out=_NO_METRICS,
    ),
    Setting("mlx", "mlx_lm.server", cannot=_NOT_ON_MLX, left_out={**_NO_METRICS, **_NO_PROMPT_LIMIT}),
    Setting(
        "mlx-tools",
        "mlx_lm.server",
        tokenizer={"tool_parser_type": "json_tools"},
        cannot=_NOT_ON_MLX,
        left_out={**_NO_METRICS, **_NO_PROMPT_LIMIT},
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
        left_out={**_NO_METRICS, **_NO_PROMPT_LIMIT},
    ),
    Setting("litellm-raw", "LiteLLM", cannot={**_NO_FORCED_TOOL, **_NO_COUNTING}),
    Setting("litellm-hermes", "LiteLLM", _HERMES, cannot=_NO_COUNTING),
)
