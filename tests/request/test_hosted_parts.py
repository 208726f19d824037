"""Parts of the translation that a request uses only with hosted tools and automatic compaction."""

from __future__ import annotations

from typing import Any

import pytest

from responses_gateway.request import Policy
from responses_gateway.request.fields import Entry
from responses_gateway.request.input.items import with_paths
from responses_gateway.request.loss_report import LossReport
from responses_gateway.request.parameters.parameters import compact_threshold
from responses_gateway.wire.errors import ApiError
from responses_gateway.wire.hosted import SentFile
from responses_gateway.wire.requests import parse_request


def threshold(*entries: Any, compacts: bool = True) -> int | None:
    request = parse_request({"model": "m", "input": "hi", "context_management": list(entries)})
    return compact_threshold(request, Policy(compacts_context=compacts))


def test_the_lowest_threshold_counts_if_the_gateway_compacts() -> None:
    entries = [{"type": "compaction", "compact_threshold": 900}, {"type": "compaction", "compact_threshold": 300}]
    assert threshold(*entries, {"type": "compaction"}) == 300
    assert threshold(*entries, compacts=False) is None
    assert threshold() is None


@pytest.mark.parametrize(
    ("entry", "param"),
    [
        ("x", "context_management[0]"),
        ({"type": "clear"}, "context_management[0].type"),
        ({"type": "compaction", "compact_threshold": 0}, "context_management[0].compact_threshold"),
    ],
)
def test_what_is_no_compaction_is_refused(entry: Any, param: str) -> None:
    with pytest.raises(ApiError) as refused:
        threshold(entry)
    assert (refused.value.status, refused.value.param) == (400, param)


def test_files_for_the_code_are_described_by_their_paths() -> None:
    table, paper = ({"type": "input_file", "filename": name, "file_data": "data:,x"} for name in ("a.csv", "b.pdf"))
    files: dict[SentFile, str] = {("a.csv", "data:,x"): "/files/a.csv", ("b.pdf", "data:,x"): "/files/b.pdf"}
    said = {"type": "input_text", "text": "hi"}
    user = Entry("input[0]", "message", {"role": "user", "content": [said, table, paper]})
    model = Entry("input[1]", "message", {"role": "assistant", "content": "x"})
    described, same = with_paths([user, model], files, LossReport())
    notes = [{"type": "input_text", "text": f"[A file for the code: {path}]"} for path in files.values()]
    assert described.item["content"] == [said, notes[0], paper, notes[1]]
    assert same == model
