"""Tokenizers of the kinds that language models have, each trained in milliseconds on a page of text."""

from __future__ import annotations

import json
from functools import cache

from tokenizers import Encoding, Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

from responses_gateway.stream.tokens.meter import Encode

PAGE = [
    "The gateway stands between them and translates a live stream without ever telling a lie about it.",
    "    def feed(self, data: bytes) -> list[str]:\n        return self._decoder.decode(data)",
    '{"name": "get_weather", "arguments": {"city": "Zürich", "days": [1, 2, 3], "unit": "°C"}}',
    "这是一个测试，模型的输出没有空格。日本語のテキストもあります、はい。",
    "-" * 70,
    "=" * 80,
    "aaaa bbbb aaaaaaaa 2026-11-20 12345678",
] * 10

_WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_BYTES = [f"<0x{byte:02X}>" for byte in range(256)]


def _byte_level(*splits: str, normalizer: normalizers.Normalizer | None = None) -> Tokenizer:
    """BPE over bytes. `splits`: expressions that isolate words, one after the other; GPT-2's own if there are none."""
    tokenizer = Tokenizer(models.BPE())
    stages: list[pre_tokenizers.PreTokenizer] = [pre_tokenizers.Split(Regex(split), "isolated") for split in splits]
    stages.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=not splits))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(stages)
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(PAGE, trainers.BpeTrainer(vocab_size=700, show_progress=False, initial_alphabet=alphabet))
    return tokenizer


def _sentence_piece(
    pre_tokenizer: pre_tokenizers.PreTokenizer | None, normalizer: normalizers.Normalizer | None = None
) -> Tokenizer:
    """BPE over characters, with bytes for what is not in the vocabulary. It is trained on words, whatever comes later."""
    tokenizer = Tokenizer(models.BPE(byte_fallback=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")
    tokenizer.train_from_iterator(PAGE, trainers.BpeTrainer(vocab_size=900, show_progress=False, special_tokens=_BYTES))
    tokenizer.pre_tokenizer = pre_tokenizer
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    content = json.loads(tokenizer.to_str())
    content["added_tokens"] = []
    return Tokenizer.from_str(json.dumps(content))


@cache
def vocabulary(kind: str) -> Tokenizer:
    """Return one of `KINDS` or `PREFIXED`."""
    replace = normalizers.Replace(" ", "▁")
    match kind:
        case "gpt2":
            return _byte_level()
        case "llama3":
            return _byte_level(_WORDS)
        case "qwen3":
            return _byte_level(_WORDS, normalizer=normalizers.NFC())
        case "deepseek":
            return _byte_level(r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+", _WORDS)
        case "mistral":
            return _sentence_piece(pre_tokenizers.Metaspace(prepend_scheme="never"))
        case "gemma":
            return _sentence_piece(pre_tokenizers.Split(" ", "merged_with_previous"), replace)
        case "metaspace with prefix":
            return _sentence_piece(pre_tokenizers.Metaspace(prepend_scheme="first"))
        case "llama2":
            return _sentence_piece(None, normalizers.Sequence([normalizers.Prepend("▁"), replace]))
    raise KeyError(kind)


# Tokenizers that put nothing before a text.
KINDS = ("gpt2", "llama3", "qwen3", "deepseek", "mistral", "gemma")
# Tokenizers that put a space before a text which has none.
PREFIXED = ("metaspace with prefix", "llama2")


def encoder(kind: str) -> Encode:
    """Return the tokenizer's `encode`, without special tokens."""
    tokenizer = vocabulary(kind)

    def encode(text: str) -> Encoding:
        return tokenizer.encode(text, add_special_tokens=False)

    return encode
