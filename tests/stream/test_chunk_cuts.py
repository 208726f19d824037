"""One answer of a model, cut into chunks in every way: the usage that its client gets is the same, and the true one."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import accumulate
from typing import Any, NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from responses_gateway import parsers
from responses_gateway.parsers import ThoughtTokens
from responses_gateway.stream.continuation.join import Join
from responses_gateway.stream.reading.markup import Markup
from responses_gateway.wire.errors import server_error
from tests.data_folder import STREAMS
from tests.stream.stream_player import DONE, event, judged, new_translator
from tests.thoroughness import examples

OPEN, CLOSE, CALL, END = 1, 2, 3, 4
MARKERS = {"<think>": OPEN, "</think>": CLOSE, "<tool_call>": CALL}
THOUGHTS = ThoughtTokens(frozenset({OPEN}), frozenset({CLOSE}), frozenset({CALL}))
PROMPT = [7, 8, 9]
LOST = server_error("The connection to the backend was lost.")
_RANK = {"silent": 0, "reasoning": 1, "content": 2, "arguments": 3}


class Token(NamedTuple):
    """One token: its id, the text that a raw server sends, and that of a server that parses, with its field. A character may
    come with the last of its tokens."""

    id: int
    raw: str
    field: str = "silent"
    text: str = ""


class Answer(NamedTuple):
    """What the model writes. `opened`: the prompt has opened the thought."""

    thoughts: Sequence[str]
    text: str
    call: str
    opened: bool
    closed: bool

    @property
    def tokens(self) -> list[Token]:
        found: list[Token] = []
        for number, thought in enumerate(self.thoughts):
            if number:
                found += written("content", self.text)
            if number or not self.opened:
                found.append(Token(OPEN, "<think>"))
            found += written("reasoning", thought)
            if self.closed or number + 1 < len(self.thoughts):
                found.append(Token(CLOSE, "</think>"))
        if self.closed or not self.thoughts:
            found += written("content", self.text)
            if self.call:
                found.append(Token(CALL, "<tool_call>"))
                arguments = json.dumps({"city": self.call})
                found += [Token(token.id, token.raw) for token in written("content", '{"name": "weather", "arguments": ')]
                found += written("arguments", arguments)
                found += [Token(6, "}"), Token(5, "</tool_call>")]
        return [*found, Token(END, "")]

    @property
    def thought_tokens(self) -> int:
        return sum(token.field == "reasoning" for token in self.tokens)


def written(field: str, text: str) -> list[Token]:
    """Return the tokens of a text: one for each word, and for each byte of anything else."""
    found: list[Token] = []
    for piece in re.findall(r" ?[!-~]+|.", text, re.DOTALL):
        found += [Token(50 + at, "", field) for at in range(1, len(piece.encode()))] if not piece.isascii() else []
        found.append(Token(100 + len(piece), piece, field, piece))
    return found


class Encoded:
    """A text as the model's tokenizer sees it."""

    def __init__(self, text: str) -> None:
        tokens = written("content", text)
        self.ids = [token.id for token in tokens]
        ends = list(accumulate(len(token.text) for token in tokens))
        self.offsets = [(end - len(token.text), end) for token, end in zip(tokens, ends, strict=True)]
        self.word_ids: list[int | None] = list(range(len(tokens)))

    def __len__(self) -> int:
        return len(self.ids)


def grouped(tokens: Sequence[Token], sizes: Sequence[int], *, raw: bool) -> list[list[Token]]:
    """Cut the tokens into chunks of these sizes, smaller where a chunk could not keep the order of its fields."""
    ends = set(accumulate(sizes * len(tokens)))
    groups: list[list[Token]] = [[]]
    for at, token in enumerate(tokens):
        ranks = [_RANK[before.field] for before in groups[-1]]
        if at in ends or (not raw and ranks and 0 < _RANK[token.field] < max(ranks)):
            groups.append([])
        groups[-1].append(token)
    return groups


