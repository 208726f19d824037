"""Folders of models whose tokenizers come in other files than `tokenizer.json`, made here."""

from __future__ import annotations

import base64
import json
from pathlib import Path

TEXTS = ["Hello world, how are you?", "The quick brown fox jumps over the lazy dog.", "Zürich ist schön 😀 123 4567"] * 50
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}"
)
_CONTROL = ("<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[TOOL_CALLS]", "[ARGS]", "[THINK]", "[/THINK]")
# A tokenizer as the folders of some models have it: Python code around tiktoken.
_CODE = """
import tiktoken
from tiktoken.load import load_tiktoken_bpe
from transformers import PreTrainedTokenizer


class OwnTokenizer(PreTrainedTokenizer):
    vocab_files_names = {"vocab_file": "tiktoken.model"}

    def __init__(self, vocab_file, **options):
        ranks = load_tiktoken_bpe(vocab_file)
        self.special = {"<|im_end|>": len(ranks)}
        self.model = tiktoken.Encoding(
            "own", pat_str=r"\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+|\\s+", mergeable_ranks=ranks, special_tokens=self.special
        )
        super().__init__(**options)

    @property
    def vocab_size(self):
        return self.model.n_vocab

    def get_vocab(self):
        return {**{str(token): token for token in range(self.vocab_size)}, **self.special}

    def decode(self, ids, **options):
        return self.model.decode(ids)

    def _tokenize(self, text, **options):
        return [str(token) for token in self.model.encode(text, disallowed_special=())]

    def _convert_token_to_id(self, token):
        return self.special.get(token, int(token) if token.isdigit() else None)

    def _convert_id_to_token(self, index):
        return str(index)
"""


def sentencepiece_model(folder: Path) -> Path:
    """Train a small sentencepiece model."""
    import sentencepiece  # noqa: PLC0415  (an extra)

    folder.mkdir(parents=True, exist_ok=True)
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXTS),
        model_prefix=str(folder / "tokenizer"),
        vocab_size=380,
        model_type="bpe",
        byte_fallback=True,
        character_coverage=1.0,
        user_defined_symbols=["<|im_start|>", "<think>", "</think>"],
        minloglevel=2,
    )
    config = {"tokenizer_class": "LlamaTokenizer", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    _write(folder / "tokenizer_config.json", {**config, "chat_template": TEMPLATE})
    return folder


def tekken_model(folder: Path) -> Path:
    """Make a file as mistral-common reads it."""
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = [
        {"rank": rank, "token_bytes": base64.b64encode(token).decode(), "token_str": None} for token, rank in _ranks().items()
    ]
    special = [{"rank": rank, "token_str": text, "is_control": True} for rank, text in enumerate(_CONTROL)]
    config = {
        "pattern": r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        "num_vocab_tokens": len(vocabulary),
        "default_vocab_size": len(vocabulary) + len(special),
        "default_num_special_tokens": len(special),
        "version": "v13",
    }
    _write(folder / "tekken.json", {"config": config, "vocab": vocabulary, "special_tokens": special})
    return folder


def tiktoken_model(folder: Path) -> Path:
    """Make a tiktoken file, read by code that comes with the model."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [f"{base64.b64encode(token).decode()} {rank}\n" for token, rank in _ranks().items()]
    (folder / "tiktoken.model").write_text("".join(lines), encoding="utf-8")
    (folder / "tokenization_own.py").write_text(_CODE, encoding="utf-8")
    end = {str(len(lines)): {"content": "<|im_end|>", "special": True}}
    code = {"AutoTokenizer": ["tokenization_own.OwnTokenizer", None]}
    _write(folder / "tokenizer_config.json", {"tokenizer_class": "OwnTokenizer", "auto_map": code, "added_tokens_decoder": end})
    (folder / "chat_template.jinja").write_text(TEMPLATE, encoding="utf-8")
    return folder


def _ranks() -> dict[bytes, int]:
    """Make the tokens of a byte-level vocabulary: all bytes, some words and their beginnings."""
    ranks = {bytes([number]): number for number in range(256)}
    for word in (b" the", b"Hello", b" world", b" ist", " ü".encode()):
        for size in range(2, len(word) + 1):
            ranks.setdefault(word[:size], len(ranks))
    return ranks


def _write(file: Path, content: object) -> None:
    file.write_text(json.dumps(content), encoding="utf-8")
