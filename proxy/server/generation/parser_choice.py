"""Which parser reads the markup in a model's text, as the settings and the model's name have it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import lru_cache, partial
from typing import Any

from proxy import parsers as formats
from proxy.backend.tokenizer.tokenizers import ModelTokenizer
from proxy.parsers import vllm as vllm_parser
from proxy.request import Policy
from proxy.settings import ModelParsers, Settings, suggestion
from proxy.stream.markup import Markup
from proxy.wire.errors import ApiError

_OFF = frozenset({"none", ""})
_OPENED = {"auto": None, "yes": True, "no": False}
#: Text that a tokenizer leaves out of its output unless asked: special tokens look like this.
_SPECIAL = ("<|", "<｜", "[TOOL", "[ARGS", "[THINK", "[/THINK")


@dataclass(frozen=True, slots=True)
class _Choice:
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
    def of_vllm(self) -> bool:
        """vLLM's own parsers read it."""
        return vllm_parser.is_vllm(self.reasoning) or vllm_parser.is_vllm(self.tools)

    def names(self, model: str) -> tuple[str, str]:
        """The names of both formats; `auto` is replaced by what the model's name tells, if it tells anything."""
        reasoning, tools = self.reasoning, self.tools
        if "auto" in (reasoning, tools):
            found = formats.detect(model, None)
            reasoning = found[0] or "auto" if reasoning == "auto" else reasoning
            tools = found[1] or "auto" if tools == "auto" else tools
        return reasoning, tools


class Parsers:
    """The choice for each model. Raises `ValueError` for a name that is none."""

    def __init__(self, settings: Settings, policy: Policy) -> None:
        """`policy`: that of the translation, to which is added what the parsers need."""
        opened = _OPENED[settings.opened_thinking]
        self._policy = policy
        self._all = _Choice(settings.reasoning_parser, settings.tool_call_parser, opened, settings.rescue)
        self._some = [(pattern.lower(), _changed(self._all, entry)) for pattern, entry in settings.models.items()]
        self._tokenizer: ModelTokenizer | None = None
        self._own_name: Callable[[str], str] = str
        self._vllm: dict[tuple[str, str], vllm_parser.VllmParsers] = {}
        _check(self._all, "")
        for pattern, entry in settings.models.items():
            _check(_changed(self._all, entry), f"models: {pattern}: ")

    def changed(self, settings: Settings, policy: Policy) -> Parsers:
        """The choice by other settings, with what was loaded for these. Raises `ValueError` for a name that is none."""
        parsers = Parsers(settings, policy)
        parsers._tokenizer, parsers._vllm, parsers._own_name = self._tokenizer, self._vllm, self._own_name
        return parsers

    @property
    def any_raw(self) -> bool:
        """The backend sends raw markup for some model."""
        return self._all.raw or any(choice.raw for _, choice in self._some)

    def raw(self, model: str) -> bool:
        """The backend sends raw markup for this model."""
        return self._choice(model).raw

    def policy(self, model: str) -> Policy:
        """How requests for a model are translated."""
        choice = self._choice(model)
        if not choice.raw:
            return self._policy
        special = choice.of_vllm or _has_special_tokens(*choice.names(self._own_name(model)))
        return replace(self._policy, raw_tools=choice.tools not in _OFF, special_tokens=special)

    def use_aliases(self, own_name: Callable[[str], str]) -> None:
        """From a client's name of a model to the backend's, which may tell its family."""
        self._own_name = own_name

    def use_tokenizer(self, tokenizer: ModelTokenizer) -> None:
        """The model's tokenizer: tells markers from text that looks like them, where token ids come."""
        self._tokenizer = tokenizer

    def load_vllm(self, tokenizer: str | None) -> None:
        """Load the parsers of vLLM's that the settings name, if any. Takes many seconds: not for the event loop.

        `tokenizer` is the setting. Raises `ValueError`, and `VllmMissing` where vLLM is not installed.
        """
        for choice in {self._all, *(choice for _, choice in self._some)}:
            if choice.of_vllm and tokenizer is None:
                raise ValueError("tokenizer: vLLM's parsers need the model's tokenizer: give its folder or name")
            if choice.of_vllm and tokenizer is not None:
                names = (choice.reasoning, choice.tools)
                self._vllm[names] = vllm_parser.load(*names, tokenizer)

    async def thinking_open(self, body: Mapping[str, Any]) -> bool | None:
        """Whether the prompt of a chat request ends inside reasoning, as the chat template tells; None if nobody knows."""
        choice, template = self._choice(body["model"]), self._tokenizer.template if self._tokenizer else None
        if template is None or not choice.raw or choice.reasoning in _OFF or choice.thinking_open is not None:
            return None
        try:
            return await asyncio.to_thread(template.thinking_open, body)
        except ApiError:
            return None  # pictures, say: the template of the backend knows more than this one

    def markup(self, body: Mapping[str, Any], thinking_open: bool | None = None) -> Markup | None:
        """What reads the answer to a chat request; None where the backend's word is taken.

        `thinking_open`: what the method of this name said.
        Without tools in the request there is nothing to call: what looks like a call is text, as it is for vLLM's parsers.
        """
        choice = self._choice(body["model"])
        if not choice.raw and not choice.rescue:
            return None
        schemas = {tool["function"]["name"]: tool["function"].get("parameters") or {} for tool in body.get("tools", ())}
        new_parser: Any
        if choice.of_vllm:
            kwargs = body.get("chat_template_kwargs")
            new_parser = partial(self._vllm[choice.reasoning, choice.tools].parser, schemas=schemas, template_kwargs=kwargs)
        else:
            reasoning, tools = choice.names(self._own_name(body["model"])) if choice.raw else ("auto", "auto")
            new_parser = partial(
                formats.parser,
                reasoning,
                tools if schemas else "none",
                schemas=schemas,
                marker_ids=self._tokenizer.marker_ids(formats.markers(reasoning, tools)) if self._tokenizer else None,
            )
        if thinking_open is None:
            thinking_open = choice.thinking_open if choice.raw and not _thinking_is_off(body) else False
        return Markup(new_parser, thinking_open=thinking_open, rescue=not choice.raw)

    def _choice(self, model: str) -> _Choice:
        if not self._some:
            return self._all
        for name in dict.fromkeys((model.lower(), self._own_name(model).lower())):
            for pattern, choice in self._some:
                if fnmatchcase(name, pattern):
                    return choice
        return self._all


