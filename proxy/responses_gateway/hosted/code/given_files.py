"""The files that a conversation gives to its code: the `input_file` parts of the user's messages."""

from __future__ import annotations

import base64
import mimetypes
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from responses_gateway.wire.hosted import SentFile, sent_file

# What a container gets at most. A container has room for several times as much.
MOST_FILES = 20
MOST_BYTES = 16 * 1024**2
FOLDER = "/mnt/data"
_LONGEST_STEM = 80
_LONGEST_SUFFIX = 16
_UNSAFE = re.compile(r"[^\w .()+-]+")
_DATA_URL = re.compile(r"data:([^;,]{0,100})[^,]{0,200},", re.IGNORECASE)


@dataclass(slots=True)
class GivenFiles:
    """`contents` by name; `paths` in the container by what the client sent; `losses` in words for the log."""

    contents: dict[str, bytes] = field(default_factory=dict)
    paths: dict[SentFile, str] = field(default_factory=dict)
    losses: list[str] = field(default_factory=list)
    _bytes: int = 0

    def add(self, sent: SentFile) -> None:
        """Add a file, or what is lost of it."""
        if sent in self.paths:
            return
        filename, data = sent
        header = _DATA_URL.match(data)
        try:
            content = base64.b64decode("".join((data[header.end() :] if header else data).split()), validate=True)
        except ValueError:
            self._lose("a file that is not base64 is not given to the code")
            return
        if len(self.contents) >= MOST_FILES or self._bytes + len(content) > MOST_BYTES:
            self._lose(f"files beyond {MOST_FILES}, or {MOST_BYTES} bytes, are not given to the code")
            return
        name = self._unused(safe_name(filename, header[1] if header else ""))
        self.contents[name] = content
        self.paths[sent] = f"{FOLDER}/{name}"
        self._bytes += len(content)

    def _unused(self, name: str) -> str:
        stem, dot, suffix = name.rpartition(".")
        unused = name
        number = 1
        while unused in self.contents:
            number += 1
            unused = f"{stem}-{number}{dot}{suffix}" if dot else f"{name}-{number}"
        return unused

    def _lose(self, reason: str) -> None:
        if reason not in self.losses:
            self.losses.append(reason)


def sent_files(items: Iterable[Mapping[str, Any]]) -> Iterator[SentFile]:
    """Yield the files of the user's messages among some items, which may be anything."""
    for item in items:
        content = item.get("content")
        if item.get("role") != "user" or not isinstance(content, list):
            continue
        for part in content:
            sent = sent_file(part)
            if sent is not None:
                yield sent


def read_files(sent: Iterable[SentFile]) -> GivenFiles:
    """Return what is given to the code. Decoding megabytes takes a while: call it in a thread."""
    files = GivenFiles()
    for each in sent:
        files.add(each)
    return files


def safe_name(filename: str, media_type: str = "") -> str:
    """Return a name for a file: without folders, hidden names and characters that mean something elsewhere."""
    name = _UNSAFE.sub("_", re.split(r"[/\\]", filename)[-1]).strip(" .")
    if not name:
        return f"file{mimetypes.guess_extension(media_type.strip().lower()) or ''}"
    stem, dot, suffix = name.rpartition(".")
    if not dot or len(suffix) > _LONGEST_SUFFIX:
        return name[:_LONGEST_STEM]
    return f"{stem[:_LONGEST_STEM]}.{suffix}"
