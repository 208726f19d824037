"""PDFs as text, whatever is in them: read in a process that ends, whoever made the file."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from responses_gateway.hosted import documents
from responses_gateway.hosted.documents import DocumentReader, DocumentText, is_pdf
from tests.hosted.pdf_files import CATALOG, as_base64, bomb, circular, deep, document, encrypted, pdf_of, pdf_with, stream
from tests.waiting import PATIENCE


def read(*files: bytes, reader: DocumentReader | None = None) -> list[DocumentText]:
    return asyncio.run((reader or DocumentReader(PATIENCE)).read([as_url("application/pdf", file) for file in files], "ada"))


def as_url(media_type: str, file: bytes) -> str:
    return f"data:{media_type};base64,{as_base64(file)}"


@pytest.mark.slow
def test_each_page_is_text_behind_its_number() -> None:
    assert read(document("Rivers are long.", "Towers are high.")) == [
        DocumentText("[page 1]\nRivers are long.\n\n[page 2]\nTowers are high.", 2, 2)
    ]
    assert read(encrypted("")) == [DocumentText("[page 1]\nsecret", 1, 1)]


@pytest.mark.parametrize(
    ("file", "reason"),
    [
        (encrypted("open sesame"), "encrypted"),
        (document(""), "no_text"),
        (circular(), "unreadable"),
        (pdf_of(CATALOG, b"<< /Type /Pages /Kids [] /Count 1000000000 >>"), "no_text"),
        (b"%PDF-1.4\nnothing", "unreadable"),
        (b"", "unreadable"),
        (pdf_with(stream(b"garbage", b"/Filter /FlateDecode")), "no_text"),
    ],
    ids=["a password", "no text", "circular pages", "pages that are not there", "no objects", "nothing", "damaged"],
)
def test_what_cannot_be_read_says_why(file: bytes, reason: str) -> None:
    assert read(file) == [DocumentText(reason=reason)]


@pytest.mark.slow
@pytest.mark.parametrize("make", [partial(bomb, 400), deep], ids=["a bomb", "nested"])
def test_a_file_that_unpacks_to_too_much_is_no_text_and_takes_little_time(make: Callable[[], bytes]) -> None:
    file = make()
    assert len(file) < 1_000_000
    (found,) = read(file)
    assert not found.text
    assert found.reason in ("no_text", "unreadable")


@pytest.mark.slow
def test_a_page_that_is_damaged_does_not_hide_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = stream(b"BT (a) Tj ET", b"/Filter /Unknown")
    text = stream(b"BT /F1 12 Tf 10 50 Td (Towers) Tj ET")
    assert read(pdf_with(broken, text)) == [DocumentText("[page 2]\nTowers", 2, 2)]
    monkeypatch.setattr(documents, "MOST_PAGES", 2)
    monkeypatch.setattr(documents, "LONGEST_TEXT", 8)
    assert read(document("a", "b", "c")) == [DocumentText("[page 1]\na\n\n[page 2]\nb", 3, 2)]
    assert read(document("a" * 20, "b")) == [DocumentText("[page 1]\naaaaaaaa", 2, 1)]


def test_a_text_is_kept_for_its_tenant_and_read_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    reader = DocumentReader(PATIENCE)
    first = read(document("a"), document("a"), document("b"), reader=reader)
    assert first[0] == first[1] != first[2]
    broken = tmp_path / "broken.py"
    broken.write_text("raise SystemExit(1)")
    monkeypatch.setattr(documents, "PDF_PROCESS", broken)
    assert read(document("a"), document("b"), reader=reader) == [first[0], first[2]]
    other = asyncio.run(reader.read([as_base64(document("a"))], "eve"))
    assert other == [DocumentText(reason="unreadable")]


def test_reading_that_takes_too_long_is_ended_and_tried_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    reader = DocumentReader(0.2)
    endless = tmp_path / "endless.py"
    endless.write_text("import time\nwhile True: time.sleep(1)")
    good = documents.PDF_PROCESS
    monkeypatch.setattr(documents, "PDF_PROCESS", endless)
    assert read(document("a"), document("b"), reader=reader) == [DocumentText(reason="late")] * 2
    monkeypatch.setattr(documents, "PDF_PROCESS", good)
    monkeypatch.setattr(documents, "MOST_DOCUMENTS", 1)
    patient = DocumentReader(PATIENCE)
    assert [found.reason for found in read(document("a"), document("b"), reader=patient)] == ["", "late"]


def test_without_the_extra_nothing_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "packages_with", lambda _: None)
    assert read(document("a")) == [DocumentText(reason="missing")]


def test_a_library_that_is_missing_is_not_the_fault_of_the_document(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    script = tmp_path / "lacking.py"
    script.write_text("""print('{"cannot_start": "No module named pypdf"}')""", encoding="utf-8")
    documents.pdf_obstacle.cache_clear()
    assert documents.pdf_obstacle() == ""
    documents.pdf_obstacle.cache_clear()
    monkeypatch.setattr(documents, "PDF_PROCESS", script)
    assert read(document("a")) == [DocumentText(reason="missing")]
    assert documents.pdf_obstacle() == "No module named pypdf"
    documents.pdf_obstacle.cache_clear()


def test_a_pdf_is_known_by_its_type_or_its_beginning() -> None:
    assert is_pdf(as_base64(document("a")))
    assert is_pdf("DATA:application/PDF;base64,eA==")
    assert not is_pdf("data:text/plain;base64,eA==")
    assert asyncio.run(DocumentReader(PATIENCE).read(["data:application/pdf;base64,!"], "")) == [
        DocumentText(reason="unreadable")
    ]


@pytest.mark.parametrize("media_type", ["text/plain", "text/csv", "application/json", "application/octet-stream", ""])
def test_a_file_in_utf_8_is_a_text_whatever_its_type(media_type: str) -> None:
    files = [as_url(media_type, "a;b\ngrün;2\n".encode()), as_url(media_type, "\ufeffx".encode()), as_url(media_type, b"")]
    found = asyncio.run(DocumentReader(PATIENCE).read([*files, as_url(media_type, b"PK\x03\x04\xff\xfe")], ""))
    assert found == [DocumentText("a;b\ngrün;2\n"), DocumentText("x"), DocumentText(), DocumentText(reason="type")]


def test_texts_are_read_however_many_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "MOST_DOCUMENTS", 1)
    files = [as_url("text/plain", text) for text in (b"a", b"b", b"c")]
    assert asyncio.run(DocumentReader(PATIENCE).read(files, "")) == [DocumentText("a"), DocumentText("b"), DocumentText("c")]


def test_base64_of_documents_may_have_line_breaks() -> None:
    data = base64.encodebytes(document("a" * 100)).decode()
    texts = asyncio.run(DocumentReader(PATIENCE).read([data, "data:application/pdf;base64," + data.replace("\n", "\r\n")], ""))
    assert [text.reason for text in texts] == ["", ""]


def test_texts_do_not_push_out_what_was_read_in_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = DocumentReader(PATIENCE)
    first = read(document("a"), reader=reader)
    asyncio.run(reader.read([as_url("text/plain", b"%d" % number) for number in range(300)], "ada"))  # of a tenant 256 are kept
    monkeypatch.setattr(documents, "PDF_PROCESS", Path("/nowhere"))
    assert read(document("a"), reader=reader) == first
