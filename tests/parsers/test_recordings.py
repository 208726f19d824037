"""Streams recorded from a server without parsers: what its text stands for is known, and must come out."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from markup_outcome import Outcome, Piece, agree, at_random, characters, halves, play, whole

from responses_gateway.parsers import MarkupParser, markers, parser
from tests.data_folder import STREAMS, TINY_MODEL

pytestmark = pytest.mark.untraced  # because other tests run the same lines

SETTINGS = ("raw", "raw_interval")
# Format of the recordings -> names of the reasoning and the tool parser.
NAMES: dict[str, tuple[str | None, str]] = {
    "hermes": ("qwen3", "hermes"),
    "xml": ("qwen3", "qwen3_coder"),
    "r1": ("deepseek_r1", "hermes"),
    "glm": ("glm45", "glm45"),
    "kimi": ("kimi_k2", "kimi_k2"),
    "deepseek_v31": ("deepseek_v3", "deepseek_v31"),
    "deepseek_v4": ("deepseek_v4", "deepseek_v4"),
    "minimax": ("minimax_m2", "minimax_m2"),
    "seed": ("seed_oss", "seed_oss"),
    "llama3": (None, "llama3_json"),
    "mistral": ("mistral", "mistral"),
    "gemma4": ("gemma4", "gemma4"),
    "pythonic": (None, "pythonic"),
}


@cache
def recordings() -> dict[tuple[str, str], list[dict[str, Any]]]:
    """Return what the manifests say of the streams, by setting and format."""
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for setting in SETTINGS:
        manifest = json.loads((STREAMS / setting / "manifest.json").read_text(encoding="utf-8"))
        for entry in manifest["streams"]:
            found.setdefault((setting, entry["format"]), []).append(entry)
    return found


@cache
def chunks(path: Path) -> list[Piece]:
    """Read the pieces of text of a recorded stream, with their token ids if it has them."""
    pieces: list[Piece] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.startswith("data: {"):
            continue
        for choice in json.loads(line[6:])["choices"]:
            text = choice["delta"].get("content") or ""
            ids = choice.get("token_ids")
            if text or ids:
                pieces.append((text, ids))
    return pieces


@cache
def special_tokens() -> dict[str, int]:
    tokens = json.loads((TINY_MODEL / "tokenizer.json").read_text(encoding="utf-8"))["added_tokens"]
    return {token["content"]: token["id"] for token in tokens}


def new_parser(entry: dict[str, Any], names: tuple[str | None, str], ids: bool = False) -> MarkupParser:
    tools = [tool["function"] for tool in entry["request"].get("tools", [])]
    known = {marker: special_tokens()[marker] for marker in markers(*names) if marker in special_tokens()}
    return parser(
        *names,
        schemas={tool["name"]: tool.get("parameters", {}) for tool in tools},
        thinking_open=entry["prompt_tail"].rstrip().endswith("<think>"),
        marker_ids=known if ids else None,
    )


def check(entry: dict[str, Any], outcome: Outcome) -> None:
    expected = []
    for got, item in zip(outcome.items, entry["expected"]["items"], strict=False):
        if item["kind"] != "call":
            text = item["text"].strip()
            cut = item.get("incomplete") and text.startswith(got.get(item["kind"], "?"))
            expected.append({item["kind"]: got[item["kind"]] if cut else text})
        elif item.get("incomplete"):
            whole_text = json.dumps(item["args"], ensure_ascii=False)
            assert whole_text.startswith(got["arguments"].rstrip()), got
            expected.append({"call": item["name"], "begun": got["arguments"]})
        else:
            expected.append({"call": item["name"], "arguments": item["args"]})
    assert len(outcome.items) == len(entry["expected"]["items"]), outcome
    assert agree(outcome.items, expected), (outcome, expected)
    assert outcome.repairs == {}


@pytest.mark.parametrize(("setting", "family"), recordings())
def test_a_recorded_stream_gives_its_items(setting: str, family: str, subtests: pytest.Subtests) -> None:
    for entry in recordings()[setting, family]:
        with subtests.test(entry["file"]):
            play_in_pieces(setting, entry)


def play_in_pieces(setting: str, entry: dict[str, Any]) -> None:
    recorded = chunks(STREAMS / setting / entry["file"])
    text = "".join(piece for piece, _ in recorded)
    reason = "length" if entry["variant"].startswith("cut") else "stop"
    names = NAMES[entry["format"]]
    cuts = [[(piece, None) for piece, _ in recorded], whole(text), characters(text)]
    cuts += [at_random(text, seed) for seed in range(2)]
    if len(text) < 160:
        cuts += halves(text)
    for pieces in cuts:
        check(entry, play(new_parser(entry, names), pieces, reason))
    check(entry, play(new_parser(entry, ("auto", "auto")), cuts[0], reason))
    if any(ids for _, ids in recorded):
        for chosen in (names, ("auto", "auto")):
            check(entry, play(new_parser(entry, chosen, ids=True), recorded, reason))
