"""Chat chunks become deltas: every server's dialect of parsed fields is reduced to the closed vocabulary of `wire/deltas.py`.

Order within a chunk: reasoning, text, refusal, calls, finish_reason, usage. Servers number parallel calls in different ways
(by `index`, by `id` alone, or not at all); `calls.py` tells to which call a piece belongs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from copy import copy
from typing import Any, TypeAlias

from responses_gateway.stream.reading.calls import CallReader
from responses_gateway.stream.reading.citations import attached
from responses_gateway.stream.reading.logprobs import spelled, within
from responses_gateway.stream.writer.interface import TextKind
from responses_gateway.wire import chat
from responses_gateway.wire.chat import Choice, Chunk, TokenLogprob, text_of, texts_in
from responses_gateway.wire.deltas import Delta, Finish, FinishReason, Reasoning, Refusal, Text, ToolArguments, ToolCall, Usage
from responses_gateway.wire.tools import ToolTable
from responses_gateway.wire.usage import counts_of, merged

# What servers call the ways to stop, in small letters; anything else is taken as a normal stop. At a `repetition` vLLM stops.
_LENGTH = ("length", "max_tokens", "max_output_tokens", "model_length", "model_context_window_exceeded", "repetition")
_FILTER = ("content_filter", "content_filtered", "safety", "recitation", "blocklist", "prohibited_content", "spii", "sensitive")
_ERROR = (
    "abort", "cancelled", "error", "function_call_filter", "insufficient_system_resource", "malformed_function_call",
    "malformed_response", "network_error", "time_limit", "timeout", "unexpected_tool_call",
)  # fmt: skip
_CALLS = frozenset({"tool_calls", "tool_call", "tool_use", "function_call"})  # a normal stop, too
FINISH_REASONS: dict[str, FinishReason] = {
    **dict.fromkeys(_LENGTH, "length"),
    **dict.fromkeys(_FILTER, "content_filter"),
    **dict.fromkeys(_ERROR, "error"),
}
_NOT_YET = frozenset({"null", "None"})  # the word, in the place of none: DashScope's own API, and what passes it on
_LEAST_REPEATED = 16  # characters
_FIELDS: tuple[tuple[TextKind, tuple[str, ...]], ...] = (("reasoning", chat.REASONING), ("output_text", ("content",)))
_OPENING = "<think>"
_CLOSING = "</think>"
_TAGS = ("<thought>", "</thought>")  # Google's
_LONGEST_ECHO = 2**18  # characters: it is compared again with each chunk
_SURROGATE = "\ufffd"  # what stands for half a surrogate pair
_Piece: TypeAlias = Reasoning | Text | Refusal | ToolArguments


class Reader:
    """Feed chunks in order to `read`; call `finish` when there are no more."""

    def __init__(
        self,
        *,
        tools: ToolTable | None = None,
        requires: Callable[[str], bool] | None = None,
        logprobs: bool = False,
        refusal_as_text: bool = False,
        raw: bool = False,
        generated: bool = False,
    ) -> None:
        """`raw`: the text may hold calls and reasoning as markup, which somebody else reads. For calls, see `calls.py`:
        `requires` tells whether a tool cannot be called without arguments; `generated`: arguments are the model's own from the
        first piece on."""
        self._raw = raw
        # Tells what has come of the thought, or of the messages; None where that is not known.
        self.said: Callable[[TextKind], str | None] | None = None
        self._logprobs = logprobs
        self._refusal_as_text = refusal_as_text
        self.choice: int | None = None  # the index of the one that is read
        self._text_choice: int | None = None  # that of another one which has its text
        self._reasoning_came = False
        self._text_came = False  # or a refusal
        self._thought_again = False  # behind a text
        self._in_tags = False  # the last tag of a thought in the text is to come
        self._messages_come = False  # in the place of deltas
        self._usage: Usage | None = None
        self._usage_came = False
        self._details_alone = True  # no reasoning came but in `reasoning_details`
        self._echo = ""  # the beginning of the text, as far as it may be the thought again
        self._half: _Piece | None = None  # ends in a high surrogate, whose text may continue
        self._early_logprobs: list[TokenLogprob] = []  # of tokens that are not yet a whole character
        self.waiting = False  # a part of earlier chunks waits for its rest: the next chunk has to be read with it
        self.repairs: defaultdict[str, int] = defaultdict(int)
        self._tools = tools or {}
        self._requires = requires or (lambda _name: False)
        self._generated = generated
        self._calls: CallReader | None = None  # once a call came
        self.finished = False  # a finish_reason came; what comes behind it may repeat all

    def read(self, chunk: Chunk) -> list[Delta]:
        """Return the deltas of one chunk, whose choices are read one after the other."""
        if chunk.choices and chunk.choices[1:]:  # NVIDIA Dynamo may cut one into several, GitHub Copilot has calls in their own
            parts = [Chunk([choice], lenient=chunk.lenient) for choice in chunk.choices[:-1]]
            chunk.choices = chunk.choices[-1:]
            return [delta for part in (*parts, chunk) for delta in self.read(part)]
        out: list[Delta] = []
        if chunk.converted:
            self.repairs["types_converted"] += 1
        choice = chunk.choices[0] if chunk.choices else None
        if choice is not None and choice.index != self.choice:
            choice = self._read_of(choice)
        if choice is not None:
            delta = choice.delta
            reason = None if choice.finish_reason in _NOT_YET else choice.finish_reason
            self.finished = self.finished or bool(reason)
            if delta is None or choice.message is not None or delta.extra_content is not None or self._in_tags:
                delta = self._beside_message(choice)
            if delta is not None:
                if (self.finished or delta.tool_calls) and self.said is not None and not self._thought_again:
                    self._drop_repeated(delta, self.said)
                logprobs = choice.logprobs.content if self._logprobs and choice.logprobs else None
                self._read_delta(delta, logprobs and self._spelled(logprobs), out)
                if delta.tool_calls or delta.function_call is not None:
                    if self._calls is None:
                        self._end_echo(out)
                        self._calls = CallReader(self._tools, self.repairs, self._requires, generated=self._generated)
                    self._calls.read(delta, out, last=self.finished)
                if chunk.lenient or self._half is not None:
                    out = self._with_joined_surrogates(out)
            if reason:
                self._release(out)
                reason = reason if reason == "stop" else reason.lower().partition(":")[0]  # behind a colon, some add details
                out.append(Finish(FINISH_REASONS.get(reason, "stop"), choice.stop_string, reason in _CALLS))
        if chunk.usage is not None:
            self._read_usage(chunk.usage, out)
        calls = self._calls
        held = self._half is not None or self._echo != "" or self._early_logprobs != []
        self.waiting = held or (calls is not None and calls.waiting)
        return out

    def _read_usage(self, reported: chat.ChatUsage, out: list[Delta]) -> None:
        """Read counts; those that a chunk has elsewhere do not take back those of a `usage`."""
        usage = None if reported.elsewhere and self._usage_came else counts_of(reported)
        if usage is not None:
            self._usage = usage if self._usage is None else merged(self._usage, usage)
            self._usage_came = not reported.elsewhere
            out.append(self._usage)

    def skip(self) -> None:
        """Count an event that holds no part of an answer."""
        self.repairs["foreign_event"] += 1

    def finish(self) -> list[Delta]:
        """Return what still waited for its rest: half a surrogate pair, a call without arguments, arguments without a name."""
        return self._release([])

    def _release(self, out: list[Delta]) -> list[Delta]:
        """End what waits for its rest: the beginning of a text, half a surrogate pair, and the calls."""
        self._end_echo(out)
        if self._half is not None:
            self._replace_half(self._half, out)
        if self._calls is not None:
            self._calls.end(out, broken=not self.finished)
        return out

    def _read_of(self, choice: Choice) -> Choice | None:
        """Return what is read of a choice: all of the one that came first. Others were not asked for, so that calls in another
        one are its own, and the text if it has none: LiteLLM has counted the blocks of Bedrock as choices."""
        if self.choice is None:
            self.choice = choice.index
            return choice
        delta = choice.delta or choice.message or chat.Delta()
        if delta.content and not self._text_came:
            self._text_choice = choice.index
        content = delta.content if choice.index == self._text_choice else None
        delta = chat.Delta(content=content, tool_calls=delta.tool_calls, function_call=delta.function_call)
        return Choice(delta=delta) if chat.brings_more(delta) else None

    def _beside_message(self, choice: Choice) -> chat.Delta | None:
        """Return what a choice brings that may have a message: its delta, or the message where there is none (a body that is
        not streamed, or messages in the place of deltas), which is a text alone in text completions. Some servers end a stream
        with a message that repeats all of it: behind deltas it brings nothing but the text and the calls that none of them had,
        and the end of a text, or of arguments, of which they had the beginning. Where their text is `raw`, the calls may have
        been in it."""
        delta = choice.delta
        message = choice.message
        for part in filter(None, (delta, message)):
            self._in_tags = _take_thought(part, self._in_tags)
        if delta is None and message is None and choice.text and isinstance(choice.text, str):
            message = chat.Delta(content=choice.text)
        if message is None or (delta is not None and chat.brings_more(delta)):
            return delta
        calls = self._calls
        if self._messages_come or not (self._reasoning_came or self._text_came or calls is not None):
            self._messages_come = self._messages_come or chat.brings_more(message)
            return message
        self.repairs["message_repeated"] += 1
        rest = chat.Delta(annotations=message.annotations, images=message.images)
        if not self._text_came:
            rest.content = message.content
            rest.refusal = message.refusal
            thought = "" if calls is not None else _thought_of(message)
            rest.reasoning = _end_of(thought, self.said and self.said("reasoning"))
        elif isinstance(message.content, str):
            rest.content = _end_of(message.content, self.said and self.said("output_text"))
        if calls is not None or not (self._text_came and self._raw):
            whole = message if calls is None else calls.rest_of(message)
            rest.tool_calls = whole.tool_calls
            rest.function_call = whole.function_call
        return rest

    def _drop_repeated(self, delta: chat.Delta, text_of: Callable[[TextKind], str | None]) -> None:
        """Take from a delta with calls, at the end or behind it, what is all of the thought or of the text before it: no answer
        is likely to say it twice in a row. Behind another thought, a text may well come again."""
        for (kind, names), text in zip(_FIELDS, (_thought_of(delta), delta.content), strict=True):
            if text and isinstance(text, str) and len(text) >= _LEAST_REPEATED and text_of(kind) == text:
                self.repairs["message_repeated"] += 1
                for name in names:
                    setattr(delta, name, None)
            elif text:
                return

    def _read_delta(self, delta: chat.Delta, logprobs: list[TokenLogprob] | None, out: list[Delta]) -> None:
        reasoning = _thought_of(delta)
        if reasoning:
            self._details_alone = False
        elif delta.reasoning_details is not None and self._details_alone:  # OpenRouter sends the same text in both fields
            reasoning = text_of(delta.reasoning_details)
        content = delta.content
        refusal = delta.refusal
        if self._calls is not None and (reasoning or content or refusal):
            self._calls.settle(out)
        if reasoning:
            self._reasoning_came = True
            self._thought_again = self._text_came
            out.append(Reasoning(reasoning))
        if self._reasoning_came and not self._text_came and content and isinstance(content, str):
            content = self._beyond_echo(content, reasoning or "")
        if content:
            self._text_came = True
            if isinstance(content, str):
                if logprobs:
                    logprobs = within(logprobs, content)
                if self._early_logprobs:
                    logprobs = self._early_logprobs + (logprobs or [])
                    self._early_logprobs = []
                out.append(Text(content, logprobs))
            else:
                _read_parts(content, out)
        elif logprobs and content is not None:
            self._early_logprobs += logprobs
        if refusal:
            self._text_came = True
            out.append(Text(refusal) if self._refusal_as_text else Refusal(refusal))
        out += attached(delta) if delta.annotations or delta.images else ()

    def _beyond_echo(self, content: str, reasoning: str) -> str | None:
        """Keep back a text that begins with the thought, in marks, because some servers send it in both places (MiniMax-M3, in
        the same chunks). Return what follows it, None for nothing, or all of a text that begins otherwise."""
        thought = self.said and self.said("reasoning")
        held = self._echo + content
        rest = held if thought is None else _behind_thought(held, thought + reasoning)
        self._echo = held if rest is None else ""
        if rest is None:
            return ""
        if rest != held:
            self._early_logprobs = []
            self.repairs["message_repeated"] += 1
        return rest or None

    def _end_echo(self, out: list[Delta]) -> None:
        """Give out a text that was kept back, unless it is the thought so far."""
        if not self._echo:
            return
        thought = self.said and self.said("reasoning")
        if thought and _behind_thought(f"{self._echo}{_CLOSING}", thought) == "":
            self.repairs["message_repeated"] += 1
        else:
            out.append(Text(self._echo, self._early_logprobs or None))
        self._echo = ""
        self._early_logprobs = []

    def _spelled(self, logprobs: list[TokenLogprob]) -> list[TokenLogprob]:
        tokens, dropped = spelled(logprobs)
        if dropped:
            self.repairs["logprobs_dropped"] += 1
        return tokens

    def _with_joined_surrogates(self, deltas: list[Delta]) -> list[Delta]:
        """Return the deltas with surrogate pairs joined that the server cut in two; half a pair alone becomes U+FFFD."""
        kept: list[Delta] = []
        for delta in deltas:
            half = self._half
            if half is not None and (type(delta) is ToolCall or (isinstance(delta, _Piece) and not _continues(half, delta))):
                self._replace_half(half, kept)
            if isinstance(delta, _Piece):
                self._join(delta)
                if not delta.text:
                    continue
            kept.append(delta)
        return kept

    def _join(self, delta: _Piece) -> None:
        """Put the half that waits before a text, and keep back the half at its end."""
        text = delta.text if self._half is None else self._half.text + delta.text
        joined = self._half is not None and "\udc00" <= delta.text[0] < "\ue000"
        self._half = None
        if "\ud800" <= text[-1] < "\udc00":
            self._half = copy(delta)
            self._half.text = text[-1]
            if isinstance(self._half, Text):
                self._half.logprobs = None
            text = text[:-1]
        delta.text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        if joined:
            self.repairs["surrogates_joined"] += 1
        if delta.text.count(_SURROGATE) > text.count(_SURROGATE):
            self.repairs["surrogates_replaced"] += 1

    def _replace_half(self, half: _Piece, out: list[Delta]) -> None:
        """End the text that ends in half a surrogate pair: what follows has nothing to do with it."""
        half.text = _SURROGATE
        out.append(half)
        self._half = None
        self.repairs["surrogates_replaced"] += 1


def _end_of(whole: str | None, part: str | None) -> str:
    """Return what a text has behind a `part`, its beginning; nothing if it begins otherwise."""
    if not whole or not part:
        return ""
    begin = len(whole) - len(whole.lstrip())  # because the white space before a text may not have been written
    beginning = part.lstrip()
    end = whole[begin + len(beginning) :] if whole.startswith(beginning, begin) else ""
    return end if end.strip() else ""


def _behind_thought(text: str, thought: str) -> str | None:
    """Return what follows the thought with which a text begins, in marks; None while that is open; all of any other text."""
    visible = text.lstrip()
    inside = visible.removeprefix(_OPENING)
    if not visible or len(text) > _LONGEST_ECHO:
        return text
    if inside == visible:
        return None if _OPENING.startswith(visible) else text
    repeated, closing, rest = inside.partition(_CLOSING)
    if closing:
        return rest.lstrip("\n") if repeated.strip() == thought.strip() else text
    # The marker that closes it may have begun.
    return None if thought.lstrip().startswith(repeated[: -len(_CLOSING)].lstrip()) else text


def _thought_of(delta: chat.Delta) -> str | None:
    return delta.reasoning or delta.reasoning_content or delta.thinking or delta.reasoning_text


def _take_thought(delta: chat.Delta, in_tags: bool) -> bool:
    """Make reasoning of a content that Google's API marks as a thought. It stands in tags, the last of which may come with the
    text behind it: tell whether it is still to come."""
    match delta:
        case chat.Delta(extra_content={"google": {"thought": True}}, content=str(content)):
            delta.reasoning, closing, delta.content = content.removeprefix(_TAGS[0]).partition(_TAGS[1])
            return not closing
        case chat.Delta(content=str(content)) if content and in_tags:
            delta.content = content.removeprefix(_TAGS[1])
            return False
    return in_tags


def _continues(half: _Piece, delta: Delta) -> bool:
    """Tell whether a delta is more of the text that ends in half a surrogate pair."""
    return type(delta) is type(half) and getattr(delta, "index", 0) == getattr(half, "index", 0)


def _read_parts(parts: list[Any], out: list[Delta]) -> None:
    """Read content that is a list of parts: text, and thinking with parts of its own (Mistral) or a summary (Databricks)."""
    for part in ({"text": part} if isinstance(part, str) else part for part in parts):
        if not isinstance(part, dict):
            continue
        text = part.get("text")
        thinking = part.get("thinking") or part.get("summary")
        if isinstance(thinking, list):
            thinking = "".join(texts_in(thinking))
        if isinstance(thinking, str) and thinking:
            out.append(Reasoning(thinking))
        elif isinstance(text, str) and text:
            out.append(Text(text))
