"""Decode the chunks of a Chat Completions stream, as far as the gateway uses them.

The structs have the field names of all servers (`reasoning` of vLLM and OpenRouter, `reasoning_content` of DeepSeek, SGLang
and llama.cpp, `thinking` of Ollama, `reasoning_text` of GitHub Copilot); the decoder skips all other fields without building
them. A body that is a whole `chat.completion` can be decoded too: its `message` has the shape of a delta.

Fields of other types are converted: `tool_calls` as one object (TGI), reasoning as an object or a list, null for an index,
12.0 for a number of tokens, a number for the id of a call: the meaning is clear, and no reason to fail a response. What an
answer can do without (details of usage, log probabilities, ids) is left out if it cannot be understood. What it is made of
(texts, names and arguments of calls, finish_reason, the counts of tokens) is not."""

from __future__ import annotations

import json
import re
from array import array
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Annotated, Any

import msgspec

from responses_gateway.wire.error_reasons import error_in, says_something

# The field in which GitHub Copilot's API has what it wants back, and the type of that where it is kept among details.
OPAQUE = "reasoning_opaque"
# The fields in which servers send reasoning.
REASONING = ("reasoning", "reasoning_content", "thinking", "reasoning_text")
_TEXTS = ("text", "content", "summary", "thinking")  # fields in which an object may have its text
_RAW = ("prompt_token_ids", "sglext", "weight_versions")  # fields that are kept as they came
# Tokens of one answer; a server that tells of more is mistaken, and sums of such counts would not fit into a database.
_MOST_TOKENS = 10**12
_DIGITS = 16  # a text of so many digits is no number that means anything here
_PROMPT_END = 256  # bytes with the last ids of a prompt: more than are looked at, since the first one may be cut
_NUMBERS = re.compile(rb"[0-9]+")
# A text that says so, in the place of a chunk: "Error: …", "[ERROR] …", "An error occurred", "ValueError: …".
_ERROR_TEXT = re.compile(
    rb"\s{0,9}[\[\"(]?(?:[\w.'-]{1,40}:? ){0,4}?[\w.]{0,60}?(?:errors?|exception|failed|failure|fatal)\b", re.IGNORECASE
)
_MARKS = re.compile(rb'[{}\[\]"\\<>]')  # what a part of a chunk has in it, or a page in its place
# A sign of life in brackets, as `[DONE]` is: no JSON begins like that. What may be meant for that is none.
_LABEL = re.compile(rb"\[(?!(?:null|true|false|NaN|Infinity|done)\])[A-Za-z][\w -]*\]")


class FunctionDelta(msgspec.Struct, gc=False):
    """`function` of a tool call: the name (in the first delta) and a piece of the arguments."""

    name: str | None = None
    arguments: str | dict[str, Any] | list[Any] | int | float | bool | None = None
    parameters: Any = None  # what some servers call the arguments, as `input`
    input: Any = None
    provider_specific_fields: None = None  # as that of a call


class ToolCallDelta(msgspec.Struct, gc=False):
    """One entry of `delta.tool_calls`."""

    index: int | None = None
    id: str | None = None
    function: FunctionDelta | None = None
    # What only the server understands, and wants back with the call (Gemini's `thought_signature`).
    extra_content: dict[str, Any] | None = None
    # The same at LiteLLM and others; `converted` makes `extra_content` of it.
    provider_specific_fields: None = None
    thought_signature: None = None
    name: Any = None  # of servers that leave `function` out, as those below
    arguments: Any = None
    parameters: Any = None
    input: Any = None


class Delta(msgspec.Struct, gc=False):
    """`choices[0].delta`, or `choices[0].message` of an answer that is not streamed."""

    content: str | list[Any] | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    thinking: str | None = None
    reasoning_text: str | None = None
    reasoning_details: Any = None
    reasoning_opaque: Any = None
    refusal: str | None = None
    tool_calls: list[ToolCallDelta] | None = None
    function_call: FunctionDelta | None = None
    extra_content: Any = None  # Google's API marks thoughts with it
    annotations: Any = None  # of servers that search themselves
    images: Any = None  # OpenRouter
    finish_reason: None = None  # `converted` gives it to the choice