def _changed(choice: _Choice, entry: ModelParsers) -> _Choice:
    """The choice for all models with what differs for some."""
    return _Choice(
        choice.reasoning if entry.reasoning_parser is None else entry.reasoning_parser,
        choice.tools if entry.tool_call_parser is None else entry.tool_call_parser,
        choice.thinking_open if entry.opened_thinking is None else _OPENED[entry.opened_thinking],
        choice.rescue if entry.rescue is None else entry.rescue,
    )


def _check(choice: _Choice, place: str) -> None:
    """Raises `ValueError` for a name that is none, with those that are."""
    if choice.of_vllm:
        for setting, name in (("reasoning_parser", choice.reasoning), ("tool_call_parser", choice.tools)):
            if name not in _OFF and not vllm_parser.is_vllm(name):
                raise ValueError(f"{place}{setting}: {name} and a parser of vLLM's do not go together: name both vllm:…")
        return
    for setting, name, known in (
        ("reasoning_parser", choice.reasoning, formats.REASONING),
        ("tool_call_parser", choice.tools, formats.TOOLS),
    ):
        if name not in known and name not in _OFF and name != "auto":
            names = ", ".join(["auto", "none", *sorted(known)])
            raise ValueError(f"{place}{setting}: there is no {name}{suggestion(name, known)}; there are: {names}")


def _thinking_is_off(body: Mapping[str, Any]) -> bool:
    """The request turns thinking off in the chat template."""
    kwargs = body.get("chat_template_kwargs")
    return isinstance(kwargs, dict) and False in (kwargs.get("enable_thinking"), kwargs.get("thinking"))


@lru_cache(maxsize=64)
def _has_special_tokens(reasoning: str, tools: str) -> bool:
    return any(marker.startswith(_SPECIAL) for marker in formats.markers(reasoning, tools))
