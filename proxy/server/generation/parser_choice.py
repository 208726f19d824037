"""Which parser reads the markup in a model's text, according to the settings and the model's name."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import lru_cache, partial
from typing import Any

from proxy import parsers
from proxy.backend.tokenizer.tokenizers import ModelTokenizer
from proxy.parsers import template, vllm
from proxy.request import Policy
from proxy.settings import ModelParsers, Settings, suggestion
from proxy.stream.markup import Markup
from proxy.wire.errors import ApiError

_OFF = frozenset({"none", ""})
_THINKING_OPEN = {"auto": None, "yes": True, "no": False}
# A tokenizer leaves special tokens out of its output unless asked. They look like this.
_SPECIAL = ("<|", "<｜", "[TOOL", "[ARGS", "[THINK", "[/THINK", "<ifm|", "<tool_calls:", "<think:")

_NO_TEMPLATE = "tokenizer: the parser template is read from the model's tokenizer: give its folder or name"

VllmParsers = Mapping[tuple[str, str], vllm.VllmParsers]


@dataclass(frozen=True, slots=True)
class _ParserSettings:
    """The settings of the parsers for some models."""

    reasoning: str
    tools: str
    thinking_open: bool | None
    rescue: bool

    @property
    def raw(self) -> bool:
        """The backend sends raw markup."""
        return self.reasoning not in _OFF or self.tools not in _OFF

    @property
    def uses_vllm(self) -> bool:
        """vLLM's own parsers read the markup."""
        return vllm.is_vllm(self.reasoning) or vllm.is_vllm(self.tools)

    @property
    def uses_template(self) -> bool:
        """The checkpoint's own response template tells how the markup is read."""
        return self.reasoning in template.NAMES or self.tools in template.NAMES

    def names(self, model: str) -> tuple[str, str]:
        """Return the names of both formats; `auto` is replaced by what the model's name tells, if it tells anything."""
        reasoning = self.reasoning
        tools = self.tools
        if "auto" in (reasoning, tools):
            found = parsers.detect(model, None)
            reasoning = found[0] or "auto" if reasoning == "auto" else reasoning
            tools = found[1] or "auto" if tools == "auto" else tools
        return reasoning, tools


