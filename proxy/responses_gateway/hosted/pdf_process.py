"""Runs on its own (`python -I pdf_process.py`): a PDF on stdin, its text as JSON on stdout.

The first line of stdin is JSON: the folder of the `packages` that read it, the most characters of text (`longest`), and the
most `pages`. Nothing of the gateway is imported here."""

from __future__ import annotations

import io
import json
import signal
import sys
from typing import Any

# CPU time in seconds after which what was read so far is the text. Somewhat more of it kills the process.
_CPU = 15


class OutOfTime(BaseException):
    """The CPU time is used up: no handler of the library may catch this."""


def read(data: bytes, packages: str, longest: int, pages: int) -> dict[str, object]:
    """Return the `text`, how many `pages` there are, and how many were `read`. Without text `reason` says why."""
    sys.path.append(packages)
    try:
        from pypdf import PdfReader  # noqa: PLC0415  (only now: the folder had to be known)
    except ImportError as error:
        return {"cannot_start": str(error).partition("\n")[0]}
    try:
        reader = PdfReader(io.BytesIO(data), strict=False)
        if reader.is_encrypted and not reader.decrypt(""):
            return _nothing("encrypted")
        count = len(reader.pages)
    except (Exception, OutOfTime):
        return _nothing("unreadable")
    pages_read: list[str] = []
    size = 0
    number = 0
    try:
        while number < min(count, pages) and size < longest:
            text = _text_of(reader, number)[: longest - size]
            number += 1
            size += len(text)
            if text:
                pages_read.append(f"[page {number}]\n{text}")
    except (MemoryError, OutOfTime):
        pass
    if pages_read:
        return {"text": "\n\n".join(pages_read), "pages": count, "read": number, "reason": ""}
    return _nothing("no_text" if number == count else "unreadable")


def _nothing(reason: str) -> dict[str, object]:
    return {"text": "", "pages": 0, "read": 0, "reason": reason}


def _text_of(reader: Any, number: int) -> str:
    """Return the text of a page; none of one that is damaged. Raise `MemoryError`, `OutOfTime`."""
    try:
        text: str = reader.pages[number].extract_text()
    except MemoryError:
        raise
    except Exception:
        return ""
    return text.replace("\0", "").encode("utf-8", "replace").decode().strip()


def _stop(_number: int, _frame: object) -> None:
    raise OutOfTime


if __name__ == "__main__":
    if hasattr(signal, "setitimer"):  # not on Windows
        signal.signal(signal.SIGPROF, _stop)
        signal.setitimer(signal.ITIMER_PROF, _CPU)
    question = json.loads(sys.stdin.buffer.readline())
    print(json.dumps(read(sys.stdin.buffer.read(), **question)))
