"""Use vLLM's own parsers in place of `MarkupParser`, where vLLM is installed (the extra `vllm`).

    parsers = load("vllm:qwen3", "vllm:hermes", "path/to/the/model")  # takes seconds: in a thread, at start-up
    parser = parsers.parser(schemas=schemas, prompt_ids=prompt_ids)  # one per choice of a response
    deltas = parser.feed(text, token_ids)
    deltas = parser.finish("stop")

They are fed one token at a time: their result for a piece with several tokens depends on where it was cut, and lists
reasoning, text and calls without an order."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from responses_gateway.extras import how_to_install
from responses_gateway.parsers.interface import Parser
from responses_gateway.wire.deltas import Delta, FinishReason, Reasoning, Text, ToolArguments, ToolCall

PREFIX = "vllm:"

_THINKING = {"enable_thinking": True, "thinking": True, "thinking_mode": "enabled"}  # the names that different families use
_HARMONY = frozenset({"openai", "openai_gptoss"})
_HALF_CHARACTER = "\ufffd"


class VllmMissing(ImportError):
    """vLLM's parsers were asked for, and vLLM is not installed."""

    def __init__(self, cause: ImportError) -> None:
        super().__init__(
            f"Parsers named {PREFIX}… are those of the vllm package, which cannot be imported ({cause}). "
            f"Install it with: {how_to_install('vllm')}"
        )


class Tokenizer(Protocol):
    """The part of a `transformers` tokenizer that is used here. vLLM's parsers use more of it."""

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]: ...

    def decode(self, token_ids: list[int]) -> str: ...


def is_vllm(name: str | None) -> bool:
    """Tell whether a parser's name asks for one of vLLM's."""
    return name is not None and name.startswith(PREFIX)


def load(reasoning: str | None, tools: str | None, tokenizer: str | Tokenizer) -> VllmParsers:
    """Import vLLM and compose two of its parsers, by their names with the prefix `vllm:`; None for no parser.

    A family with one parser for both is named twice. `tokenizer` is a `transformers` tokenizer,
    or the folder or name of a model. Blocks for many seconds the first time: do not call it on an event loop.

    Raises `VllmMissing`, and `ValueError` for a name that vLLM does not know or a tokenizer that does not fit."""
    names = [_bare_name(name) for name in (reasoning, tools)]
    if names == [None, None]:
        raise ValueError(f"no parser is named: give at least one {PREFIX}NAME")
    try:
        manager = importlib.import_module("vllm.parser").ParserManager
        protocol = importlib.import_module("vllm.entrypoints.openai.chat_completion.protocol")
        read_tokenizer = importlib.import_module("vllm.tokenizers").get_tokenizer
    except ImportError as error:
        raise VllmMissing(error) from error
    loaded: Any = read_tokenizer(tokenizer) if isinstance(tokenizer, str) else tokenizer
    try:
        composed = manager.get_parser(
            reasoning_parser_name=names[0],
            tool_parser_name=names[1],
            enable_auto_tools=True,
            is_harmony=bool(_HARMONY & set(names)),
            tokenizer=loaded,
        )
    except TypeError as error:
        raise ValueError(f"vLLM: {error}") from error
    return VllmParsers(composed, protocol.ChatCompletionRequest, loaded)


def _bare_name(name: str | None) -> str | None:
    if name is None or name in ("none", ""):
        return None
    if not is_vllm(name):
        raise ValueError(f"parser {name!r} is not vLLM's: name both parsers {PREFIX}…, or leave one out")
    return name.removeprefix(PREFIX)


