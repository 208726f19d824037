"""Log probabilities: which tokens make up which text.

A chunk may bring the log probabilities of more tokens than its text has: of markers that a parser took out, of white space
that belongs to the template, of the end token. Each text gets those of its own tokens."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import accumulate

from responses_gateway.wire.chat import TokenLogprob
from responses_gateway.wire.deltas import Delta, Text

_WAITING_TOKENS = 256  # tokens that may wait for the rest of a text that ends inside one of them
# How vLLM writes a token where it was asked to send ids in place of texts (`--return-tokens-as-token-ids`).
_TOKEN_ID = re.compile(r"token_id:\d+")


def spelled(tokens: list[TokenLogprob]) -> tuple[list[TokenLogprob], int]:
    """Return the tokens with their texts in place of their ids, without those that have no text (parts of a character), and how
    many alternatives were left out because only their ids are known."""
    dropped = 0
    entries: list[TokenLogprob] = []
    for token in tokens:
        if token.bytes is not None and _TOKEN_ID.fullmatch(token.token) and bytes(token.bytes) != token.token.encode():
            tops = token.top_logprobs or []
            same = [top for top in tops if top.token == token.token]
            dropped += sum(top.token != token.token and _TOKEN_ID.fullmatch(top.token) is not None for top in tops)
            token.token = bytes(token.bytes).decode("utf-8", "replace")
            for top in same:
                top.token = token.token
                top.bytes = token.bytes
            token.top_logprobs = [top for top in tops if top in same or not _TOKEN_ID.fullmatch(top.token)]
        if token.token or token.bytes:
            entries.append(token)
    return entries, dropped


def within(tokens: list[TokenLogprob], text: str) -> list[TokenLogprob]:
    """Return those of the tokens that make up the text; all of them if they do not spell it."""
    place = _place(tokens, text.encode("utf-8", "replace"))
    return tokens if place is None else tokens[place[0] : place[1]]


def split_at(tokens: list[TokenLogprob], text: str) -> tuple[list[TokenLogprob], list[TokenLogprob]]:
    """Return the tokens of the text, and those of what follows it. A token of both belongs to the visible one: to the text,
    unless that is white space."""
    left = len(text.encode("utf-8", "replace"))
    blank = text.isspace()
    for number, token in enumerate(tokens):
        size = len(_bytes_of(token))
        if left <= 0 or (blank and size > left):
            return tokens[:number], tokens[number:]
        left -= size
    return tokens, []


def _place(tokens: list[TokenLogprob], wanted: bytes) -> tuple[int, int] | None:
    """Return where the last tokens in a row begin and end that spell a text. Each place is compared once, because a server may
    write tokens in another way than the text, and then none spells it."""
    spelling = list(map(_bytes_of, tokens))
    ends = list(accumulate(map(len, spelling), initial=0))
    number_at = {end: number for number, end in enumerate(ends)}  # of tokens before a place; those without a text count
    whole = b"".join(spelling)
    at = whole.rfind(wanted) if wanted else -1
    while at >= 0:
        if at in number_at and at + len(wanted) in number_at:
            return number_at[at], number_at[at + len(wanted)]
        at = whole.rfind(wanted, 0, at + len(wanted) - 1)
    return None


def _bytes_of(token: TokenLogprob) -> bytes:
    return bytes(token.bytes) if token.bytes else token.token.encode("utf-8", "replace")


@dataclass
class ParsedLogprobs:
    """Assigns log probabilities to the text that a parser makes of their tokens; those of reasoning, calls and markers have no
    place. A piece of text may end inside a token. It then waits for the rest of the token. Where a text ends that is not made
    of whole tokens, its log probabilities are dropped, and counted."""

    dropped: int = 0  # texts that lost theirs
    _tokens: list[TokenLogprob] = field(default_factory=list)
    _text: str = ""  # given out, and made of some of these tokens

    def add(self, tokens: list[TokenLogprob]) -> None:
        """Add tokens of the text that is about to be parsed."""
        self._tokens += tokens

    def assign(self, deltas: list[Delta]) -> None:
        """Give each delta of text the log probabilities of its tokens."""
        if not self._tokens:
            return
        for delta in deltas:
            if type(delta) is Text:
                self._text += delta.text
                delta.logprobs = self._take()
            else:
                self._drop()
        if deltas and type(deltas[-1]) is not Text:
            self._tokens = []
        if self._text and len(self._tokens) > _WAITING_TOKENS:
            self.forget()

    def forget(self) -> None:
        """Drop these tokens: the text that follows has nothing to do with them."""
        self._drop()
        self._tokens = []

    def _drop(self) -> None:
        self.dropped += bool(self._text)
        self._text = ""

    def _take(self) -> list[TokenLogprob] | None:
        """Remove and return the last tokens in a row that make up the text; None if it has no such tokens yet."""
        place = _place(self._tokens, self._text.encode())
        if place is None:
            return None
        tokens = self._tokens[place[0] : place[1]]
        self._tokens = self._tokens[place[1] :]
        self._text = ""
        return tokens
