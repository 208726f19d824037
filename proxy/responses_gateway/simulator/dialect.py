"""Dialects: how a server words its streams (names of fields, shape of a chunk, usage, chunking).

`vllm` follows recordings of vLLM 0.32; the others are close enough to the real servers to test the tolerance of a gateway."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal

from responses_gateway.simulator.chat_request import HISTORY
from responses_gateway.simulator.generation import Notation, Part

Server = Literal["vllm", "sglang", "llamacpp", "ollama", "openai", "transformers"]
ReasoningField = Literal["reasoning", "reasoning_content", "none"]
# `request`: as `stream_options` says; the others ignore it
UsageMode = Literal["request", "last", "every", "none"]


@dataclass(frozen=True)
class Shape:
    """The constant parts of the chunks of one kind of server. Texts named `*_extra` are JSON members with a leading comma."""

    server: Server
    owner: str
    id_prefix: str = "chatcmpl-"
    call_id_prefix: str = "call_"
    role_delta: str = '{"role":"assistant","content":""}'
    final_delta: str = "{}"
    # members that every delta has in addition
    every_delta: dict[str, Any] = field(default_factory=dict, hash=False)
    first_extra: str = ""
    chunk_extra: str = ""
    choice_extra: str = ""
    final_choice_extra: str = ""
    usage_extra: str = ""
    has_logprobs: bool = True  # whether choices have a `logprobs` key at all
    # `arguments` in the first delta of a call: not there, `""`, or the whole of them
    first_arguments: Literal["absent", "empty", "whole"] = "empty"
    repeats_call_keys: bool = False  # later deltas of a call repeat all keys, with null where there is no value
    null_content: bool = False  # deltas of calls have `content: null`


VLLM = Shape(
    server="vllm",
    owner="vllm",
    call_id_prefix="chatcmpl-tool-",
    first_extra=',"prompt_token_ids":null,"prompt_text":null',
    final_choice_extra=',"stop_reason":null',
    usage_extra=',"system_fingerprint":"vllm-0.32.0-simulator"',
    first_arguments="absent",
    null_content=True,
)
SGLANG = Shape(
    server="sglang",
    owner="sglang",
    id_prefix="",
    every_delta={"role": None, "content": None, "reasoning_content": None, "tool_calls": None},
    role_delta='{"role":"assistant","content":"","reasoning_content":null,"tool_calls":null}',
    final_delta='{"role":null,"content":null,"reasoning_content":null,"tool_calls":null}',
    chunk_extra=',"usage":null',
    choice_extra=',"matched_stop":null',
    final_choice_extra=',"matched_stop":151645',
    repeats_call_keys=True,
)
LLAMACPP = Shape(
    server="llamacpp",
    owner="llamacpp",
    call_id_prefix="",
    role_delta='{"role":"assistant","content":null}',
    chunk_extra=',"system_fingerprint":"b6900-simulator"',
    usage_extra=',"system_fingerprint":"b6900-simulator","timings":{"prompt_n":1,"predicted_n":1}',
    has_logprobs=False,
)
OLLAMA = Shape(
    server="ollama",
    owner="library",
    every_delta={"role": "assistant", "content": ""},
    final_delta='{"role":"assistant","content":""}',
    chunk_extra=',"system_fingerprint":"fp_ollama"',
    usage_extra=',"system_fingerprint":"fp_ollama"',
    has_logprobs=False,
    first_arguments="whole",
)
TRANSFORMERS = Shape(
    server="transformers", owner="", role_delta='{"role":"assistant"}', has_logprobs=False, first_arguments="whole"
)
OPENAI = Shape(
    server="openai",
    owner="openai",
    role_delta='{"role":"assistant","content":"","refusal":null}',
    chunk_extra=',"service_tier":"default","system_fingerprint":"fp_simulator","usage":null',
    usage_extra=',"service_tier":"default","system_fingerprint":"fp_simulator"',
)


@dataclass(frozen=True)
class Dialect:
    """A way of serving. `markup`: None for parsed output, else the notation of calls in plain content. `notation`: that of
    calls which are parsed."""

    shape: Shape = VLLM
    reasoning: ReasoningField = "reasoning"
    history: tuple[str, ...] = HISTORY  # the fields of a message whose reasoning gets into the prompt
    markup: Notation | None = None
    notation: Notation = "hermes"
    # parts for which the server has no parser: their markup stays in the content
    unparsed: frozenset[Part] = frozenset()
    # the tool parser does not fit the model: what it does not understand is left out of streams
    swallows_calls: bool = False
    ignores_named_tool: bool = False  # a `tool_choice` that is no string is ignored
    refuses_unknown_fields: bool = False  # fields that are not OpenAI's are refused
    opens_thought: bool = False  # the prompt ends with `<think>`, which is then not part of the answer
    separators: bool = True  # white space between parts gets into the parsed fields
    tokens_per_delta: int = 1
    usage: UsageMode = "request"
    interleave: bool = False  # the tokens of adjacent calls alternate
    function_call: bool = False  # the call comes in the old `function_call` field

    @property
    def parses_calls(self) -> bool:
        """The server has a parser for calls, so that it takes tools."""
        return self.markup is None and "calls" not in self.unparsed


_PLAIN = Dialect(separators=False)

DIALECTS: dict[str, Dialect] = {
    "vllm": Dialect(),
    "vllm-raw": Dialect(markup="hermes"),
    "vllm-raw-xml": Dialect(markup="xml"),
    "vllm-reasoning-only": Dialect(unparsed=frozenset({"calls"})),
    "vllm-tools-only": Dialect(unparsed=frozenset({"reasoning"})),
    "vllm-wrong-tool-parser": Dialect(notation="xml", swallows_calls=True),
    "vllm-raw-opened": Dialect(markup="hermes", opens_thought=True),
    "vllm-interval": Dialect(tokens_per_delta=7),
    "vllm-interleaved": Dialect(interleave=True),
    "vllm-usage-every": Dialect(usage="every"),
    "vllm-usage-none": Dialect(usage="none"),
    "sglang": replace(_PLAIN, shape=SGLANG, reasoning="reasoning_content"),
    "sglang-raw": replace(_PLAIN, shape=SGLANG, markup="hermes"),
    "sglang-raw-opened": replace(_PLAIN, shape=SGLANG, markup="hermes", opens_thought=True),
    "llamacpp": replace(_PLAIN, shape=LLAMACPP, reasoning="reasoning_content", ignores_named_tool=True),
    "transformers": replace(_PLAIN, shape=TRANSFORMERS, reasoning="reasoning_content", refuses_unknown_fields=True),
    "ollama": replace(_PLAIN, shape=OLLAMA),
    "openai": replace(_PLAIN, shape=OPENAI, reasoning="none"),
    "deepseek": replace(_PLAIN, shape=OPENAI, reasoning="reasoning_content"),
    # LiteLLM in front of a vLLM
    "litellm": replace(_PLAIN, shape=OPENAI, reasoning="reasoning_content", history=("reasoning",)),
    "legacy": replace(_PLAIN, shape=OPENAI, reasoning="none", function_call=True),
}