@dataclass(frozen=True)
class VllmParsers:
    """A composed class of vLLM's, and what is needed to make parsers of it."""

    composed: Any
    request: Any
    tokenizer: Tokenizer

    def parser(
        self,
        *,
        schemas: Mapping[str, Mapping[str, Any]],
        thinking_open: bool | None = None,
        prompt_ids: Sequence[int] | None = None,
        template_kwargs: Mapping[str, Any] | None = None,
    ) -> VllmParser:
        """Make a parser for one response. `schemas`, `thinking_open`: as for `parsers.parser`. `prompt_ids`: the token
        ids of the prompt; the better way to tell whether it ends inside reasoning. `template_kwargs`: the request's
        `chat_template_kwargs`, by which some families know whether the model thinks."""
        thinking = _THINKING if thinking_open else {}
        machine, request = self.compose(schemas, {**thinking, **(template_kwargs or {})})
        if prompt_ids is None:
            prompt_ids = self._stand_in(machine, thinking_open)
        return VllmParser(machine, request, self.tokenizer, prompt_ids)

    def compose(self, schemas: Mapping[str, Mapping[str, Any]], template_kwargs: Mapping[str, Any]) -> tuple[Any, Any]:
        """Make a `vllm.parser.Parser` and the `ChatCompletionRequest` that its methods take."""
        tools = [{"type": "function", "function": {"name": name, "parameters": schemas[name]}} for name in schemas]
        request = self.request(
            model="", messages=[{"role": "user", "content": ""}], tools=tools or None, stream=True, skip_special_tokens=False
        )
        machine = self.composed(self.tokenizer, request.tools, chat_template_kwargs=dict(template_kwargs), model_config=None)
        return machine, machine.adjust_request(request)

    def _stand_in(self, machine: Any, thinking_open: bool | None) -> list[int] | None:
        """Return ids in place of an unknown prompt: vLLM looks for calls only if the prompt shows that reasoning is over."""
        if machine.reasoning_parser is None:
            return []
        marker = machine.reasoning_parser.reasoning_start_str if thinking_open else None
        return self.tokenizer.encode(marker, add_special_tokens=False) if marker else None


class VllmParser(Parser):
    """Gives a parser of vLLM's the interface of ours. vLLM may raise any exception. Without token ids, `feed` makes
    them from the text: this is right as long as its pieces are those of the server."""

    def __init__(self, machine: Any, request: Any, tokenizer: Tokenizer, prompt_ids: Sequence[int] | None) -> None:
        self._machine = machine
        self._request = request
        self._tokenizer = tokenizer
        self._prompt_ids = None if prompt_ids is None else list(prompt_ids)
        self._calls: dict[int, int] = {}  # vLLM's index -> ours
        self._finished = False

    @property
    def repairs(self) -> dict[str, int]:
        """Always empty: vLLM does not report its repairs."""
        return {}

    def feed(self, text: str, token_ids: Sequence[int] | None = None) -> list[Delta]:
        """Return the deltas that a piece of text brings. `token_ids`: the ids of its tokens, if known."""
        ids = list(token_ids) if token_ids is not None else self._tokenizer.encode(text, add_special_tokens=False)
        deltas: list[Delta] = []
        for piece, its_ids in _token_by_token(text, ids, self._tokenizer):
            deltas += self._step(piece, its_ids, finished=False)
        return deltas

    def finish(self, _reason: FinishReason) -> list[Delta]:
        """Return the deltas that were held back. vLLM does not distinguish the reasons to stop."""
        if self._finished:
            return []
        self._finished = True
        return self._step("", [], finished=True)

    def _step(self, text: str, ids: list[int], *, finished: bool) -> list[Delta]:
        message = self._machine.parse_delta(text, ids, self._request, self._prompt_ids, finished=finished)
        return [] if message is None else self._deltas(message)

    def _deltas(self, message: Any) -> list[Delta]:
        """List deltas in the order in which a model may have written them: rest of a call, reasoning, text, further calls."""
        calls = message.tool_calls or []
        begun = [call for call in calls if call.index in self._calls]
        deltas: list[Delta] = [delta for call in begun for delta in self._arguments(call)]
        if message.reasoning:
            deltas.append(Reasoning(message.reasoning))
        if message.content:
            deltas.append(Text(message.content))
        for call in calls:
            if call not in begun:
                deltas += self._call(call)
        return deltas

    def _call(self, call: Any) -> list[Delta]:
        if call.index in self._calls:
            return self._arguments(call)
        number = self._calls[call.index] = len(self._calls)
        name = call.function.name if call.function else None
        return [ToolCall(number, call.id or "", name or ""), *self._arguments(call)]

    def _arguments(self, call: Any) -> list[Delta]:
        text = call.function.arguments if call.function else None
        return [ToolArguments(self._calls[call.index], text)] if text else []


def _token_by_token(text: str, ids: list[int], tokenizer: Tokenizer) -> Iterator[tuple[str, list[int]]]:
    """Yield the text of each token; of several together if they make one character, of all if they do not spell the text. Ids
    behind the text come with an empty text: an end token, or a token whose text the server still holds back."""
    pieces: list[tuple[str, list[int]]] = []
    group: list[int] = []
    at = 0
    for token in ids:
        group.append(token)
        spelled = tokenizer.decode(group)
        if text.startswith(spelled, at) and not spelled.endswith(_HALF_CHARACTER):
            pieces.append((spelled, group))
            group = []
            at += len(spelled)
    if at < len(text):
        pieces = [(text, ids)]
    elif group:
        pieces.append(("", group))
    return iter(pieces)