def chunks(groups: Sequence[Sequence[Token]], how: dict[str, bool], before: int = 0, thought: int = 0) -> Iterator[bytes]:
    """Yield the chunks of the groups. With `usage_per_chunk`, the server counts one token of reasoning in each, wrongly."""
    called = False
    for group in groups:
        delta: dict[str, Any] = {}
        if how["raw"]:
            delta["content"] = "".join(token.raw for token in group)
        else:
            for field in ("reasoning", "content"):
                if text := "".join(token.text for token in group if token.field == field):
                    delta[field] = text
            if arguments := "".join(token.text for token in group if token.field == "arguments"):
                function = {"arguments": arguments} if called else {"name": "weather", "arguments": arguments}
                delta["tool_calls"] = [{"index": 0, "id": None if called else "a", "function": function}]
                called = True
        ended = group[-1].id == END
        choice: dict[str, Any] = {"index": 0, "delta": delta, "finish_reason": "stop" if ended else None}
        if how["ids"]:
            choice["token_ids"] = [token.id for token in group]
        before += len(group)
        thought += any(token.field == "reasoning" and token.text for token in group)
        usage = {
            "prompt_tokens": 3,
            "completion_tokens": before,
            "completion_tokens_details": {"reasoning_tokens": thought},
        }
        if how["usage_per_chunk"]:
            yield event({"choices": [choice], "usage": usage})
        else:
            yield event({"choices": [choice]})
            if ended:
                yield event({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": before}})
    yield DONE


def usage_of(answer: Answer, sizes: Sequence[int], how: dict[str, bool], broken_at: int | None = None) -> dict[str, Any]:
    """Return the usage of an answer in such chunks; `broken_at` this token, another server continues it."""
    markup = None
    if how["raw"]:
        schemas = {"weather": {"type": "object", "properties": {"city": {"type": "string"}}}}
        new_parser = partial(parsers.parser, "qwen3", "hermes", schemas=schemas, marker_ids=MARKERS if how["ids"] else None)
        markup = Markup(new_parser, thinking_open=answer.opened and bool(answer.thoughts))
    translator = new_translator(
        markup=markup,
        continuable=broken_at is not None,
        thoughts=THOUGHTS if how["ids"] else None,
        encode=Encoded if how["tokenizer"] else None,
    )
    first = {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}], "prompt_token_ids": PROMPT}
    data = translator.start() + translator.feed(event(first))
    tokens = answer.tokens
    if broken_at is not None:
        for piece in chunks(grouped(tokens[:broken_at], sizes, raw=True), how):
            data += b"" if piece == DONE else translator.feed(piece)
        partial_answer = translator.answer.partial()
        kept = partial_answer.ids[: partial_answer.whole]
        assert list(kept) == [token.id for token in tokens[: len(kept)]]
        translator.resume(Join(PROMPT, kept, overlap=partial_answer.tail), None)
        asked = {"choices": [{"index": 0, "delta": {}}], "prompt_token_ids": [*PROMPT, *kept]}
        data += translator.feed(event(asked))
        tokens = tokens[len(kept) :]
    for piece in chunks(grouped(tokens, sizes, raw=how["raw"]), how):
        data += translator.feed(piece)
    assert translator.ended
    usage: dict[str, Any] = judged(data, translator).response["usage"]
    return {**usage, "from": translator.tokens.reasoning_from, "kinds": translator.tokens.by_kind()}


words = st.lists(st.sampled_from(["so", "the", "river", "is", "模型", "é", "🤔", "x=1", "\n", "wide."]), min_size=1, max_size=9)
texts = words.map(" ".join)
answers = st.builds(
    Answer,
    thoughts=st.lists(texts.filter(str.strip), max_size=2),
    text=texts,
    call=st.sampled_from(["", "Paris"]),
    opened=st.booleans(),
    closed=st.sampled_from([True, True, False]),
)  # fmt: skip
cuts = st.lists(st.integers(1, 9), min_size=1, max_size=6) | st.just([1000])


@given(answer=answers, sizes=cuts, raw=st.booleans(), usage_per_chunk=st.booleans(), tokenizer=st.booleans())
@settings(max_examples=examples(30), deadline=None)
def test_with_ids_usage_is_exact_for_every_cut(answer: Answer, sizes: list[int], **how: bool) -> None:
    how["ids"] = True
    found = usage_of(answer, sizes, how)
    assert found == usage_of(answer, [1], how)
    assert found["output_tokens"] == len(answer.tokens)
    assert found["output_tokens_details"]["reasoning_tokens"] == answer.thought_tokens


@given(answer=answers, sizes=cuts, raw=st.booleans(), usage_per_chunk=st.booleans())
@settings(max_examples=examples(30), deadline=None)
def test_with_a_tokenizer_usage_is_exact_for_every_cut(answer: Answer, sizes: list[int], **how: bool) -> None:
    how |= {"ids": False, "tokenizer": True}
    found = usage_of(answer, sizes, how)
    assert found == usage_of(answer, [1], how)
    assert not answer.thoughts or found["from"] == "tokenizer"
    if answer.thoughts == [thought.strip() for thought in answer.thoughts]:  # a parser may take white space for markup
        assert found["output_tokens_details"]["reasoning_tokens"] == answer.thought_tokens


@given(answer=answers, sizes=cuts, raw=st.booleans())
@settings(max_examples=examples(30), deadline=None)
def test_without_either_the_estimate_is_the_same_for_every_cut(answer: Answer, sizes: list[int], raw: bool) -> None:
    how = {"ids": False, "tokenizer": False, "raw": raw, "usage_per_chunk": False}
    assert usage_of(answer, sizes, how) == usage_of(answer, [1], how)


@given(answer=answers, sizes=cuts, place=st.floats(0, 1), tokenizer=st.booleans())
# The tokens of its last chunk wait for others when it breaks off.
@example(answer=Answer([], "so so 模型", "Paris", opened=False, closed=True), sizes=[1], place=0.5, tokenizer=False)
@settings(max_examples=examples(30), deadline=None)
def test_an_answer_that_another_server_continues_has_the_usage_of_one(
    answer: Answer, sizes: list[int], place: float, tokenizer: bool
) -> None:
    how = {"ids": True, "tokenizer": tokenizer, "raw": True, "usage_per_chunk": False}
    broken_at = max(1, int(place * (len(answer.tokens) - 1)))
    found = usage_of(answer, sizes, how, broken_at)
    assert found == usage_of(answer, [1], how)


@pytest.mark.parametrize(("name", "reported", "true"), [("cjk", 13, 36), ("rethink", 4, 12), ("think", 13, 13)])
def test_a_real_vllm_that_counts_its_chunks_is_corrected(name: str, reported: int, true: int) -> None:
    """It leaves out tokens whose text it holds back, and every thought but the first."""
    stream = (STREAMS / "hermes" / f"{name}.0.ids.sse").read_bytes()
    for thoughts, expected in ((None, reported), (ThoughtTokens(frozenset({1505}), frozenset({1506})), true)):
        translator = new_translator(thoughts=thoughts)
        data = translator.start() + translator.feed(stream) + translator.finish()
        usage = judged(data, translator).response["usage"]
        assert usage["output_tokens_details"]["reasoning_tokens"] == expected
