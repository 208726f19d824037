"""What the operator decides about the translation: the backend's tastes, and how strict to be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Policy:
    """Knobs of the translation. The defaults suit a vLLM server with an ordinary chat template.

    `system_messages`: instructions and the system/developer messages that lead the input become one system message
    ("merge"; many templates refuse a second one), or one each ("keep").
    `late_developer`: a system/developer message after the conversation has begun becomes a "user" message with a marker
    around it (every template takes it), stays in place as "system", or joins the leading system message ("merge"; this
    changes the beginning of the prompt, so the backend's prefix cache misses).
    `user_messages`: user messages in a row stay apart ("keep") or become one ("merge", for templates that insist on
    alternating roles).
    `reasoning_field`: the field of an assistant message that carries reasoning items back.
    `reasoning_effort`: "map" sends the efforts that servers know and turns off thinking for "none"; "pass" sends any
    word as it came; "drop" sends none.
    `max_tokens_field`: the name under which `max_output_tokens` is sent.
    `raw_tools`: the backend has no parser for calls; tools are shown to the model (`tool_choice` "none"), and the gateway
    finds the calls in its text. `special_tokens`: it needs the model's special tokens in the text for that.
    `custom_tool_grammar`: what becomes of the grammar of a custom tool. "describe" puts it into the tool's description,
    "auto" also makes it the pattern of the function's argument where all backends would read it alike, "json" and "text"
    wherever that is possible for a backend that reads patterns so (see `patterns.py`), "off" drops it.
    `compaction_trigger_prompt`: the user message that stands for a `compaction_trigger` item, which is refused if None.
    `compacts_context`: a context that exceeds the `compact_threshold` of `context_management` is compacted first.
    `seals_reasoning`: reasoning is given out in sealed form where the request asks for `reasoning.encrypted_content`.
    `stores_responses`: whether responses are kept; decides what `store` means here and what is echoed.
    `forward`: names of parameters that the backend understands as they are (see `request/parameters/`), sent on instead of
    ignored.
    `forward_unknown`: parameters that are in no table are sent on instead of ignored.
    `url_inputs`: which URLs of images and files are sent on: all ("pass"), those that do not lead to a private address as far
    as one can see ("public"), or none but `data:` ("refuse").
    `max_input_items`, `max_tools`: most items (with the history) and tools of a request.
    `strict`: what would be ignored and could matter to the answer is refused with a 400 that names it.
    """

    system_messages: Literal["merge", "keep"] = "merge"
    late_developer: Literal["user", "system", "merge"] = "user"
    user_messages: Literal["keep", "merge"] = "keep"
    reasoning_field: Literal["reasoning", "reasoning_content", "both", "none"] = "reasoning"
    reasoning_effort: Literal["pass", "map", "drop"] = "map"
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_completion_tokens"
    raw_tools: bool = False
    special_tokens: bool = False
    custom_tool_grammar: Literal["auto", "json", "text", "describe", "off"] = "auto"
    compaction_trigger_prompt: str | None = None
    compacts_context: bool = False
    seals_reasoning: bool = False
    stores_responses: bool = False
    forward: frozenset[str] = frozenset()
    forward_unknown: bool = False
    url_inputs: Literal["pass", "public", "refuse"] = "pass"
    max_input_items: int = 10_000
    max_tools: int = 1_000
    strict: bool = False
