"""Generate the tokens of a script.

Each token has two forms: the raw text, with markup, that a server without parsers passes on, and the field in which a server
with parsers puts it. The markup is that of Qwen3 (`<think>`, `<tool_call>`), in its two notations for calls."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import chain, zip_longest
from typing import Literal, NamedTuple

from responses_gateway.simulator.script import CallTool, Refuse, Say, Script, Step, Think
from responses_gateway.simulator.tokenizer import halves, split, token_id

# `hermes`: calls as JSON; `xml`: calls as `<function=NAME><parameter=KEY>`
Notation = Literal["hermes", "xml"]
# What a parser of a server takes out of the text.
Part = Literal["reasoning", "calls"]
# `silent`: a token that a parsing server does not show; `name`: the token that completes the head of a call
Field = Literal["silent", "reasoning", "content", "refusal", "name", "arguments"]


class Token(NamedTuple):
    """A token. `raw`: text as generated; `field` and `text`: the parsed form; `call`: number of the call in the answer.
    `id`: that of a part of a character, whose text comes with the last part; 0 where the id follows from `raw`."""

    raw: str
    field: Field
    text: str
    call: int = 0
    id: int = 0

    @property
    def number(self) -> int:
        """Its id, wherever that comes from."""
        return self.id or token_id(self.raw)


def generate(script: Script, notation: Notation = "hermes", separators: bool = True, interleave: bool = False) -> list[Token]:
    """Generate all tokens of a script except the end token. `separators`: white space between parts gets into the parsed
    fields, as it does with vLLM's parsers; `interleave`: the tokens of adjacent calls alternate."""
    tokens: list[Token] = []
    calls: list[list[Token]] = []
    number = 0
    previous: Step | None = None
    for step in script.steps:
        if calls and not isinstance(step, CallTool):
            tokens.extend(_joined(calls, interleave))
            calls = []
        between = _separator(previous, step, separators)
        if isinstance(step, CallTool):
            calls.append(between + _call(step, number, notation))
            number += 1
        else:
            tokens.extend(between)
            tokens.extend(_spoken(step, separators))
        previous = step
    tokens.extend(_joined(calls, interleave))
    return tokens


def with_halves(tokens: Iterable[Token]) -> Iterator[Token]:
    """Make two tokens of each character that a model writes as two."""
    for token in tokens:
        ids = halves(token.raw)
        if ids is None:
            yield token
        else:
            yield Token("", "silent", "", token.call, ids[0])
            yield token._replace(id=ids[1])


_BEGINNINGS: dict[str, Part] = {"<think>": "reasoning", "<tool_call>": "calls"}
_ENDS = frozenset({"</think>", "</tool_call>"})


def unparsed(tokens: Iterable[Token], parts: frozenset[Part], field: Field) -> Iterator[Token]:
    """Put the tokens of some parts, markup included, into one field as they were written."""
    inside: Part | None = None
    for token in tokens:
        inside = _BEGINNINGS.get(token.raw, inside)
        text = token.raw if field == "content" else ""
        yield Token(token.raw, field, text) if inside in parts else token
        if token.raw in _ENDS:
            inside = None


def _joined(calls: list[list[Token]], interleave: bool) -> Iterable[Token]:
    if not interleave:
        return chain.from_iterable(calls)
    return (token for turn in zip_longest(*calls) for token in turn if token is not None)


def _separator(previous: Step | None, step: Step, separators: bool) -> list[Token]:
    if previous is None:
        return []
    if isinstance(previous, Think):
        return [Token("\n\n", "content" if separators else "silent", "\n\n")]
    if isinstance(step, CallTool) and not isinstance(previous, CallTool):
        return [Token("\n", "content" if separators else "silent", "\n")]
    return [Token("\n", "silent", "")]


def _spoken(step: Think | Say | Refuse, separators: bool) -> Iterator[Token]:
    if isinstance(step, Think):
        newline = Token("\n", "reasoning" if separators else "silent", "\n")
        yield Token("<think>", "silent", "")
        yield newline
        yield from (Token(piece, "reasoning", piece) for piece in split(step.text))
        yield newline
        yield Token("</think>", "silent", "")
        return
    field: Field = "content" if isinstance(step, Say) else "refusal"
    yield from (Token(piece, field, piece) for piece in split(step.text))


def _call(step: CallTool, number: int, notation: Notation) -> list[Token]:
    if notation == "xml":
        return _xml_call(step, number)
    head = split(f'<tool_call>\n{{"name": {json.dumps(step.name)}, ')
    middle = split('"arguments": ')
    tokens = [Token(piece, "silent", "") for piece in head]
    tokens[-1] = Token(head[-1], "name", step.name, number)
    tokens += [Token(piece, "silent", "", number) for piece in middle]
    tokens += [Token(piece, "arguments", piece, number) for piece in split(step.arguments)]
    return tokens + [Token(piece, "silent", "", number) for piece in split("}\n</tool_call>")]


def _xml_call(step: CallTool, number: int) -> list[Token]:
    head = split(f"<tool_call>\n<function={step.name}>\n")
    tokens = [Token(piece, "silent", "") for piece in head]
    tokens[-1] = Token(head[-1], "name", step.name, number)
    parameters = _parameters(step.arguments).items()
    texts = {key: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False) for key, value in parameters}
    body = "".join(f"<parameter={key}>\n{text}\n</parameter>\n" for key, text in texts.items())
    tokens += [Token(piece, "arguments", piece, number) for piece in split(body)]
    return tokens + [Token(piece, "silent", "", number) for piece in split("</function>\n</tool_call>")]


def _parameters(arguments: str) -> dict[str, object]:
    try:
        value = json.loads(arguments)
    except ValueError:  # a script may have broken arguments on purpose
        return {"input": arguments}
    return value if isinstance(value, dict) else {"input": arguments}
