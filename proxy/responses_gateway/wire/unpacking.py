"""Compressed bodies, unpacked in steps of a bounded size: a few bytes may stand for gigabytes."""

from __future__ import annotations

import zlib

# How much is given to zlib at once, in bytes. It copies what it does not need of that.
_WINDOW = 64 * 1024
# The most compressed files in a row that count as one body. Tools that compress in parallel make some.
MAX_MEMBERS = 1024
_GZIP = zlib.MAX_WBITS | 16
_ENCODINGS = {"gzip": _GZIP, "x-gzip": _GZIP, "deflate": zlib.MAX_WBITS}
# The method in the first byte of a zlib header. Some clients send what is called `deflate` without that header.
_ZLIB_METHOD = 8


class DamagedBodyError(Exception):
    """The compressed data is cut or wrong."""


def is_known(encoding: str) -> bool:
    """Tell whether a value of `Content-Encoding` can be unpacked here."""
    return encoding.lower() in _ENCODINGS


class Unpacker:
    """Unpacks one body; does no I/O, so it may run in a thread."""

    def __init__(self, packed: bytes, encoding: str) -> None:
        bits = _ENCODINGS[encoding.lower()]
        if bits != _GZIP and packed[:1] and packed[0] & 0xF != _ZLIB_METHOD:
            bits = -zlib.MAX_WBITS
        self._packed = packed
        self._position = 0
        self._bits = bits
        self._members = 1
        self._decompressor = zlib.decompressobj(bits)
        self._unused = b""  # was read from the packed data, and waits for room
        self.ended = not packed

    def read(self, size: int) -> bytes:
        """Return the next bytes, at most `size`; fewer only at the end. Raise `DamagedBodyError`."""
        pieces = []
        while size > 0 and not self.ended:
            try:
                piece = self._step(size)
            except zlib.error:
                raise DamagedBodyError from None
            pieces.append(piece)
            size -= len(piece)
        return b"".join(pieces)

    def _step(self, size: int) -> bytes:
        window = self._unused or self._packed[self._position : self._position + _WINDOW]
        if not self._unused:
            self._position += len(window)
        piece = self._decompressor.decompress(window, size)
        self._unused = self._decompressor.unconsumed_tail
        if self._decompressor.eof:
            self._position -= len(self._decompressor.unused_data)
            self._unused = b""
            self._next_member()
        elif not window and not piece:
            raise DamagedBodyError
        return piece

    def _next_member(self) -> None:
        while self._packed[self._position : self._position + 1] == b"\0":  # files may be padded with zeros
            self._position += 1
        self.ended = self._bits != _GZIP or self._position == len(self._packed)
        if self.ended:
            return
        self._members += 1
        if self._members > MAX_MEMBERS:
            raise DamagedBodyError
        self._decompressor = zlib.decompressobj(self._bits)
