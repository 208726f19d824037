"""Render tokens as the chunks of a chat stream, as far as they do not depend on the request.

Rendering is slow, and sending must be fast. So chunks are rendered once per script and style, cached, and shared by all
streams of the same script: a chunk that is sent consists of the stream's own head (id, time, model) and these bytes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from responses_gateway.simulator.dialect import Dialect, Shape
from responses_gateway.simulator.generation import Token, generate, unparsed, with_halves
from responses_gateway.simulator.script import Script
from responses_gateway.simulator.tokenizer import END, token_id

# A placeholder for the id of call N, which is new in every stream.
CALL_ID = "\x7fcall-%d\x7f"
_RANK = {"silent": -1, "reasoning": 0, "content": 1, "refusal": 1, "name": 2, "arguments": 2}


class RenderedChunk(NamedTuple):
    """A chunk without its head. `tokens` and `reasoning_tokens` count from the beginning of the answer, this chunk included."""

    body: bytes
    tokens: int
    reasoning_tokens: int
    field: str


@dataclass(frozen=True)
class Style:
    """Everything besides the script that its bytes depend on."""

    dialect: Dialect
    token_ids: bool = False
    opened: bool = False  # the prompt has opened the thought
    logprobs: int | None = None  # number of alternatives per token; None for no logprobs
    max_tokens: int | None = None  # the largest number of tokens, the end token included; None for no limit
    generated: int = 0  # the number of tokens that were generated elsewhere, and are part of the prompt


@dataclass(frozen=True)
class Rendered:
    """The chunks of an answer from the first token to the finish reason, whose counts are those of the whole answer."""

    chunks: tuple[RenderedChunk, ...]
    tokens: tuple[Token, ...]
    finish_reason: str
    calls: int


def render(script: Script, style: Style) -> Rendered:
    """Render the chunks of a script. Those of long scripts are not cached: they would fill the memory."""
    size = sum(len(getattr(step, "text", "")) for step in script.steps)
    return _render(script, style) if size > 100_000 or style.generated else _render_cached(script, style)


def written_tokens(script: Script, style: Style) -> list[Token]:
    """Return all tokens of an answer but the end token, whatever its limit."""
    dialect = style.dialect
    notation = dialect.markup or dialect.notation
    tokens = generate(script, notation, dialect.separators, dialect.interleave)
    if style.opened:
        tokens = _without_opening(tokens)
    if dialect.unparsed:
        tokens = list(unparsed(tokens, dialect.unparsed, "content"))
    if dialect.swallows_calls:
        tokens = list(unparsed(tokens, frozenset({"calls"}), "silent"))
    return list(with_halves(tokens))


def _render(script: Script, style: Style) -> Rendered:
    dialect = style.dialect
    tokens = written_tokens(script, style)
    if style.generated:
        tokens = _rest(tokens, style.generated)
    cut = style.max_tokens is not None and len(tokens) >= style.max_tokens
    if cut:
        tokens = tokens[: style.max_tokens]
    finish = "length" if cut else script.finish or _finish_reason(tokens, dialect)
    return Rendered(
        chunks=tuple(_chunks(tokens, style, finish, cut)),
        tokens=tuple(tokens),
        finish_reason=finish,
        calls=1 + max((token.call for token in tokens if token.field == "name"), default=-1),
    )


def _rest(tokens: list[Token], generated: int) -> list[Token]:
    """Return the tokens behind the first ones as a server's parser tells them that has not seen those: the rest of a call is
    text, up to its end."""
    rest: list[Token] = []
    before = [token.raw for token in tokens[:generated] if token.raw in ("<tool_call>", "</tool_call>")]
    in_call = before[-1:] == ["<tool_call>"]
    for token in tokens[generated:]:
        rest.append(token._replace(field="content", text=token.raw) if in_call else token)
        in_call = in_call and token.raw != "</tool_call>"
    return rest


def _without_opening(tokens: list[Token]) -> list[Token]:
    """Return the tokens of an answer whose thought the prompt has opened: one without a thought closes it first."""
    if tokens and tokens[0].raw == "<think>":
        return tokens[2:]
    return [Token("</think>", "silent", ""), Token("\n\n", "silent", ""), *tokens]


_render_cached = lru_cache(maxsize=32)(_render)


def _finish_reason(tokens: list[Token], dialect: Dialect) -> str:
    if dialect.markup or not any(token.field == "name" for token in tokens):
        return "stop"
    return "function_call" if dialect.function_call else "tool_calls"


def closing(shape: Shape) -> bytes:
    """Return what ends the bytes of every chunk: `usage` may be inserted before it."""
    return f"{shape.chunk_extra}}}\n\n".encode()


def _chunks(tokens: list[Token], style: Style, finish: str, cut: bool) -> list[RenderedChunk]:
    shape = style.dialect.shape
    show_silent = style.token_ids or style.logprobs is not None
    if not style.dialect.markup and shape.first_arguments == "whole":
        tokens = _whole_calls(tokens)
    groups = list(_groups(tokens, style.dialect))
    last = groups.pop() if cut and groups else []  # the text of a cut answer shares the chunk with the finish reason
    chunks: list[RenderedChunk] = []
    count = reasoning = 0
    for group in groups:
        count += len(group)
        reasoning += sum(token.field == "reasoning" for token in group)
        delta = _delta(group, style.dialect)
        if delta or show_silent or style.dialect.markup:
            body = _body(delta, group, style, None)
            field = max((token.field for token in group), key=lambda name: _RANK[name])
            chunks.append(RenderedChunk(body, count, reasoning, field))
    if not cut:
        last = [Token(END, "silent", "")]
    count += len(last)
    reasoning += sum(token.field == "reasoning" for token in last)
    body = _body(_delta(last, style.dialect), last, style, finish)
    return [*chunks, RenderedChunk(body, count, reasoning, "finish")]


def _groups(tokens: Sequence[Token], dialect: Dialect) -> Iterator[list[Token]]:
    """Group tokens that share a delta: `tokens_per_delta` of them, or fewer where a delta could not keep their order."""
    group: list[Token] = []
    rank = -1
    for token in tokens:
        token_rank = _RANK["content"] if dialect.markup else _RANK[token.field]
        if group and (len(group) >= dialect.tokens_per_delta or -1 < token_rank < rank):
            yield group
            group = []
            rank = -1
        group.append(token)
        rank = max(rank, token_rank)
    if group:
        yield group


def _whole_calls(tokens: list[Token]) -> list[Token]:
    """Put each call in one piece, at the position of its last arguments."""
    arguments: dict[int, str] = {}
    last: dict[int, int] = {}
    names: dict[int, str] = {}
    for position, token in enumerate(tokens):
        if token.field == "name":
            names[token.call] = token.text
        elif token.field == "arguments":
            arguments[token.call] = arguments.get(token.call, "") + token.text
            last[token.call] = position
    result = []
    for position, token in enumerate(tokens):
        if token.field == "arguments" and last[token.call] == position:
            # name and arguments, separated by a character that JSON text cannot contain
            result.append(Token(token.raw, "name", f"{names[token.call]}\0{arguments[token.call]}", token.call))
        elif token.field in ("name", "arguments"):
            result.append(Token(token.raw, "silent", "", token.call))
        else:
            result.append(token)
    return result


def _delta(group: list[Token], dialect: Dialect) -> dict[str, Any]:
    if dialect.markup:
        return {"content": "".join(token.raw for token in group if token.raw != END)} if group else {}
    delta: dict[str, Any] = {}
    calls: list[dict[str, Any]] = []
    for token in group:
        if token.field == "reasoning":
            if dialect.reasoning != "none":
                delta[dialect.reasoning] = delta.get(dialect.reasoning, "") + token.text
        elif token.field in ("content", "refusal"):
            delta[token.field] = delta.get(token.field, "") + token.text
        elif token.field in ("name", "arguments"):
            _add_call(calls, token, dialect.shape)
    if calls and dialect.function_call:
        delta["function_call"] = {key: value for part in calls for key, value in part["function"].items() if value}
    elif calls:
        if dialect.shape.null_content:
            delta.setdefault("content", None)
        delta["tool_calls"] = calls
    return {**dialect.shape.every_delta, **delta} if delta else {}


def _add_call(calls: list[dict[str, Any]], token: Token, shape: Shape) -> None:
    if token.field == "name":
        name, _, arguments = token.text.partition("\0")
        function = {"name": name}
        if shape.first_arguments != "absent":
            function["arguments"] = arguments
        calls.append({"id": CALL_ID % token.call, "type": "function", "index": token.call, "function": function})
    elif calls and calls[-1]["index"] == token.call and "id" not in calls[-1]:
        calls[-1]["function"]["arguments"] += token.text
    elif shape.repeats_call_keys:
        function_delta = {"name": None, "arguments": token.text}
        calls.append({"id": None, "type": "function", "index": token.call, "function": function_delta})
    else:
        calls.append({"index": token.call, "function": {"arguments": token.text}})


def _body(delta: dict[str, Any], group: list[Token], style: Style, finish: str | None) -> bytes:
    shape = style.dialect.shape
    written = dumps(delta)
    if not delta and finish is not None:
        written = shape.final_delta
    elif not delta and style.dialect.markup:
        written = '{"content":""}'
    choice = f'{{"index":0,"delta":{written}'
    if shape.has_logprobs:
        choice += f',"logprobs":{_logprobs(group, style)}'
    choice += f',"finish_reason":{dumps(finish)}'
    choice += shape.choice_extra if finish is None else shape.final_choice_extra
    if shape.server == "vllm":
        ids = [token.id or token_id(token.raw) for token in group] if style.token_ids else None
        choice += f',"token_ids":{dumps(ids)}'
    return f'"choices":[{choice}}}]'.encode("utf-8", "replace") + closing(shape)


def _logprobs(group: list[Token], style: Style) -> str:
    if style.logprobs is None:
        return "null"
    return dumps({"content": [_logprob(token.raw, style.logprobs) for token in group]})


def _logprob(token: str, alternatives: int) -> dict[str, Any]:
    data = list(token.encode("utf-8", "replace"))
    entry = {"token": token, "logprob": -0.001, "bytes": data}
    others = [{"token": f"?{n}", "logprob": -7.0 - n, "bytes": list(b"?%d" % n)} for n in range(alternatives - 1)]
    return {**entry, "top_logprobs": [entry, *others] if alternatives else []}


def dumps(value: Any) -> str:
    """Return compact JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
