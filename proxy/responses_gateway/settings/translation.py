"""How requests and answers are translated."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field

from responses_gateway.settings.section import OFF, ON, Details, Section, TextList, YesNo

_E = TypeVar("_E")
# Settings that belong together: where one is given, the others are taken to be as intended.
PARSER_SETTINGS = frozenset({"reasoning_parser", "tool_call_parser", "opened_thinking"})


class ModelParsers(Details):
    """What holds for some models: how their text is parsed, where None stands for the general setting of the same name,
    whether the next prompt of a chain is sent as ids of tokens, and variables of the chat template, such as
    `preserve_thinking`."""

    reasoning_parser: str | None = None
    tool_call_parser: str | None = None
    opened_thinking: YesNo | None = None
    rescue: bool | None = None
    token_true: bool | None = None
    chat_template_kwargs: dict[str, Any] = Field(default={})


def entry_for(entries: Mapping[str, _E], *names: str) -> _E | None:
    """Return the entry of the first pattern that fits a model, which has these names: what fits an earlier name comes first."""
    fitting = (entry for name in names for pattern, entry in entries.items() if fnmatchcase(name.lower(), pattern.lower()))
    return next(fitting, None)


class RequestSettings(Section):
    """How a request is translated, and how the text of the answer is parsed."""

    title = "Requests to the backend"

    system_messages: Literal["merge", "keep"] = "merge"
    """`merge` combines the instructions and the first system and developer messages into one, as most chat templates require;
    `keep` sends each as a system message."""
    late_developer: Literal["user", "system", "merge"] = "user"
    """Role of a system or developer message after the first user message; `merge` moves its text into the leading system
    message."""
    user_messages: Literal["keep", "merge", "alternate"] = "keep"
    """`merge` combines consecutive user messages into one; `alternate` also inserts a short message wherever a turn is missing
    (after the result of a tool, before a first message of the assistant), for templates such as Mistral's."""
    reasoning_field: Literal["reasoning", "reasoning_content", "both", "none"] = "reasoning"
    """Field of an assistant message in which earlier reasoning is sent back to the backend."""
    reasoning_effort: Literal["map", "pass", "drop"] = "map"
    """`map` adapts `reasoning.effort` to chat servers, `pass` sends it unchanged, `drop` omits it."""
    max_tokens_field: Literal["max_completion_tokens", "max_tokens"] = "max_completion_tokens"
    """Field of the chat request for `max_output_tokens`; older servers support only `max_tokens`."""
    default_max_output_tokens: int | None = Field(default=None, ge=1)
    """Limit sent for requests without `max_output_tokens`, for servers that otherwise end answers early (mlx_lm.server: 512
    tokens, transformers serve: 1024). By default none is sent."""
    named_tool_choice: Literal["object", "required"] = "object"
    """How to enforce a call of the function that `tool_choice` names: `object` as in OpenAI's API; `required` sends that
    function alone, for servers that accept only strings (llama.cpp, LM Studio)."""
    reasoning_parser: str = "none"
    """Parser for reasoning markup in the text of a backend that does not parse it: a name of vLLM's `--reasoning-parser`,
    `auto` (by the model's name, or the first markers), `template` (by the `response_template` of the `tokenizer`), or
    `none`."""
    tool_call_parser: str = "none"
    """Parser for markup of calls: a name of vLLM's `--tool-call-parser`, `auto`, `template`, or `none`."""
    token_ids: Annotated[Literal["auto", "on", "off"], ON, OFF] = "auto"
    """Request the ids of tokens (`return_token_ids`, vLLM), to count reasoning exactly and to distinguish markers from text
    that looks like them. `auto`: for vLLM servers whose markup the gateway parses."""
    opened_thinking: YesNo = "auto"
    """Whether the chat template ends inside an open reasoning block, for `reasoning_parser`. `auto` decides by the prompt, or
    else by what is known about the model, or else by its family."""
    rescue: bool = False
    """Convert markup that the backend's parsers have missed (`<tool_call>` or `</think>` in the text) to items."""
    models: dict[str, ModelParsers] = Field(default={})
    """`reasoning_parser`, `tool_call_parser`, `opened_thinking`, `rescue`, `token_true` ([docs/training.md](training.md)) and
    `chat_template_kwargs` (variables of the chat template) by patterns of model names (`*` matches anything, case does not
    matter). The first matching pattern applies. See [docs/parsers.md](parsers.md)."""
    forward: TextList = Field(default=[])
    """Parameters that the backend gets unchanged, although they would otherwise be ignored (for example `service_tier`); `*`
    for all unknown ones. Can be repeated."""
    service_tier_priorities: dict[str, int] = Field(default={})
    """The `priority` to send for a `service_tier` or `completion_window`: `{priority: -10, flex: 10, 8h: 20}`. vLLM with
    `--scheduling-policy priority` serves lower numbers first. Other tiers are ignored."""
    custom_tool_grammar: Annotated[Literal["auto", "json", "text", "describe", "off"], OFF] = "auto"
    """How to use the grammar of a custom tool: `describe` explains it to the model and checks the input; `auto` also sends it
    as a pattern if all backends interpret patterns alike; `json` and `text` send it for backends that match patterns against an
    argument's JSON, or against its text (`doctor` says which); `off` drops it. See [docs/custom-tools.md](custom-tools.md)."""
    repair_custom_tools: Annotated[Literal["off", "once"], OFF] = "off"
    """`once` asks the backend once to correct a custom tool's input that does not match its grammar, and sends inputs that have
    a grammar only when complete. `off` passes them on and counts them."""
    messages_model: str | None = None
    """Model for requests to `/v1/messages` with a name that begins with `claude` or `anthropic` and that no backend serves:
    Claude Code asks for such names beside its main model. Default: the first model that is served."""
    strict: bool = False
    """Answer 400 instead of ignoring a parameter, an item or a tool that could change the answer."""


class ResponseSettings(Section):
    """What to send where the specification, OpenAI and clients disagree."""

    title = "Responses to the client"

    hosted_turns: int = Field(default=16, ge=2, le=1000)
    """Maximum turns of the model in one response with hosted or asynchronous tools. In the last one the model cannot call any.
    Hosted tools may be called eight times as often, or `max_tool_calls` times if the request says less; further calls fail."""
    reasoning_summary: Annotated[Literal["mirror", "always", "off"], OFF] = "mirror"
    """`mirror` repeats the reasoning as its summary if the request asks for one, `always` for all requests."""
    reasoning_events: Literal["openai", "spec"] = "openai"
    """Names of the reasoning events: `response.reasoning_text.*` as sent by OpenAI, or `response.reasoning.*` as in the Open
    Responses specification."""