_Byte = Annotated[int, msgspec.Meta(ge=0, le=255)]


class TopLogprob(msgspec.Struct, gc=False):
    """One alternative of a token."""

    token: str
    logprob: float
    bytes: list[_Byte] | None = None


class TokenLogprob(TopLogprob, gc=False):
    """A sampled token with its log probability (natural logarithm)."""

    top_logprobs: list[TopLogprob] | None = None


class Logprobs(msgspec.Struct, gc=False):
    """`choices[0].logprobs`."""

    content: list[TokenLogprob] | None = None
    token_logprobs: list[float | None] | None = None  # of text completions, as `tokens`
    tokens: list[str | None] | None = None


class Choice(msgspec.Struct, gc=False):
    """One entry of `choices`; the gateway asks for one."""

    index: int = 0
    delta: Delta | None = None
    message: Delta | None = None
    logprobs: Logprobs | None = None
    finish_reason: str | None = None
    stop_reason: Any = None  # the stop string that the model wrote, or the id of its stop token: vLLM, SGLang
    matched_stop: Any = None
    token_ids: list[int] | None = None
    error: Any = None
    text: Any = None  # of text completions, which have no delta
    prompt_token_ids: msgspec.Raw = msgspec.Raw()
    weight_versions: msgspec.Raw = msgspec.Raw()  # what vLLM tells of sampling if it is asked, and SGLang in `sglext`
    sglext: msgspec.Raw = msgspec.Raw()

    @property
    def stop_string(self) -> str | None:
        """The stop string that the model wrote, if the server tells."""
        matched = self.matched_stop if type(self.matched_stop) is str else None
        return self.stop_reason if type(self.stop_reason) is str else matched


class PromptTokensDetails(msgspec.Struct, gc=False):
    """`usage.prompt_tokens_details`; `created_cache_tokens` is vLLM's."""

    cached_tokens: int | None = None
    created_cache_tokens: int | None = None


class CompletionTokensDetails(msgspec.Struct, gc=False):
    """`usage.completion_tokens_details`."""

    reasoning_tokens: int | None = None


def possible(count: int | None) -> int | None:
    """Return a count of tokens if it can be true, else None."""
    return count if count is not None and 0 <= count <= _MOST_TOKENS else None


