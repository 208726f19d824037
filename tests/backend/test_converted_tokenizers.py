"""Tokenizers in files of sentencepiece, tekken and tiktoken do what a `tokenizer.json` does."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from responses_gateway.backend.tokenizer.conversion import TokenizerError
from responses_gateway.backend.tokenizer.tokenizers import ModelTokenizer, load_tokenizer, locate
from responses_gateway.stream.tokens.meter import TokenMeter
from tests.backend.tokenizer_files import TEXTS, sentencepiece_model, tekken_model, tiktoken_model

PACKAGES = ("transformers", "sentencepiece", "tiktoken", "google.protobuf")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of packages that are not ours
HELLO = {"messages": [{"role": "user", "content": "Hello world"}]}


@pytest.fixture(autouse=True)
def _packages() -> None:
    for name in PACKAGES:
        pytest.importorskip(name, reason="pip install '.[transformers]' installs it")


@pytest.fixture
def own_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a model's folder with code, which `transformers` copies to a cache of this test's own."""
    modules = tmp_path / "modules"
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(modules))
    monkeypatch.setattr(sys, "path", [str(modules), *sys.path])
    return tiktoken_model(tmp_path / "own")


def loaded(folder: Path, *, trusted: bool = False) -> ModelTokenizer:
    return ModelTokenizer(locate(str(folder), {}), trust_remote_code=trusted)


def spelled(tokenizer: ModelTokenizer, text: str) -> list[str]:
    return [text[start:end] for start, end in tokenizer.encode(text).offsets]


@pytest.mark.slow
def test_sentencepiece_gives_the_tokens_of_its_own_library(tmp_path: Path) -> None:
    import sentencepiece  # noqa: PLC0415

    folder = sentencepiece_model(tmp_path)
    own = sentencepiece.SentencePieceProcessor(model_file=str(folder / "tokenizer.model"))
    tokenizer = loaded(folder)
    for text in set(TEXTS):
        assert tokenizer.encode_markup(text).ids == own.encode(text)
    assert spelled(tokenizer, "Hello world")[-1].endswith("d")


def test_special_tokens_and_the_template_of_a_converted_tokenizer(tmp_path: Path) -> None:
    tokenizer = loaded(sentencepiece_model(tmp_path))
    assert tokenizer.marker_ids(["<think>", "</think>", "<other>"]).keys() == {"<think>", "</think>"}
    assert tokenizer.template is not None
    assert tokenizer.template.thinking_open(HELLO, ("<think>",), ("</think>",))
    assert tokenizer.count_input(HELLO) > 5


def test_a_tekken_file(tmp_path: Path) -> None:
    tokenizer = loaded(tekken_model(tmp_path))
    assert spelled(tokenizer, "Hello world") == ["Hello", " world"]
    assert tokenizer.marker_ids(["[TOOL_CALLS]", "[THINK]"]) == {"[TOOL_CALLS]": 5, "[THINK]": 7}
    assert tokenizer.encode_markup("[THINK]Hello").ids[0] == 7
    assert 7 not in tokenizer.encode("[THINK]Hello").ids


def test_code_of_the_model_runs_only_where_it_is_trusted(own_code: Path) -> None:
    with pytest.raises(TokenizerError, match=r"Python code that comes with the model\. If you trust it, set trust_remote_code"):
        loaded(own_code)
    assert not any("tokenization_own" in name for name in sys.modules)
    tokenizer = loaded(own_code, trusted=True)
    assert spelled(tokenizer, "Hello world") == ["Hello", " ", "w", "o", "r", "l", "d"]
    assert tokenizer.marker_ids(["<|im_end|>"]).keys() == tokenizer.special_tokens == {"<|im_end|>"}


def test_tokens_of_the_models_own_code_have_their_places(own_code: Path) -> None:
    tokenizer = loaded(own_code, trusted=True)
    encoding = tokenizer.encode("é😀!")  # characters of several tokens
    assert encoding.offsets == [(0, 1), (0, 1), (1, 2), (1, 2), (1, 2), (1, 2), (2, 3)]
    assert len(encoding) == len(encoding.word_ids) == 7
    end = tokenizer.marker_ids(["<|im_end|>"])["<|im_end|>"]
    assert tokenizer.encode_markup("a<|im_end|>").ids[-1] == end
    assert end not in tokenizer.encode("a<|im_end|>").ids


def test_text_in_pieces_is_counted_with_the_models_own_code(own_code: Path) -> None:
    tokenizer = loaded(own_code, trusted=True)
    text = " ".join(TEXTS)
    meter = TokenMeter(tokenizer.encode)
    for start in range(0, len(text), 7):
        meter.feed("text", text[start : start + 7])
    assert meter.totals()["text"] == len(tokenizer.encode(text))


def test_it_is_loaded_in_a_thread_and_from_the_cache(tmp_path: Path) -> None:
    tekken_model(tmp_path / "models--org--name" / "snapshots" / "main")
    tokenizer = asyncio.run(load_tokenizer("org/name", {"HF_HUB_CACHE": str(tmp_path)}))
    assert tokenizer.file.name == "tekken.json"


def test_a_file_that_cannot_be_read_is_an_error_of_the_settings(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.model").write_bytes(b"no model")
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "LlamaTokenizer"}', encoding="utf-8")
    with pytest.raises(TokenizerError, match="transformers cannot read it"):
        loaded(tmp_path)


def test_without_the_packages_the_operator_learns_their_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(TokenizerError, match=r"pip install '\.\[transformers\]'"):
        loaded(tekken_model(tmp_path))
