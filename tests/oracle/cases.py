"""The token streams that both parsers are given: recordings, the vectors of every family, random turns."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import yaml
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from responses_gateway.parsers import REASONING, TOOLS
from responses_gateway.wire.deltas import FinishReason
from tests.data_folder import STREAMS, TINY_MODEL
from tests.oracle.comparison import Piece
from tests.oracle.families import FAMILIES, RECORDED, Family
from tests.oracle.turns import turn
from tests.parsers import markup_rendering

ROOT = Path(__file__).parents[2]
PARSERS = ROOT / "tests" / "parsers"
GENERATED = 12  # random turns for each family
_LEARNT = [" </think> </think></think>"] * 20  # Olmo 3 has no token for it: vLLM looks for these three ordinary ones
Schemas = dict[str, dict[str, Any]]


@dataclass(frozen=True, eq=False)
class Case:
    """`opened`: the prompt ends inside reasoning. `thinking`: the request asks the model to think."""

    id: str
    family: str
    pieces: tuple[Piece, ...]
    schemas: Schemas
    opened: bool | None
    thinking: bool
    reason: FinishReason
    recorded: bool = False

    @property
    def text(self) -> str:
        return "".join(text for text, _ in self.pieces)


@cache
def vectors(family: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((PARSERS / "vectors" / f"{family}.yaml").read_text(encoding="utf-8"))
    return loaded


@cache
def schemas() -> Schemas:
    loaded: Schemas = yaml.safe_load((PARSERS / "tools.yaml").read_text(encoding="utf-8"))
    return loaded


@cache
def tokenizer(family: str) -> PreTrainedTokenizerFast:
    """Train a byte-level tokenizer with the family's markers as single tokens, and words learnt from its vectors."""
    tokens = Tokenizer(models.BPE())
    tokens.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokens.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=700, initial_alphabet=alphabet, show_progress=False)
    texts = [vector["markup"] for vector in vectors(family)["vectors"]]
    tokens.train_from_iterator([*texts, *_LEARNT], trainer)
    tokens.add_tokens([AddedToken(marker, normalized=False) for marker in FAMILIES[family].tokens])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokens, clean_up_tokenization_spaces=False, token_suffix=FAMILIES[family].suffix
    )


@cache
def recorded_tokenizer() -> PreTrainedTokenizerFast:
    path = TINY_MODEL / "tokenizer.json"
    return PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_file(str(path)), clean_up_tokenization_spaces=False)


def pieces_of(text: str, tokens: PreTrainedTokenizerFast) -> tuple[Piece, ...]:
    """Cut the text as a server would stream it: a piece for each token, or for the tokens that make up one character."""
    pieces: list[Piece] = []
    group: list[int] = []
    for token in tokens.encode(text, add_special_tokens=False):
        group.append(token)
        spelled = tokens.decode(group)
        if not spelled.endswith("\ufffd"):
            pieces.append((spelled, group))
            group = []
    assert "".join(spelled for spelled, _ in pieces) == text
    return tuple(pieces)


def all_cases() -> Iterator[Case]:
    yield from recordings()
    for family in FAMILIES:
        yield from vector_cases(family)
        yield from generated_cases(family)


def vector_cases(family: str) -> Iterator[Case]:
    for vector in vectors(family)["vectors"]:
        if _cut_inside_a_token(vector["markup"], FAMILIES[family].tokens):
            continue
        opened = vector.get("open", False)
        yield Case(
            id=f"{family}: {vector['name']}",
            family=family,
            pieces=pieces_of(vector["markup"], tokenizer(family)),
            schemas=schemas(),
            opened=opened,
            thinking=opened is not False or _opens(FAMILIES[family], vector["markup"]),
            reason=vector.get("finish", "stop"),
        )


def generated_cases(family: str) -> Iterator[Case]:
    rendering = markup_rendering.FAMILIES[family]
    chance = random.Random(family)
    for number in range(GENERATED):
        items = turn(chance, rendering, reasons=FAMILIES[family].reasoning is not None)
        text = markup_rendering.render(rendering, items)
        opened = rendering.opened and items[0][0] == "reasoning"
        yield Case(
            id=f"{family}: turn {number}",
            family=family,
            pieces=pieces_of(text, tokenizer(family)),
            schemas=schemas(),
            opened=opened,
            thinking=opened or _opens(FAMILIES[family], text),
            reason="stop",
        )


def _cut_inside_a_token(markup: str, tokens: tuple[str, ...]) -> bool:
    """Tell whether the markup ends inside a token, as no model does. A single character counts as whole."""
    return any(markup.endswith(token[:size]) for token in tokens for size in range(2, len(token)))


def _opens(family: Family, text: str) -> bool:
    """Tell whether the output begins with reasoning."""
    if family.reasoning is None:
        return False
    form = REASONING[family.reasoning]
    return text.lstrip().startswith(form.opens)


def recordings() -> Iterator[Case]:
    for setting in ("raw", "raw_interval"):
        folder = STREAMS / setting
        manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
        for entry in manifest["streams"]:
            yield _recording(folder, entry)


def _recording(folder: Path, entry: dict[str, Any]) -> Case:
    tools = [tool["function"] for tool in entry["request"].get("tools", [])]
    return Case(
        id=f"{folder.name}/{entry['file']}",
        family=RECORDED[entry["format"]],
        pieces=tuple(_chunks(folder / entry["file"])),
        schemas={tool["name"]: tool.get("parameters", {}) for tool in tools},
        opened=entry["prompt_tail"].rstrip().endswith("<think>"),
        thinking=entry["thinking"],
        reason="length" if entry["variant"].startswith("cut") else "stop",
        recorded=True,
    )


def _chunks(path: Path) -> Iterator[Piece]:
    """Read the recorded pieces, with the ids that the server sent or else those of their text."""
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.startswith("data: {"):
            continue
        for choice in json.loads(line[6:])["choices"]:
            text = choice["delta"].get("content") or ""
            ids = choice.get("token_ids")
            if ids is None:
                ids = recorded_tokenizer().encode(text, add_special_tokens=False)
            if text or ids:
                yield text, ids


def grouped(pieces: tuple[Piece, ...], seed: str) -> Iterator[Piece]:
    """Join one to seven neighbouring pieces at a time, as a server under load does."""
    chance = random.Random(seed)
    left = iter(pieces)
    while group := list(islice(left, chance.randint(1, 7))):
        yield "".join(text for text, _ in group), [token for _, ids in group for token in ids]


assert {family.tools for family in FAMILIES.values()} <= TOOLS.keys()