class ParserChoice:
    """The parsers for each model. Never changes once made."""

    def __init__(
        self,
        settings: Settings,
        policy: Policy,
        *,
        tokenizer: ModelTokenizer | None = None,
        own_name: Callable[[str], str] = str,
        vllm_parsers: VllmParsers | None = None,
    ) -> None:
        """`policy` is that of the translation, to which is added what the parsers need. `tokenizer` tells markers from
        text that looks like them, where token ids come. `own_name` maps a client's name of a model to the backend's, which may
        tell its family. Raise `ValueError` for the name of a parser that does not exist."""
        self._settings = settings
        self._policy = policy
        self._tokenizer = tokenizer
        self._own_name = own_name
        self._vllm = vllm_parsers or {}
        self._all, self._some = _parser_settings(settings)
        self._template = _response_template([self._all, *(found for _, found in self._some)], tokenizer)

    def changed(self, settings: Settings, policy: Policy) -> ParserChoice:
        """Return the choice for other settings, with what was loaded for these. Raise `ValueError` as the constructor does."""
        return ParserChoice(settings, policy, tokenizer=self._tokenizer, own_name=self._own_name, vllm_parsers=self._vllm)

    def with_names(self, own_name: Callable[[str], str]) -> ParserChoice:
        """Return the same choice, which knows the backends' names of models."""
        return ParserChoice(self._settings, self._policy, tokenizer=self._tokenizer, own_name=own_name, vllm_parsers=self._vllm)

    @property
    def any_raw(self) -> bool:
        """The backend sends raw markup for some model."""
        return self._all.raw or any(found.raw for _, found in self._some)

    def raw(self, model: str) -> bool:
        """Tell whether the backend sends raw markup for this model."""
        return self._settings_for(model).raw

    def policy(self, model: str) -> Policy:
        """Return how requests for a model are translated."""
        found = self._settings_for(model)
        if not found.raw:
            return self._policy
        special = found.uses_vllm or found.uses_template or _has_special_tokens(*found.names(self._own_name(model)))
        return replace(self._policy, raw_tools=found.tools not in _OFF, special_tokens=special)

    async def thinking_open(self, body: Mapping[str, Any]) -> bool | None:
        """Tell whether the prompt of a chat request ends inside reasoning, as the chat template says; None if unknown."""
        found = self._settings_for(body["model"])
        chat = self._tokenizer.template if self._tokenizer else None
        if chat is None or not found.raw or found.reasoning in _OFF or found.thinking_open is not None:
            return None
        response = self._template
        try:
            if found.uses_template and response is not None:
                return await asyncio.to_thread(lambda: template.opens_reasoning(response, chat.render(body)))
            return await asyncio.to_thread(chat.thinking_open, body)
        except ApiError:
            return None  # with pictures, say, which the template of the backend knows more about

    def markup(self, body: Mapping[str, Any], thinking_open: bool | None = None) -> Markup | None:
        """Return what reads the answer to a chat request; None where the backend parses it.

        `thinking_open` is what the method of this name returned. Without tools in the request there is nothing to call: what
        looks like a call is text then, as it is for vLLM's parsers."""
        found = self._settings_for(body["model"])
        if not found.raw and not found.rescue:
            return None
        schemas = {tool["function"]["name"]: tool["function"].get("parameters") or {} for tool in body.get("tools", ())}
        new_parser: Any
        if found.uses_vllm:
            kwargs = body.get("chat_template_kwargs")
            new_parser = partial(self._vllm[found.reasoning, found.tools].parser, schemas=schemas, template_kwargs=kwargs)
        elif found.uses_template:
            new_parser = self._template_parser(found, schemas)
        else:
            reasoning, tools = found.names(self._own_name(body["model"])) if found.raw else ("auto", "auto")
            if self._tokenizer is not None:
                tokens = self._tokenizer.special_tokens
                reasoning = parsers.fitted(reasoning, tokens)
                tools = parsers.fitted(tools, tokens)
            new_parser = partial(
                parsers.parser,
                reasoning,
                tools if schemas else "none",
                schemas=schemas,
                marker_ids=self._tokenizer.marker_ids(parsers.markers(reasoning, tools)) if self._tokenizer else None,
            )
        if thinking_open is None:
            thinking_open = found.thinking_open if found.raw and not _thinking_is_off(body) else False
        return Markup(new_parser, thinking_open=thinking_open, rescue=not found.raw)

    def _template_parser(self, found: _ParserSettings, schemas: Mapping[str, Any]) -> Any:
        """Return what makes the parser of the checkpoint's own template. Raise `ValueError` without a tokenizer."""
        if self._template is None:
            raise ValueError(_NO_TEMPLATE)
        assert self._tokenizer is not None
        return partial(
            template.TemplateParser,
            self._template,
            schemas=schemas,
            reasoning=found.reasoning not in _OFF,
            tools=bool(schemas) and found.tools not in _OFF,
            marker_ids=self._tokenizer.marker_ids(self._template.literals),
        )

    def _settings_for(self, model: str) -> _ParserSettings:
        if not self._some:
            return self._all
        for name in dict.fromkeys((model.lower(), self._own_name(model).lower())):
            for pattern, found in self._some:
                if fnmatchcase(name, pattern):
                    return found
        return self._all


def load_vllm_parsers(settings: Settings) -> VllmParsers:
    """Load the parsers of vLLM's that the settings name, if any. This takes many seconds: not for the event loop. Raise
    `ValueError`, and `VllmMissing` where vLLM is not installed."""
    everywhere, some = _parser_settings(settings)
    loaded: dict[tuple[str, str], vllm.VllmParsers] = {}
    for found in {everywhere, *(found for _, found in some)}:
        if not found.uses_vllm:
            continue
        if settings.tokenizer is None:
            raise ValueError("tokenizer: vLLM's parsers need the model's tokenizer: give its folder or name")
        names = (found.reasoning, found.tools)
        loaded[names] = vllm.load(*names, settings.tokenizer)
    return loaded


