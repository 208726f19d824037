"""The known differences: `differences.yaml` says where, what and why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import yaml

from tests.oracle.comparison import Item

FILE = Path(__file__).with_name("differences.yaml")


@dataclass(frozen=True)
class Difference:
    """`only_stream`: what vLLM answers without streaming is what ours gives. `cases`: ids, or patterns of ids."""

    name: str
    why: str
    only_stream: bool
    cases: tuple[str, ...]
    example: str
    ours: Sequence[Item]
    theirs: Sequence[Item]


def known() -> Iterator[Difference]:
    for entry in yaml.safe_load(FILE.read_text(encoding="utf-8")):
        yield _difference(entry)


def _difference(entry: dict[str, Any]) -> Difference:
    example = entry["example"]
    made = Difference(
        name=entry["name"],
        why=entry["why"],
        only_stream={"agrees": True, "differs": False}[entry["whole"]],
        cases=tuple(entry["cases"]),
        example=example["case"],
        ours=example["ours"],
        theirs=example["vllm"],
    )
    assert made.only_stream or not any("*" in case for case in made.cases), f"{made.name}: name each case"
    return made


def explains(difference: Difference, case: str, only_stream: bool) -> bool:
    return difference.only_stream is only_stream and any(fnmatchcase(case, pattern) for pattern in difference.cases)
