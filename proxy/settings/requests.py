"""How a request becomes a chat request, and how the text that comes back is read."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from proxy.settings.section import Section, TextList, YesNo


class ModelParsers(BaseModel):
    """How the text of some models is parsed. What is None is as the settings of the same names have it for all models."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    reasoning_parser: str | None = None
    tool_call_parser: str | None = None
    opened_thinking: YesNo | None = None
    rescue: bool | None = None


class RequestSettings(Section):
    """How a request becomes a chat request, and how the text that comes back is read."""

    title = "Requests to the backend"

    system_messages: Literal["merge", "keep"] = Field(
        default="merge",
        description="`merge` makes one leading system message of the instructions and the first system and developer "
        "messages, as most chat templates demand; `keep` leaves each as a system message of its own.",
    )
    late_developer: Literal["user", "system", "merge"] = Field(
        default="user",
        description="Role of a system or developer message that comes after the first user message; "
        "`merge` moves its text up into the leading system message.",
    )
    user_messages: Literal["keep", "merge"] = Field(
        default="keep",
        description="`merge` makes user messages in a row one message, for templates that insist on alternating roles.",
    )
    reasoning_field: Literal["reasoning", "reasoning_content", "both", "none"] = Field(
        default="reasoning",
        description="Field of an assistant message in which earlier reasoning goes back to the backend.",
    )
    reasoning_effort: Literal["map", "pass", "drop"] = Field(
        default="map",
        description="`map` fits `reasoning.effort` to what chat servers know, `pass` sends it as it is, `drop` never.",
    )
    max_tokens_field: Literal["max_completion_tokens", "max_tokens"] = Field(
        default="max_completion_tokens",
        description="Field of the chat request that carries `max_output_tokens`; older servers know only `max_tokens`.",
    )
    reasoning_parser: str = Field(
        default="none",
        description="Name of the reasoning markup in the text of a backend that does not parse it: the names of vLLM's "
        "`--reasoning-parser`, `auto` (from the model's name, or the first markers seen), or `none`.",
    )
    tool_call_parser: str = Field(
        default="none",
        description="Name of the tool-call markup in the text of a backend that does not parse it: the names of vLLM's "
        "`--tool-call-parser`, `auto`, or `none`.",
    )
    token_ids: Literal["auto", "on", "off"] = Field(
        default="auto",
        description="Ask the backend for the ids of its tokens (`return_token_ids`, vLLM), to count each item exactly and to "
        "tell markers from text that looks like them. `auto` asks vLLM servers whose markup is parsed here.",
    )
    opened_thinking: YesNo = Field(
        default="auto",
        description="Whether the chat template ends inside an open reasoning block, for `reasoning_parser`. "
        "`auto` takes what is usual for the family.",
    )
    rescue: bool = Field(
        default=False,
        description="Look for markup that leaked through the parsers of the backend (`<tool_call>` or `</think>` in the "
        "text), and turn it into items. What was rescued is counted in a metric.",
    )
    models: dict[str, ModelParsers] = Field(
        default={},
        description="The four settings above for some models: patterns of model names (`*` stands for anything, case does not "
        "matter; of an alias, the backend's name counts too) with what differs for them. The first pattern that fits counts. "
        "See [docs/parsers.md](parsers.md).",
    )
    forward: TextList = Field(
        default=[],
        description="Parameters of the request that this backend understands as they are and gets, where they would "
        "otherwise be ignored (for example `service_tier`). May be given several times.",
    )
    forward_unknown: bool = Field(default=False, description="Send parameters that the gateway does not know to the backend.")
    custom_tool_grammar: Literal["auto", "json", "text", "describe", "off"] = Field(
        default="auto",
        description="What becomes of the grammar of a custom tool: `describe` explains it to the model and checks what the "
        "model writes, `auto` also sends it as a pattern where all backends with structured output read that alike, `json` and "
        "`text` wherever a backend can enforce it that matches patterns with the JSON, or with the text, of an argument "
        "(`doctor` tells), `off` drops it. See [docs/custom-tools.md](custom-tools.md).",
    )
    repair_custom_tools: Literal["off", "once"] = Field(
        default="off",
        description="`once` asks the backend to correct the input of a custom tool that does not match the tool's grammar, "
        "once, before the client gets it; such inputs are then sent when they are complete, not as they come. `off` passes "
        "them on and counts them.",
    )
    strict: bool = Field(
        default=False,
        description="Answer 400 where a parameter, an item or a tool that could change the answer would otherwise be ignored.",
    )

    @field_validator("custom_tool_grammar", "repair_custom_tools", mode="before")
    @classmethod
    def _read_yaml_off(cls, value: object) -> object:
        return "off" if value is False else value  # YAML 1.1 reads a bare `off` as false