class ChatUsage(msgspec.Struct, gc=False):
    """Token counts as a chat server reports them."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    total_tokens: int | None = None
    prompt_tokens_details: PromptTokensDetails | None = None
    completion_tokens_details: CompletionTokensDetails | None = None
    # Set by `usage.usage_in`: what was read from the cache, or written to it, may be no part of the prompt's.
    apart: bool = False
    elsewhere: bool = False  # set by it, too: the counts are not those of the chunk's `usage`


class Chunk(msgspec.Struct, gc=False):
    """One `data:` payload. `error` may be of any type, usually an object or a text."""

    choices: list[Choice] | None = None
    usage: ChatUsage | None = None
    error: Any = None
    finish_reason: None = None  # `converted` gives it to the choices
    # vLLM, in the first chunk: as it came, since there may be hundreds of thousands.
    prompt_token_ids: msgspec.Raw = msgspec.Raw()
    sglext: msgspec.Raw = msgspec.Raw()  # SGLang, at the end, if it is asked
    # Set by `decode_chunk`: the payload was not valid Unicode and may contain halves of surrogate pairs.
    lenient: bool = False
    converted: bool = False  # set by `decode_chunk`: some fields had other types

    @property
    def prompt_ids(self) -> bytes:
        """The ids of the prompt, as they came with the chunk or its first choice; nothing if there are none."""
        ids = bytes(self.prompt_token_ids or (self.choices[0].prompt_token_ids if self.choices else b""))
        return ids if ids[:1] == b"[" else b""  # not null

    @property
    def prompt_end(self) -> list[int]:
        """The ids of the last tokens of the prompt, if the server sends them."""
        return [int(number) for number in _NUMBERS.findall(bytes(memoryview(self.prompt_token_ids)[-_PROMPT_END:]))[-8:]]

    def failure(self, payload: bytes) -> Any:
        """Return the error that a server reports in this chunk, whose payload it is, in whatever form; None: a part of one."""
        choices = self.choices or ()
        alone = self.choices is None and self.usage is None
        if self.error is not None and ((alone and self.error != "") or says_something(self.error)):
            return (error_in(payload) if alone else None) or self.error  # because a code may stand beside it
        for choice in choices:
            if choice.error is not None and says_something(choice.error):
                return choice.error
        is_part = choices or (self.usage is not None and self.usage.prompt_tokens)
        return None if is_part else error_in(payload)

    def may_count(self, payload: bytes) -> bool:
        """Tell whether this chunk, whose payload it is, may have counts that were not decoded. Three searches, because a
        regular expression with alternatives takes five times as long, and most chunks are searched."""
        if self.usage is not None and self.usage.prompt_tokens and self.choices and self.choices[0].finish_reason is None:
            return False  # because the last chunk counts again: reading all names takes longer than the chunk
        find = payload.find  # `in` would make and catch an error each time
        return self.usage is not None or find(b'okens"') >= 0 or find(b'ount"') >= 0 or find(b'"predicted_n"') >= 0


_decoder = msgspec.json.Decoder(Chunk)


class MalformedChunk(ValueError):
    """A payload that is not a chat chunk."""


class ForeignEvent(MalformedChunk):
    """A payload that holds no part of an answer, such as a sign of life: nothing is lost if it is skipped."""


def decode_chunk(payload: bytes) -> Chunk:
    """Decode one payload. Raises `MalformedChunk`. Servers that escape non-ASCII text may split a surrogate pair between two
    chunks. Strict decoders refuse the halves, so a refused payload is decoded again by the standard library, which keeps them
    (the reader joins them). Bytes that are not UTF-8 become U+FFFD. Fields of other types are converted."""
    try:
        return _decoder.decode(payload)
    except RecursionError as error:
        raise MalformedChunk(str(error)) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        reason = str(error)  # not the error itself, whose traceback would hold this frame, and the request with it
    try:
        value = json.loads(payload.decode("utf-8", "replace"))
        if isinstance(value, dict):
            for part in (value, *_objects(value.get("choices"))):
                for name in _RAW:  # cannot be converted
                    part.pop(name, None)
        try:
            chunk = msgspec.convert(value, Chunk)
        except msgspec.ValidationError:
            chunk = msgspec.convert(converted(value), Chunk, strict=False)
            chunk.converted = True
    except (ValueError, RecursionError):  # including msgspec.ValidationError
        if _ERROR_TEXT.match(payload):
            return Chunk(error=payload.decode("utf-8", "replace").strip().strip('"'))
        raise (ForeignEvent if _is_foreign(payload) else MalformedChunk)(reason) from None
    chunk.lenient = True
    return chunk


def brings_more(delta: Delta) -> bool:
    """Tell whether a delta brings more than a role."""
    return any(msgspec.structs.astuple(delta))


def first_failure(payloads: Iterable[bytes]) -> tuple[bool, Any]:
    """Tell whether the first payloads of a stream show what it is, and return the error if it is one. A chunk that only names
    the role does not show it."""
    for payload in payloads:
        with suppress(MalformedChunk):
            chunk = decode_chunk(payload)
            failure = chunk.failure(payload)
            parts = [(choice.delta, choice.text or choice.finish_reason) for choice in chunk.choices or ()]
            if failure is not None or any(other if delta is None else brings_more(delta) for delta, other in parts):
                return True, failure
    return False, None


def _is_foreign(payload: bytes) -> bool:
    """Tell whether a payload that is no chunk cannot be half of one either: it is empty, or a word, a number or a time, quoted
    or not, or a label in brackets (`[PING]`)."""
    bare = payload.strip()
    if len(bare) > 1 and bare[:1] == bare[-1:] == b'"':
        bare = bare[1:-1]
    bare = _LABEL.sub(b"", bare, count=1) if _LABEL.match(bare) else bare
    return bare.replace(b" ", b"") == b"[]" or (_MARKS.search(bare) is None and bare.decode("utf-8", "ignore").encode() == bare)


def converted(chunk: Any) -> Any:
    """Convert the payload of a chunk, in place, to the types of `Chunk`; anything not understood is left unchanged."""
    if isinstance(chunk, list) and len(chunk) == 1:  # Gemini's errors
        chunk = chunk[0]
    if not isinstance(chunk, dict):
        return chunk
    choices = chunk.get("choices")
    if isinstance(choices, list):
        chunk["choices"] = [choice for choice in choices if choice]  # null, or nothing else
    reason = _reason(chunk.pop("finish_reason", None))
    if reason not in (None, "error") and chunk.get("choices") == [] and not chunk.get("error"):
        chunk["choices"] = [{}]
    for choice in _objects(chunk.get("choices")):
        _convert_choice(choice, reason)
    usage = chunk.get("usage")
    if isinstance(usage, dict):
        chunk["usage"] = _converted_usage(usage, needed=not chunk.get("choices"))
    elif not usage or chunk.get("choices"):
        chunk["usage"] = None
    return chunk


def _convert_choice(choice: dict[str, Any], reason: str | None) -> None:
    """Convert a choice. `reason`: why it ended, if the chunk tells beside it."""
    if choice.get("index", 0) is None:
        del choice["index"]
    choice["logprobs"] = _logprobs(choice.get("logprobs"))
    if not _are_ids(choice.get("token_ids")):
        choice["token_ids"] = None
    choice["delta"] = choice.get("delta") or None
    choice["message"] = choice.get("message") or None
    for delta in _objects([choice["delta"], choice["message"]]):
        reason = _reason(delta.pop("finish_reason", None)) or reason
        _convert_delta(delta)
    if not choice.get("finish_reason") or isinstance(choice["finish_reason"], dict):
        choice["finish_reason"] = _reason(choice.get("finish_reason")) or reason


def _reason(value: Any) -> str | None:
    """Return why an answer ended, which is a text, or an object that has one (SGLang's own API)."""
    if isinstance(value, dict):
        value = value.get("type") or value.get("reason")
    return value if isinstance(value, str) and value else None


def ids_in(raw: bytes) -> array[int] | None:
    """Return the ids in a JSON list; None if it is none of ids."""
    try:
        return array("q", msgspec.json.decode(raw or b"null", type=list[int]))
    except (msgspec.DecodeError, OverflowError):
        return None


def text_of(value: Any) -> str:
    """Extract the text of a string, of an object that has one, or of a list of either; it may be empty."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "".join(text for part in value if (text := text_of(part)))
    if isinstance(value, dict):
        return next((text for name in _TEXTS if (text := text_of(value.get(name)))), "")
    return ""


def texts_in(content: object) -> list[str]:
    """Return the texts of the content of a message, which is one or a list of parts; it may be anything."""
    parts: list[Any] = content if isinstance(content, list) else [{"text": content}]
    return [part["text"] for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str)]


def has_media(messages: Iterable[Mapping[str, Any]]) -> bool:
    """Tell whether a message of a chat request has a part that is not text."""
    lists = (message["content"] for message in messages if isinstance(message.get("content"), list))
    return any(part.get("type") not in ("text", "refusal") for parts in lists for part in parts if isinstance(part, dict))


def _convert_delta(delta: dict[str, Any]) -> None:
    for name in ("content", *REASONING):
        if isinstance(delta.get(name), int | float):  # as Cloudflare's Workers AI sends a token that reads as a number
            delta[name] = json.dumps(delta[name])
    for name in REASONING:
        if isinstance(delta.get(name), dict | list):
            delta[name] = text_of(delta[name])
    if isinstance(delta.get("content"), dict):
        delta["content"] = [delta["content"]]
    if not isinstance(delta.get("refusal"), str):
        delta["refusal"] = text_of(delta.get("refusal"))
    calls = delta.get("tool_calls")
    if isinstance(calls, dict | list):
        delta["tool_calls"] = list(_objects([calls] if isinstance(calls, dict) else calls))
        for call in delta["tool_calls"]:
            call["id"] = str(call["id"]) if type(call.get("id")) in (str, int, float) else None
            call["index"] = whole_number(call.get("index"))
            if isinstance(call.get("function"), str):
                call["name"] = call.pop("function")
            signature = _signature(call)
            if not isinstance(call.get("extra_content"), dict):
                call["extra_content"] = signature
    delta["tool_calls"] = delta.get("tool_calls") or None
    delta["function_call"] = delta.get("function_call") or None


def _signature(call: dict[str, Any]) -> dict[str, Any] | None:
    """Take the signature of a call from it, or from its function; return what goes back to the server with the call."""
    fields = [part.pop("provider_specific_fields", None) for part in _objects([call, call.get("function")])]
    alone = call.pop("thought_signature", None)
    for signature in [part.get("thought_signature") for part in _objects(fields)]:
        if isinstance(signature, str) and signature:
            return {"provider_specific_fields": {"thought_signature": signature}}
    return {"thought_signature": alone} if isinstance(alone, str) and alone else None


def whole_number(value: Any) -> int | None:
    """Return a whole number, which may be written as another type; None for anything else, and for numbers so large that a
    decoder has rounded them."""
    if isinstance(value, str) and value.isdecimal() and len(value) < _DIGITS:
        return int(value)
    numeric = isinstance(value, int | float) and not isinstance(value, bool)
    return int(value) if numeric and abs(value) < 2**53 else None


def _converted_usage(value: dict[str, Any], *, needed: bool) -> dict[str, Any]:
    """Return the counts of tokens, and of their details those that are counts. What is no count stays as it is if it is
    `needed`: the chunk brings nothing else."""
    usage: dict[str, Any] = {"total_tokens": whole_number(value.get("total_tokens"))}
    for name in ("prompt_tokens", "completion_tokens"):
        count = whole_number(value.get(name))
        usage[name] = value.get(name) if count is None and needed else count
    for name in ("prompt_tokens_details", "completion_tokens_details"):
        if isinstance(counts := value.get(name), dict):
            usage[name] = {field: whole_number(count) for field, count in counts.items()}
    return usage


def _are_ids(values: Any) -> bool:
    """Tell whether this is a list of token ids."""
    return isinstance(values, list) and all(type(value) is int and abs(value) < 2**53 for value in values)


def _logprobs(value: Any) -> dict[str, Any] | None:
    """Return log probabilities in OpenAI's shape, and None for any other, which cannot be sent in a response."""
    tokens = value.get("content") if isinstance(value, dict) else None
    return {"content": tokens} if isinstance(tokens, list) and all(map(_is_logprob, tokens)) else None


def _is_logprob(entry: Any) -> bool:
    if not isinstance(entry, dict) or not isinstance(entry.get("token"), str):
        return False
    tops = entry.get("top_logprobs") or []
    spelled = entry.get("bytes") or []
    lists = isinstance(tops, list) and isinstance(spelled, list) and all(one in range(256) for one in spelled)
    return lists and isinstance(entry.get("logprob"), int | float) and all(map(_is_logprob, tops))


def _objects(values: Any) -> Iterator[dict[str, Any]]:
    """Iterate over the objects in a list."""
    return (value for value in (values if isinstance(values, list) else ()) if isinstance(value, dict))
