"""PDFs of requests as their text: few chat servers read them.

Without text a PDF stays the file that it is, for a backend that may read it; where clients send a conversation again and again,
so that one refusal would end it, the model is told that it cannot be read instead (`explains`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from responses_gateway.hosted.pdf import PdfReader, PdfText, is_pdf
from responses_gateway.request import Loss
from responses_gateway.request.input.content import SandboxFiles, file_for_code
from responses_gateway.wire.errors import invalid_request
from responses_gateway.wire.hosted import SentFile, sent_file

# Files -> what takes their place.
DocumentTexts = Mapping[SentFile, str]

_READ = Loss("content", "input_file", "adapted", "a PDF: its text, without its pictures")
_UNREAD = Loss("content", "input_file", "ignored", "a PDF that cannot be read, of which the model is told")
_REASONS = {
    "encrypted": "it is encrypted",
    "no_text": "it has no text, only pictures of its pages",
    "unreadable": "it is damaged, or takes too much to read",
    "late": "reading the documents of this request took too long",
    "missing": "the server of this model reads no PDF",
    "type": "the server of this model reads no files of its type",
}


class ReadDocuments(NamedTuple):
    """`texts` take the place of files; `losses` tell so."""

    texts: DocumentTexts
    losses: Sequence[Loss]


NO_DOCUMENTS = ReadDocuments({}, ())


async def read_documents(
    reader: PdfReader, items: Iterable[Any], tenant: str, *, explains: bool, strict: bool
) -> ReadDocuments:
    """Read the PDFs among items, which may be anything. With `explains`, `strict` refuses unreadable ones: `ApiError` 400."""
    places = _files(items)
    if not places:
        return NO_DOCUMENTS
    pdfs = [sent for sent in places if is_pdf(sent[1])]
    if not (pdfs or explains):
        return NO_DOCUMENTS
    text_by_file = dict(zip(pdfs, await reader.read([data for _, data in pdfs], tenant), strict=True))
    texts: dict[SentFile, str] = {}
    losses: dict[Loss, None] = {}
    for sent, place in places.items():
        pdf = text_by_file.get(sent, PdfText(reason="type"))
        if pdf.text:
            texts[sent] = _shown(sent[0], pdf)
            losses[_READ] = None
        elif explains:
            reason = _REASONS[pdf.reason]
            if strict:
                raise invalid_request(f"A document cannot be read: {reason}.", place, "unsupported_value")
            named = f"The document {sent[0]!r}" if sent[0] else "This document"
            texts[sent] = f"[{named} cannot be shown here: {reason}. Its text can be read with a program, if one is at hand.]"
            losses[_UNREAD] = None
    return ReadDocuments(texts, list(losses))


def with_texts(items: Sequence[Any], texts: DocumentTexts, files: SandboxFiles) -> list[Any]:
    """Return items, which may be anything, with texts in place of documents, of which `files` are given to the code, too."""
    new_items = []
    for item in items:
        changed = {
            member: [replacement for part in parts for replacement in _as_text(part, texts, files)]
            for member in (("content", "output") if isinstance(item, dict) else ())
            if isinstance(parts := item.get(member), list)
        }
        new_items.append({**item, **changed} if changed else item)
    return new_items


def _as_text(part: Any, texts: DocumentTexts, files: SandboxFiles) -> list[Any]:
    sent = sent_file(part)
    text = None if sent is None else texts.get(sent)
    if sent is None or text is None:
        return [part]
    path = files.get(sent)
    text_part = {"type": "input_text", "text": text}
    return [text_part] if path is None else [text_part, file_for_code(path)]


def _files(items: Iterable[Any]) -> dict[SentFile, str]:
    """Return the files in messages and results, with the paths of their parts in an input."""
    files: dict[SentFile, str] = {}
    for number, item in enumerate(items):
        for member in ("content", "output") if type(item) is dict else ():
            parts = item.get(member)
            if type(parts) is list:
                for place, part in enumerate(parts):
                    is_file = type(part) is dict and part.get("type") == "input_file"
                    sent = sent_file(part) if is_file else None
                    if sent is not None:
                        files[sent] = f"input[{number}].{member}[{place}]"
    return files


def _shown(name: str, pdf: PdfText) -> str:
    named = f" {name!r}" if name else ""
    rest = "" if pdf.read >= pdf.pages else f"\n\n[The document goes on: {pdf.read} of its {pdf.pages} pages were read.]"
    return f"[Text of the document{named}, {pdf.pages} page{'' if pdf.pages == 1 else 's'}]\n\n{pdf.text}{rest}"
