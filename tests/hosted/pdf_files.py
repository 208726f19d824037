"""PDFs for tests: small, and made by hand so that they can be wrong."""

from __future__ import annotations

import base64
import io
import zlib

from pypdf import PdfReader, PdfWriter

CATALOG = b"<< /Type /Catalog /Pages 2 0 R >>"
FONT = b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>"


def pdf_of(*objects: bytes) -> bytes:
    """Return a file with these objects, numbered from 1, of which the first is the catalogue."""
    file = bytearray(b"%PDF-1.4\n")
    places = []
    for number, content in enumerate(objects, 1):
        places.append(len(file))
        file += b"%d 0 obj\n%b\nendobj\n" % (number, content)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    head = b"xref\n0 %d\n0000000000 65535 f \n%b" % (len(objects) + 1, table)
    return bytes(file) + head + b"trailer << /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF" % (len(objects) + 1, len(file))


def stream(data: bytes, filters: bytes = b"") -> bytes:
    """Return an object with data."""
    return b"<< /Length %d %b >>\nstream\n%b\nendstream" % (len(data), filters, data)


def document(*pages: str) -> bytes:
    """Return a PDF with a line of text on each page."""
    texts = [f"BT /F1 12 Tf 10 50 Td ({text}) Tj ET".encode() for text in pages]
    return pdf_with(*map(stream, texts))


def pdf_with(*contents: bytes) -> bytes:
    """Return a PDF whose pages have these objects as their contents."""
    count = len(contents)
    kids = b" ".join(b"%d 0 R" % (4 + number) for number in range(count))
    resources = b"/Resources << /Font << /F1 3 0 R >> >> /MediaBox [0 0 200 100]"
    pages = [b"<< /Type /Page /Parent 2 0 R %b /Contents %d 0 R >>" % (resources, 4 + count + n) for n in range(count)]
    return pdf_of(CATALOG, b"<< /Type /Pages /Kids [%b] /Count %d >>" % (kids, count), FONT, *pages, *contents)


def bomb(megabytes: int) -> bytes:
    """Return a PDF whose page unpacks to so many megabytes, packed twice."""
    packed = zlib.compress(zlib.compress(b"(aaaaaaa) Tj " * (megabytes * 80_000), 9), 9)
    return pdf_with(stream(packed, b"/Filter [/FlateDecode /FlateDecode]"))


def circular() -> bytes:
    """Return a PDF whose pages contain themselves."""
    return pdf_of(CATALOG, b"<< /Type /Pages /Kids [2 0 R 2 0 R] /Count 2 /Parent 2 0 R >>")


def deep() -> bytes:
    """Return a PDF with a text behind thousands of nested arrays."""
    return pdf_with(stream(b"[" * 50_000 + b"]" * 50_000 + b" TJ"))


def encrypted(password: str) -> bytes:
    """Return a PDF that opens with a password alone."""
    writer = PdfWriter()
    writer.append(PdfReader(io.BytesIO(document("secret"))))
    writer.encrypt(password, algorithm="AES-256")
    file = io.BytesIO()
    writer.write(file)
    return file.getvalue()


def as_base64(file: bytes) -> str:
    return base64.b64encode(file).decode()
