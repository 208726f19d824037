"""Files of messages that the code of the tool `code_interpreter` reads, as they are described to the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from responses_gateway.request.fields import Object
from responses_gateway.request.input.items import Entry
from responses_gateway.request.loss_report import LossReport
from responses_gateway.wire.hosted import SentFile, sent_file

# Files -> their paths for the code.
SandboxFiles = Mapping[SentFile, str]


def with_paths(items: Sequence[Entry], files: SandboxFiles, report: LossReport) -> list[Entry]:
    """Return the items with the paths of files in place of the files, which few chat servers accept. A PDF stays, too: some
    servers show it to the model, and the code has no library that reads it."""
    found = []
    for entry in items:
        content = entry.item.get("content")
        if entry.item.get("role") == "user" and isinstance(content, list):
            parts = [described for part in content for described in _described(part, files, report)]
            found.append(entry._replace(item={**entry.item, "content": parts}))
        else:
            found.append(entry)
    return found


def _described(part: Any, files: SandboxFiles, report: LossReport) -> list[Object]:
    sent = sent_file(part)
    path = None if sent is None else files.get(sent)
    if path is None:
        return [part]
    report.adapted("content", "input_file", "the code interpreter has it as a file")
    note = {"type": "input_text", "text": f"[A file for the code: {path}]"}
    return [part, note] if path.lower().endswith(".pdf") else [note]