def check_tokenizer(settings: Settings) -> None:
    """Raise `ValueError` where a parser needs a tokenizer that the settings do not name."""
    everywhere, some = _parser_settings(settings)
    if settings.tokenizer is None and any(found.uses_template for found in (everywhere, *(found for _, found in some))):
        raise ValueError(_NO_TEMPLATE)


def _response_template(
    all_settings: Sequence[_ParserSettings], tokenizer: ModelTokenizer | None
) -> template.ResponseTemplate | None:
    """Return the template of the tokenizer's configuration, if some settings use it. Raise `ValueError` if it is of no use."""
    users = [found for found in all_settings if found.uses_template]
    if not users or tokenizer is None:
        return None
    if tokenizer.response_template is None:
        raise ValueError(f"tokenizer: the configuration in {tokenizer.file.parent} has no response_template")
    loaded = template.load(tokenizer.response_template)
    for setting, missing in (
        ("reasoning_parser", not loaded.reasons and any(found.reasoning not in _OFF for found in users)),
        ("tool_call_parser", not loaded.calls and any(found.tools not in _OFF for found in users)),
    ):
        if missing:
            raise ValueError(f"{setting}: the response_template of this tokenizer has no field for it")
    return loaded


def _parser_settings(settings: Settings) -> tuple[_ParserSettings, list[tuple[str, _ParserSettings]]]:
    """Return the settings for all models, and those for models whose name matches a pattern."""
    everywhere = _ParserSettings(
        settings.reasoning_parser, settings.tool_call_parser, _THINKING_OPEN[settings.opened_thinking], settings.rescue
    )
    _check(everywhere, "")
    some: list[tuple[str, _ParserSettings]] = []
    for pattern, entry in settings.models.items():
        changed = _with_entry(everywhere, entry)
        _check(changed, f"models: {pattern}: ")
        some.append((pattern.lower(), changed))
    return everywhere, some


def _with_entry(everywhere: _ParserSettings, entry: ModelParsers) -> _ParserSettings:
    return _ParserSettings(
        everywhere.reasoning if entry.reasoning_parser is None else entry.reasoning_parser,
        everywhere.tools if entry.tool_call_parser is None else entry.tool_call_parser,
        everywhere.thinking_open if entry.opened_thinking is None else _THINKING_OPEN[entry.opened_thinking],
        everywhere.rescue if entry.rescue is None else entry.rescue,
    )


def _check(found: _ParserSettings, place: str) -> None:
    """Raise `ValueError` for a parser that does not exist, with the names of those that do."""
    if found.uses_vllm:
        for setting, name in (("reasoning_parser", found.reasoning), ("tool_call_parser", found.tools)):
            if name not in _OFF and not vllm.is_vllm(name):
                raise ValueError(f"{place}{setting}: {name} and a parser of vLLM's do not go together: name both vllm:…")
        return
    if found.uses_template:
        for setting, name in (("reasoning_parser", found.reasoning), ("tool_call_parser", found.tools)):
            if name not in _OFF and name not in template.NAMES:
                raise ValueError(f"{place}{setting}: {name} and the parser template do not go together: name both template")
        return
    for setting, name, known in (
        ("reasoning_parser", found.reasoning, parsers.REASONING),
        ("tool_call_parser", found.tools, parsers.TOOLS),
    ):
        if parsers.base_name(name) not in known and name not in _OFF and name != "auto":
            names = ", ".join(["auto", "none", "template", *sorted(known)])
            raise ValueError(f"{place}{setting}: there is no {name}{suggestion(name, known)}; there are: {names}")


def _thinking_is_off(body: Mapping[str, Any]) -> bool:
    """Tell whether the request turns thinking off in the chat template."""
    kwargs = body.get("chat_template_kwargs")
    return isinstance(kwargs, dict) and False in (kwargs.get("enable_thinking"), kwargs.get("thinking"))


@lru_cache(maxsize=64)
def _has_special_tokens(reasoning: str, tools: str) -> bool:
    return any(marker.startswith(_SPECIAL) for marker in parsers.markers(reasoning, tools))
