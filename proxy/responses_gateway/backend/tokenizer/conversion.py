"""Tokenizers in other formats than `tokenizer.json` (sentencepiece, tiktoken, tekken), read by `transformers`.

Needs the packages of the extra `transformers`. Most are converted to the content of a `tokenizer.json`. A tokenizer that is
Python code of the model's own is used as it is, where the settings trust it. Nothing is downloaded."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from responses_gateway.extras import how_to_install

TEKKEN_FILE = "tekken.json"
# In the order in which they count.
OTHER_FILES = (TEKKEN_FILE, "tokenizer.model", "tiktoken.model", "vocab.json")

_GROUP_LIMIT = 16  # tokens that make up one character; where more do, the tokenizer changes the text


class TokenizerError(Exception):
    """The tokenizer of the settings cannot be used. The message tells operators why, and what to do."""


@dataclass(frozen=True)
class PythonEncoding:
    """The tokens of a text, as `tokenizers.Encoding` has them."""

    ids: list[int]
    offsets: list[tuple[int, int]]

    @property
    def word_ids(self) -> list[int | None]:
        """Words are not known."""
        return [None] * len(self.ids)

    def __len__(self) -> int:
        return len(self.ids)


class PythonTokenizer:
    """Gives a tokenizer written in Python the methods of `tokenizers.Tokenizer` that are used here."""

    def __init__(self, tokenizer: Any) -> None:
        self.encode_special_tokens = False  # the text of a special token is ordinary text
        self._tokenizer = tokenizer

    def copy(self) -> PythonTokenizer:
        """Return another one, with options of its own."""
        return PythonTokenizer(self._tokenizer)

    def encode(self, text: str, *, add_special_tokens: bool) -> PythonEncoding:
        """Encode a text."""
        options = {"split_special_tokens": True} if self.encode_special_tokens else {}
        ids = list(self._tokenizer.encode(text, add_special_tokens=add_special_tokens, **options))
        return PythonEncoding(ids, self._offsets(ids, text))

    def decode(self, token_ids: list[int], *, skip_special_tokens: bool) -> str:
        """Return the text of tokens."""
        text: str = self._tokenizer.decode(token_ids, skip_special_tokens=skip_special_tokens)
        return text

    def get_added_tokens_decoder(self) -> Mapping[int, Any]:
        """Return the added tokens by their ids."""
        tokens: Mapping[int, Any] = self._tokenizer.added_tokens_decoder
        return tokens

    def _offsets(self, ids: Sequence[int], text: str) -> list[tuple[int, int]]:
        """Find where each token begins and ends in the text. Several tokens that make up one character share it."""
        offsets: list[tuple[int, int]] = []
        group: list[int] = []
        at = 0
        for token in ids:
            group.append(token)
            spelled = self._tokenizer.decode(group)
            if spelled and text.startswith(spelled, at):
                offsets += [(at, at + len(spelled))] * len(group)
                at += len(spelled)
                group = []
            elif len(group) > _GROUP_LIMIT:
                break
        return offsets + [(at, len(text))] * (len(ids) - len(offsets))


def convert(folder: Path, *, trust_remote_code: bool = False) -> bytes | PythonTokenizer:
    """Read the tokenizer of a folder: return the content of a `tokenizer.json`, or a tokenizer that runs the model's own code.
    `trust_remote_code`: run that code. Takes seconds the first time: call it in a thread. Raises `TokenizerError`."""
    try:
        transformers = importlib.import_module("transformers")
    except ImportError:
        raise TokenizerError(
            f"tokenizer: {folder} has no tokenizer.json, and its other files need packages that are missing: "
            f"{how_to_install('transformers')}"
        ) from None
    # Only this class converts tekken files; the others have Mistral's own package read them, if it is installed.
    reader = transformers.TokenizersBackend if (folder / TEKKEN_FILE).is_file() else transformers.AutoTokenizer
    options = {} if reader is not transformers.AutoTokenizer else {"trust_remote_code": trust_remote_code}
    try:
        tokenizer = reader.from_pretrained(str(folder), local_files_only=True, **options)
    except Exception as error:  # the files, and their code, may raise anything
        raise TokenizerError(f"tokenizer: {folder}: {_advice(error, trust_remote_code)}") from None
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return PythonTokenizer(tokenizer)
    content: str = backend.to_str()
    return content.encode()


def _advice(error: Exception, trust_remote_code: bool) -> str:
    if "trust_remote_code" in str(error) and not trust_remote_code:
        return "its tokenizer is Python code that comes with the model. If you trust it, set trust_remote_code"
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return f"transformers cannot read it: {lines[0]}"
