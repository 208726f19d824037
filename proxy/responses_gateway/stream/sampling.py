"""The calls of the model within one response, as they were sampled: ids and log probabilities, as the backend sent them.

Nothing is made of text: where a server sends no ids, the call has a `reason` in their place."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import msgspec

from responses_gateway.wire.chat import Choice, Chunk, TokenLogprob, ids_in

# Why the gateway left a backend: the client went, or cancelled the response, or that was to end. The ids until then are there.
Left: TypeAlias = Literal["client_left", "cancelled", "stopped"]
# Why a call has no ids: the server sends none (or not all), or its answer broke off.
Reason: TypeAlias = Literal["no_token_ids", "no_prompt_token_ids", "incomplete_token_ids", "no_log_probs", "broke_off", Left]
# Those for which a call may have no tokens at all.
WITHOUT_TOKENS = frozenset[str](get_args(Reason)) - {"no_log_probs"}


class SampledTokens(NamedTuple):
    """What was sampled in one call of the model. `prompt`, `ids` and `log_probs` are None where the server did not tell all of
    them, for this `reason`."""

    prompt: array[int] | None
    ids: array[int] | None
    log_probs: array[float] | None
    finish_reason: str | None
    weight_version: str | None
    reason: Reason | None


class SampledLogprob(msgspec.Struct, gc=False):
    """What is kept of the log probability of a token."""

    token: str
    logprob: float


class _Sglext(msgspec.Struct, gc=False):
    """What SGLang sends with the end of a stream."""

    input_ids: list[int] | None = None
    output_ids: list[int] | None = None


class _WeightVersion(msgspec.Struct, gc=False):
    version: Any = None


class SampledCall:
    """One call: `observe` each chunk of its answer. Another backend may continue that: `cut` it first."""

    __slots__ = (
        "_finish_reason", "_hides_logprobs", "_ids", "_index", "_log_probs", "_prompt", "_silent", "_weight_version", "_whole",
        "backend", "stopped", "texts",
    )  # fmt: skip

    def __init__(self, *, hides_logprobs: bool) -> None:
        """`hides_logprobs`: the client has not asked for them, so that nobody else is to see them."""
        self.backend: str | None = None  # the last one that had a part in it
        self._hides_logprobs = hides_logprobs
        self._prompt = b""  # as it came, because there may be hundreds of thousands
        self._index: int | None = None  # of the choice that was asked for: the first one
        self._ids = array("q")
        self._log_probs = array("d")
        self.texts: list[str] = []  # of the tokens
        self._finish_reason: str | None = None
        self._weight_version: str | None = None
        self._whole = True  # no id is missing
        self._silent = True  # the server has sent no id
        self.stopped = False  # the response ended before its answer

    def cut(self, kept: int) -> None:
        """Keep the first ids: what follows comes from another backend."""
        del self._ids[kept:]
        del self._log_probs[kept:]
        del self.texts[kept:]
        self._index = None
        self._finish_reason = None

    def observe(self, chunk: Chunk) -> None:
        """Take a chunk."""
        if chunk.sglext:
            self._take_sglext(chunk.sglext)
        self._prompt = self._prompt or chunk.prompt_ids
        for choice in chunk.choices or ():
            if self._index is None:
                self._index = choice.index
            if choice.index == self._index:
                self._observe(choice)
            elif _says_something(choice):  # which may be a part of the answer
                self._whole = False
        # Some vLLMs leave out the chunks of which their parsers show nothing, with the ids of markers (vllm#27482).
        if chunk.usage is not None and not chunk.choices and len(self._ids) < (chunk.usage.completion_tokens or 0):
            self._whole = False

    def _observe(self, choice: Choice) -> None:
        if choice.sglext:
            self._take_sglext(choice.sglext)
        if choice.weight_versions:
            self._weight_version = _last_version(choice.weight_versions) or self._weight_version
        self._take_tokens(choice)
        self._finish_reason = choice.finish_reason or self._finish_reason
        if self._hides_logprobs:
            choice.logprobs = None

    def _take_tokens(self, choice: Choice) -> None:
        ids = choice.token_ids
        entries: Sequence[SampledLogprob] | Sequence[TokenLogprob] = ()
        if choice.logprobs is not None:
            entries = choice.logprobs.content or ()
            if choice.logprobs.content is None:
                self._log_probs.extend([value for value in choice.logprobs.token_logprobs or () if value is not None])
                self.texts += [text or "" for text in choice.logprobs.tokens or ()]
        self.take(ids or (), entries)
        if ids is not None:
            self._silent = False
        elif _says_something(choice):
            self._whole = False

    def take(self, ids: Sequence[int], entries: Sequence[SampledLogprob] | Sequence[TokenLogprob]) -> None:
        """Take the tokens of chunks that are like one that was observed."""
        try:
            self._ids.extend(ids)
        except OverflowError:
            self._whole = False
        self._log_probs.extend([entry.logprob for entry in entries])
        self.texts += [entry.token for entry in entries]

    def _take_sglext(self, raw: msgspec.Raw) -> None:
        try:
            extension = msgspec.json.decode(raw, type=_Sglext | None) or _Sglext()
        except msgspec.DecodeError:
            return
        if extension.input_ids is not None:
            self._prompt = msgspec.json.encode(extension.input_ids)
        if extension.output_ids is not None:
            self._silent = False
            try:
                self._ids = array("q", extension.output_ids)
                self._whole = True  # these are all
            except OverflowError:
                self._whole = False

    def tokens(self, left: Left | None = None) -> SampledTokens:
        """Return what came, behind the end of the answer, or before that, if it was `left`."""
        finish_reason = self._finish_reason
        left = (left or ("stopped" if self.stopped else None)) if finish_reason is None else None
        prompt = ids_in(self._prompt)
        reason: Reason | None = None
        if self._silent:
            reason = "no_token_ids"
        elif finish_reason in (None, "abort", "error") and left is None:
            reason = "broke_off"
        elif not self._whole:
            reason = "incomplete_token_ids"
        elif prompt is None:
            reason = "no_prompt_token_ids"
        final_reason: Reason | None = left or reason
        if reason is not None:
            return SampledTokens(None, None, None, finish_reason, self._weight_version, final_reason)
        log_probs: array[float] | None = self._log_probs
        if len(self._log_probs) != len(self._ids):
            log_probs = None
            final_reason = final_reason or "no_log_probs"
        return SampledTokens(prompt, self._ids, log_probs, finish_reason, self._weight_version, final_reason)


Shows: TypeAlias = Callable[[SampledCall, Sequence[Mapping[str, Any]]], Mapping[str, Any]]


class CallRecorder:
    """The calls of one response, in the order of the model's turns. `shows` returns what the client gets of the last one, given
    its items, as members of the last item; None if it gets nothing."""

    __slots__ = ("_hides_logprobs", "backend", "calls", "shown", "shows")

    def __init__(self, *, hides_logprobs: bool, shows: Shows | None) -> None:
        self._hides_logprobs = hides_logprobs
        self.backend: Callable[[], str | None] = lambda: None  # names the one that is being asked
        self.shows = shows
        self.shown = False  # the client got them
        self.calls: list[SampledCall] = []

    def answer(self, turn: int, kept: int | None) -> Callable[[Chunk], None]:
        """Return what takes the chunks of an answer that begins: that of a turn, or the rest of an answer of which `kept` ids
        are part of its prompt. An answer in the place of one that said nothing begins the call anew."""
        if kept is not None and self.calls:
            self.calls[-1].cut(kept)
        else:
            del self.calls[turn:]
            self.calls.append(SampledCall(hides_logprobs=self._hides_logprobs))
        call = self.calls[-1]

        def observe(chunk: Chunk) -> None:
            call.backend = self.backend()
            call.observe(chunk)

        return observe


def _says_something(choice: Choice) -> bool:
    delta = choice.delta
    if delta is None:
        return bool(choice.text)
    return bool(delta.content or delta.reasoning or delta.reasoning_content or delta.tool_calls)


def _last_version(raw: msgspec.Raw) -> str | None:
    """Return the version of the weights that sampled the last tokens."""
    try:
        versions = msgspec.json.decode(raw, type=list[_WeightVersion] | None)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return str(versions[-1].version) if versions and versions[-1].version is not None else None
