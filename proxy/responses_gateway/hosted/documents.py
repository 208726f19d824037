"""Reads files as text, PDFs each in a process of its own, and keeps the texts of these: clients send the documents of a
conversation with each of its requests."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Sequence
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

from responses_gateway.bounded_memory import TenantValues
from responses_gateway.child_process import CannotStart, obstacle, run_program
from responses_gateway.extras import packages_with
from responses_gateway.fair_queue import FairQueue

PDF_PROCESS = Path(__file__).with_name("pdf_process.py")
# Characters and pages of a PDF that are read, and documents of a request behind which no PDF is read.
LONGEST_TEXT = 200_000
MOST_PAGES = 1_000
MOST_DOCUMENTS = 100
# Processes that read at the same time, of all tenants and of one.
_PROCESSES = 2
_SHARE = 1
# Texts of a tenant that are kept, how many characters all may have together, and as how many the rest of one counts.
_KEPT_TEXTS = 256
_KEPT_CHARACTERS = 20_000_000
_REST = 1_000
_PREFIX = "data:application/pdf"
_BEGINNING = "JVBERi0"  # `%PDF-` in base64


class DocumentText(NamedTuple):
    """The text of a document, how many pages a PDF has, and how many of them were read. `reason`: why it cannot be read."""

    text: str = ""
    pages: int = 0
    read: int = 0
    reason: str = ""


_LATE = DocumentText(reason="late")


def is_pdf(data: str) -> bool:
    """Tell whether the content of a file, in base64 or as a data URL, is that of a PDF."""
    return data[: len(_PREFIX)].lower() == _PREFIX or data.startswith(_BEGINNING)


@cache
def pdf_obstacle() -> str:
    """Return why no PDF can be read though the extra `pdf` is installed: a library that cannot be loaded. Empty if it can. This
    takes a second the first time."""
    folder = packages_with("pypdf")
    return "" if folder is None else obstacle(PDF_PROCESS, _question(folder))


def _question(folder: str) -> bytes:
    return json.dumps({"packages": folder, "longest": LONGEST_TEXT, "pages": MOST_PAGES}).encode() + b"\n"


async def read_pdf(content: bytes) -> DocumentText:
    """Read a document. Raise `OSError` if no process can be started."""
    folder = packages_with("pypdf")
    if folder is None:
        return DocumentText(reason="missing")
    try:
        answer: dict[str, Any] = await run_program(PDF_PROCESS, _question(folder) + content)
    except CannotStart:
        return DocumentText(reason="missing")
    except ValueError:  # it was killed for want of memory or time, or failed
        return DocumentText(reason="unreadable")
    return DocumentText(**answer)


class DocumentReader:
    """Reads the files of requests that are PDFs or texts. Nothing is shared between tenants."""

    def __init__(self, timeout: float) -> None:
        """`timeout`: seconds for all documents of one request."""
        self._timeout = timeout
        self._processes = FairQueue(_PROCESSES, _SHARE, timeout)
        self._kept: TenantValues[DocumentText] = TenantValues(_KEPT_TEXTS, _KEPT_CHARACTERS)

    async def read(self, documents: Sequence[str], tenant: str) -> list[DocumentText]:
        """Return the texts of documents (base64, or data URLs), in order."""
        keys = await asyncio.to_thread(lambda: [_digest(data) for data in documents])
        texts = {key: text for key in keys if (text := self._kept.get(tenant, key)) is not None}
        try:
            async with asyncio.timeout(self._timeout):
                for key, data in zip(keys, documents, strict=True):
                    if key not in texts and (len(texts) < MOST_DOCUMENTS or not is_pdf(data)):
                        texts[key] = await self._read(data, tenant)
        except TimeoutError:
            pass
        for key, data in zip(keys, documents, strict=True):
            text = texts.get(key, _LATE)
            if text is not _LATE and is_pdf(data):  # other files are read at once, and would push out what took a process
                self._kept.put(tenant, key, text, len(text.text) + _REST)
        return [texts.get(key, _LATE) for key in keys]

    async def _read(self, data: str, tenant: str) -> DocumentText:
        pdf = is_pdf(data)
        try:
            content = await asyncio.to_thread(_decoded, data)
            if not pdf:
                return DocumentText(content.decode("utf-8-sig"))
        except ValueError:
            return DocumentText(reason="unreadable" if pdf else "type")
        try:
            async with self._processes.take(tenant):
                return await read_pdf(content)
        except OSError:  # a `TimeoutError` too
            return _LATE


def _digest(data: str) -> str:
    return blake2b(data.encode("utf-8", "replace"), digest_size=16).hexdigest()


def _decoded(data: str) -> bytes:
    """Return the bytes of a document, whose base64 may have line breaks, as MIME's has. Raise `ValueError` for what is none."""
    head, comma, rest = data.partition(",")
    return base64.b64decode("".join((rest if comma and head.lower().endswith(";base64") else data).split()), validate=True)
