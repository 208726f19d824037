"""Which parser the settings name for each model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from responses_gateway import parsers
from responses_gateway.backend.tokenizer.tokenizers import ModelTokenizer
from responses_gateway.parsers import template, vllm
from responses_gateway.settings import PARSER_SETTINGS, ModelParsers, Settings, suggestion

OFF = frozenset({"none", ""})
_THINKING_OPEN = {"auto": None, "yes": True, "no": False}

NO_TEMPLATE = "tokenizer: the parser template is read from the model's tokenizer: give its folder or name"

VllmParsers = Mapping[tuple[str, str], vllm.VllmParsers]


@dataclass(frozen=True)
class ParserSettings:
    """The settings of the parsers for some models. `watches`: none is given, so that the streams may show what is needed.
    `template_variables` are sent with each request."""

    reasoning: str
    tools: str
    thinking_open: bool | None
    rescue: bool
    watches: bool
    template_variables: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @cached_property
    def raw(self) -> bool:
        """The backend sends raw markup."""
        return self.reasoning not in OFF or self.tools not in OFF

    @cached_property
    def learns(self) -> bool:
        """What earlier answers have shown may decide how the next one is read. Where the operator has named the parser, an
        answer depends on itself and its request alone."""
        return self.watches or self.reasoning == "auto"

    @cached_property
    def uses_vllm(self) -> bool:
        """vLLM's own parsers read the markup."""
        return vllm.is_vllm(self.reasoning) or vllm.is_vllm(self.tools)

    @cached_property
    def uses_template(self) -> bool:
        """The checkpoint's own response template tells how the markup is read."""
        return self.reasoning in template.NAMES or self.tools in template.NAMES

    def names(self, model: str) -> tuple[str, str]:
        """Return the names of both formats; `auto` is replaced by what the model's name tells, if it tells anything."""
        reasoning = self.reasoning
        tools = self.tools
        if "auto" in (reasoning, tools):
            families = parsers.detect(model, None)
            reasoning = families[0] or "auto" if reasoning == "auto" else reasoning
            tools = families[1] or "auto" if tools == "auto" else tools
        return reasoning, tools


def load_vllm_parsers(settings: Settings) -> VllmParsers:
    """Load the parsers of vLLM's that the settings name, if any. This takes many seconds: not for the event loop. Raise
    `ValueError`, and `VllmMissing` where vLLM is not installed."""
    everywhere, some = parser_settings(settings, frozenset(settings.model_fields_set))
    loaded: dict[tuple[str, str], vllm.VllmParsers] = {}
    for choice in {everywhere, *some.values()}:
        if not choice.uses_vllm:
            continue
        if settings.tokenizer is None:
            raise ValueError("tokenizer: vLLM's parsers need the model's tokenizer: give its folder or name")
        names = (choice.reasoning, choice.tools)
        loaded[names] = vllm.load(*names, settings.tokenizer)
    return loaded


def check_tokenizer(settings: Settings) -> None:
    """Raise `ValueError` where a parser needs a tokenizer that the settings do not name."""
    everywhere, some = parser_settings(settings, frozenset(settings.model_fields_set))
    if settings.tokenizer is None and any(choice.uses_template for choice in (everywhere, *some.values())):
        raise ValueError(NO_TEMPLATE)


def response_template(
    all_settings: Sequence[ParserSettings], tokenizer: ModelTokenizer | None
) -> template.ResponseTemplate | None:
    """Return the template of the tokenizer's configuration, if some settings use it. Raise `ValueError` if it is of no use."""
    users = [choice for choice in all_settings if choice.uses_template]
    if not users or tokenizer is None:
        return None
    if tokenizer.response_template is None:
        raise ValueError(f"tokenizer: the configuration in {tokenizer.file.parent} has no response_template")
    loaded = template.load(tokenizer.response_template)
    for setting, missing in (
        ("reasoning_parser", not loaded.reasons and any(choice.reasoning not in OFF for choice in users)),
        ("tool_call_parser", not loaded.calls and any(choice.tools not in OFF for choice in users)),
    ):
        if missing:
            raise ValueError(f"{setting}: the response_template of this tokenizer has no field for it")
    return loaded


def parser_settings(settings: Settings, setting_names: frozenset[str]) -> tuple[ParserSettings, dict[str, ParserSettings]]:
    """Return the settings for all models, and those for models whose name matches a pattern, by the pattern."""
    everywhere = ParserSettings(
        settings.reasoning_parser,
        settings.tool_call_parser,
        _THINKING_OPEN[settings.opened_thinking],
        settings.rescue,
        settings.adapt and not setting_names & PARSER_SETTINGS,
    )
    _check(everywhere, "")
    some: dict[str, ParserSettings] = {}
    for pattern, entry in settings.models.items():
        changed = _with_entry(everywhere, entry)
        _check(changed, f"models: {pattern}: ")
        some[pattern] = changed
    return everywhere, some


def _with_entry(everywhere: ParserSettings, entry: ModelParsers) -> ParserSettings:
    return ParserSettings(
        everywhere.reasoning if entry.reasoning_parser is None else entry.reasoning_parser,
        everywhere.tools if entry.tool_call_parser is None else entry.tool_call_parser,
        everywhere.thinking_open if entry.opened_thinking is None else _THINKING_OPEN[entry.opened_thinking],
        everywhere.rescue if entry.rescue is None else entry.rescue,
        everywhere.watches and not entry.model_fields_set & PARSER_SETTINGS,
        entry.chat_template_kwargs,
    )


def _check(choice: ParserSettings, place: str) -> None:
    """Raise `ValueError` for a parser that does not exist, with the names of those that do."""
    if choice.uses_vllm:
        for setting, name in (("reasoning_parser", choice.reasoning), ("tool_call_parser", choice.tools)):
            if name not in OFF and not vllm.is_vllm(name):
                raise ValueError(f"{place}{setting}: {name} and a parser of vLLM cannot be combined: name both vllm:…")
        return
    if choice.uses_template:
        for setting, name in (("reasoning_parser", choice.reasoning), ("tool_call_parser", choice.tools)):
            if name not in OFF and name not in template.NAMES:
                raise ValueError(f"{place}{setting}: {name} and the parser template cannot be combined: name both template")
        return
    for setting, name, known in (
        ("reasoning_parser", choice.reasoning, parsers.REASONING),
        ("tool_call_parser", choice.tools, parsers.TOOLS),
    ):
        if parsers.base_name(name) not in known and name not in OFF and name != "auto":
            names = ", ".join(["auto", "none", "template", *sorted(known)])
            raise ValueError(f"{place}{setting}: there is no parser {name}{suggestion(name, known)}; choose one of: {names}")
