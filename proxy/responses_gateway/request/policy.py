"""The operator's choices about the translation: what the backend needs, and how strict to be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import msgspec

from responses_gateway.wire.added_fields import AddedFields

# The form of a conversation in which turns alternate.
ALTERNATING = "alternating"

CallIds: TypeAlias = Literal["keep", "nine", "numbered"]


class Policy(msgspec.Struct, frozen=True):
    """Options of the translation. The defaults suit a vLLM server with an ordinary chat template.

    `system_messages`: whether the instructions and the leading system/developer messages become one system message
    ("merge"; many templates refuse a second one) or one each ("keep").
    `late_developer`: how to send a system/developer message that comes after the conversation has begun: as a user message
    marked with tags ("user"; every template takes it), as a system message in place ("system"), or as part of the leading
    system message ("merge"; this changes the beginning of the prompt, so the backend's prefix cache misses).
    `user_messages`: whether consecutive user messages stay separate ("keep") or become one ("merge"), or all turns are made to
    alternate ("alternate"; for templates that insist on it, see `input/alternation.py`).
    `template_forms`: the forms that a template has turned out to want (see `input/template_forms.py`).
    `reasoning_field`: the field of an assistant message that carries reasoning items back.
    `reasoning_effort`: "map" sends the efforts that servers know and turns off thinking for "none"; "pass" sends any
    value unchanged; "drop" sends none.
    `max_tokens_field`: the name under which `max_output_tokens` is sent.
    `default_max_output_tokens`: the limit that is sent for a request without `max_output_tokens`.
    `call_ids`: the ids of calls in the history: as they came ("keep"), or as templates want them that read ids: those of
    Mistral nine letters or digits ("nine"), those of Kimi the name of the tool and the number of the call ("numbered"), without
    which the model does not see what it has called.
    `named_tool_choice`: how a `tool_choice` that names one function is sent: as an object ("object"), or as "required" with
    that function alone ("required"; for servers that ignore or refuse the object).
    `raw_tools`: the backend has no parser for calls; tools are shown to the model (`tool_choice` "none"), and the gateway
    finds the calls in its text. `special_tokens`: it needs the model's special tokens in the text for that.
    `custom_tool_grammar`: how the grammar of a custom tool is used. "describe" puts it into the tool's description; "auto"
    also sends it as the pattern of the function's argument if all backends would interpret it alike; "json" and "text" do so
    wherever that is possible for a backend that interprets patterns in that way (see `grammar/json_pattern.py`); "off"
    drops it.
    `compaction_trigger_prompt`: the user message that replaces a `compaction_trigger` item, which is refused if None.
    `compacts_context`: a context that exceeds the `compact_threshold` of `context_management` is compacted first.
    `encrypts_reasoning`: reasoning is returned encrypted if the request asks for `reasoning.encrypted_content`.
    `stores_responses`: whether responses are stored; decides what `store` means and what is echoed.
    `forward`: names of parameters that the backend understands unchanged (see `parameters/table.py`), sent instead of
    ignored; "*" stands for those that are in no table.
    `moderates`: a guard model judges what `moderation` asks for.
    `service_tier_priorities`: the `priority` that is sent for a `service_tier` or a `completion_window`, by its name (vLLM
    serves lower ones first).
    `url_inputs`: which URLs of images and files are sent: all ("pass"), those that do not obviously lead to a private
    address ("public"), or none but `data:` ("refuse").
    `max_input_items`, `max_tools`: the most items (history included) and tools that a request may have, because no stream
    goes on while they are read.
    `separate_web_tools`: `web_search` finds pages and `web_fetch` reads them, each declared by itself, as in the Messages API;
    otherwise `web_search` does both.
    `continues_last_message`: an answer continues the message of the assistant that the input ends with (vLLM).
    `own_fields`: fields of the chat request with values that no client asks for, beside those that are always the gateway's own
    (`wire/added_fields.py`).
    `template_variables`: variables of the chat template that every request has, unless it says otherwise itself.
    `strict`: whatever would be ignored and could change the answer is refused with a 400 that names it."""

    system_messages: Literal["merge", "keep"] = "merge"
    late_developer: Literal["user", "system", "merge"] = "user"
    user_messages: Literal["keep", "merge", "alternate"] = "keep"
    template_forms: frozenset[str] = frozenset()
    reasoning_field: Literal["reasoning", "reasoning_content", "both", "none"] = "reasoning"
    reasoning_effort: Literal["pass", "map", "drop"] = "map"
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_completion_tokens"
    default_max_output_tokens: int | None = None
    call_ids: CallIds = "keep"
    named_tool_choice: Literal["object", "required"] = "object"
    raw_tools: bool = False
    special_tokens: bool = False
    custom_tool_grammar: Literal["auto", "json", "text", "describe", "off"] = "auto"
    compaction_trigger_prompt: str | None = None
    compacts_context: bool = False
    encrypts_reasoning: bool = False
    stores_responses: bool = False
    forward: frozenset[str] = frozenset()
    moderates: bool = False
    service_tier_priorities: Mapping[str, int] = msgspec.field(default_factory=dict)
    url_inputs: Literal["pass", "public", "refuse"] = "pass"
    max_input_items: int = 10_000
    max_tools: int = 1_000
    separate_web_tools: bool = False
    continues_last_message: bool = False
    own_fields: AddedFields = {}
    template_variables: Mapping[str, Any] = msgspec.field(default_factory=dict)
    strict: bool = False

    @property
    def forms(self) -> frozenset[str]:
        """All forms that messages are to have."""
        return self.template_forms | {ALTERNATING} if self.user_messages == "alternate" else self.template_forms
