"""Runs on its own (`python -I search_process.py`): which recordings contain a text. Nothing of the gateway is imported here.

On stdin is JSON: the `paths` of the recordings, the `text`, and the `seconds` after which the rest is left out. On stdout is a
JSON list that says for each recording, up to the last one searched, whether it contains the text. Upper and lower case, and
the kind of white space, make no difference."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from typing import Any

# The lines of a recording that are searched. The rest repeats them, or is settings.
_REQUEST = '{"request": '
_CALL = '{"call": '
_DATA = "data: {"
# Begins an item in a stream, which has no text in common with the item before.
_BEGINNINGS = frozenset({"response.output_item.added", "content_block_start"})


def contains(path: str, text: str) -> bool:
    """Tell whether the request of a recording, or its answer, contains the text. One that cannot be read does not: it was
    deleted, say, or is too large for the memory of this process."""
    try:
        with open(path, encoding="utf-8") as lines:
            return text in plain("".join(_texts(lines)))
    except (OSError, ValueError, KeyError, MemoryError, RecursionError):
        return False


def plain(text: str) -> str:
    """Return a text as it is compared."""
    return " ".join(text.split()).casefold()


def _texts(lines: Iterator[str]) -> Iterator[str]:
    for line in lines:
        if line.startswith(_REQUEST):
            yield from _values(_read(json.loads(line)["request"]))
        elif line.startswith(_CALL):
            sent = json.loads(line)["sent"]
            if isinstance(sent, str):
                yield from _answered(sent)


def _answered(sent: str) -> Iterator[str]:
    """Return the pieces of text in a part of a stream, and the whole items, of which some have no pieces."""
    for line in sent.split("\n"):  # a text may have line separators, of which Python knows more
        if not line.startswith(_DATA):
            continue
        event = json.loads(line[len(_DATA) - 1 :])
        if event.get("type") in _BEGINNINGS:
            yield "\n"
        delta = event.get("delta")
        if isinstance(delta, str):
            yield delta
        elif isinstance(delta, dict):
            yield from (piece for kind, piece in delta.items() if kind != "type" and isinstance(piece, str))
        elif event.get("type") == "response.output_item.done":
            yield from _values(event["item"])


def _values(value: Any) -> Iterator[str]:
    """Return the texts in a JSON value."""
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, str):
            yield f"\n{one}\n"
        elif isinstance(one, dict):
            waiting.extend(one.values())
        elif isinstance(one, list):
            waiting.extend(one)


def _read(body: Any) -> Any:
    try:
        return json.loads(body) if isinstance(body, str) else body
    except ValueError:
        return body


def search(question: dict[str, Any]) -> list[bool]:
    """Answer a question."""
    until = time.monotonic() + question["seconds"]
    text = plain(question["text"])
    answers: list[bool] = []
    for path in question["paths"]:
        if time.monotonic() > until:
            break
        answers.append(contains(path, text))
    return answers


if __name__ == "__main__":
    json.dump(search(json.load(sys.stdin)), sys.stdout)
