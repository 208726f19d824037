"""A tokenizer for the gateway that counts tokens by itself: byte-level BPE, trained on the way in a second."""

from __future__ import annotations

from pathlib import Path

from bench.programs import BUILD

_SIZE = 4000


def tokenizer_file() -> Path:
    """`tokenizer.json` in the build folder, trained on the project's own documents if it is not there yet."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers  # noqa: PLC0415  (an extra, for one scenario)

    file = BUILD / "tokenizer.json"
    if not file.exists():
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(vocab_size=_SIZE, initial_alphabet=alphabet, show_progress=False)
        tokenizer.train([str(page) for page in Path("docs").glob("*.md")], trainer)
        BUILD.mkdir(parents=True, exist_ok=True)
        tokenizer.save(str(file))
    return file
