"""A tokenizer without a vocabulary file: deterministic, reversible, with tokens about as long as real ones.

A token is at most six bytes of UTF-8 (whole characters), and its id is the number of a leading 1 and those bytes, so that
any id can be turned back into text without a table. Special tokens of the chat format have the ids below 256. A model writes a
character of four bytes (an emoji) as two tokens, neither of which is a text."""

from __future__ import annotations

import re
from collections.abc import Iterable

# Special tokens by text; `<|im_end|>` ends an answer.
SPECIAL = {
    text: number
    for number, text in enumerate(("<|im_start|>", "<|im_end|>", "<think>", "</think>", "<tool_call>", "</tool_call>"), start=1)
}
END = "<|im_end|>"

_SPECIAL_TEXT = {number: text for text, number in SPECIAL.items()}
_SPECIALS = re.compile("(" + "|".join(re.escape(text) for text in SPECIAL) + ")")
_TOKEN = re.compile(r" ?[A-Za-z]{1,5}| ?[0-9]{1,3}| ?[!-/:-@\[-`{-~]{1,3}|[ \t]{1,6}|\n{1,4}|[\s\S]")


def split(text: str) -> list[str]:
    """Split a text into tokens, whose concatenation is the text."""
    tokens: list[str] = []
    for piece in _SPECIALS.split(text):
        tokens.extend((piece,) if piece in SPECIAL else _TOKEN.findall(piece))
    return tokens


def count(text: str) -> int:
    """Count the tokens of a text."""
    return len(split(text))


def token_id(token: str) -> int:
    """Return the id of a token that `split` returned."""
    special = SPECIAL.get(token)
    return special if special is not None else int.from_bytes(b"\x01" + token.encode("utf-8", "replace"), "big")


def encode(text: str) -> list[int]:
    """Return the token ids of a text."""
    return [token_id(token) for token in split(text)]


def halves(character: str) -> tuple[int, int] | None:
    """Return the ids of the two tokens as which a model writes a character; None where it is one token."""
    data = character.encode("utf-8", "replace")
    if len(character) != 1 or len(data) < 4:
        return None
    return int.from_bytes(b"\x01" + data[:2], "big"), int.from_bytes(b"\x01" + data[2:], "big")


def decode(ids: Iterable[int]) -> str:
    """Return the text of token ids, with U+FFFD for a character that is not whole. Raises `ValueError` for an invalid id."""
    return b"".join(map(_token_bytes, ids)).decode("utf-8", "replace")


def _token_bytes(number: int) -> bytes:
    if number in _SPECIAL_TEXT:
        return _SPECIAL_TEXT[number].encode()
    data = number.to_bytes(max(1, (number.bit_length() + 7) // 8), "big")
    if data[0] != 1 or len(data) < 2:
        raise ValueError(f"{number} is not a token id")
    return data[1:]
