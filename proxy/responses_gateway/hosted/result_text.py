"""Text of results as a model, a client and a store can take it: bounded, and without control characters."""

from __future__ import annotations

import re

# Sequences by which a program controls a terminal: colours, titles, links. As many as follow each other, because a match
# costs more than what it matches: megabytes of them held the event loop.
_ESCAPES = re.compile(r"(?:\x1b++(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~]?))++")
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_MOST_MARKS = 5000
_CITATION = re.compile(r"【(\d[^【】\n]{0,90})】")


def truncate(text: str, most_bytes: int) -> tuple[str, bool]:
    """Cut a text to a number of bytes, with a note for the model at its end. Return it, and whether it was cut."""
    encoded = text.encode("utf-8", "replace")
    if len(encoded) <= most_bytes:
        return text, False
    note = f"\n[cut: {len(encoded)} bytes are more than the {most_bytes} that a result may have]"
    kept = encoded[: max(0, most_bytes - len(note))].decode("utf-8", "ignore")
    return kept + note, True


def shorten(text: str, longest: int) -> str:
    """Return text of at most `longest` characters, with a sign where it was cut."""
    return text if len(text) <= longest else f"{text[: longest - 1].rstrip()}…"


def clean_line(text: str) -> str:
    """Return text in one line, without control characters and without the brackets of citations, which the gateway writes."""
    kept = text if text.isprintable() else "".join(character if character.isprintable() else " " for character in text)
    return kept.replace("【", "[").replace("】", "]")


def plain_text(text: str) -> str:
    """Return text without terminal sequences, control characters (such as NUL, which PostgreSQL refuses) and half surrogate
    pairs; a carriage return ends a line."""
    text = text.encode("utf-8", "replace").decode("utf-8")
    text = _ESCAPES.sub("", text).replace("\r\n", "\n").replace("\r", "\n")
    return _CONTROLS.sub("", text)


def untrusted_text(text: str) -> str:
    """Return the plain text of what a server sent, with other brackets around what looks like a citation (`【1】`)."""
    text = plain_text(text)
    if text.count("【") > _MOST_MARKS:  # nobody cites so much, and each takes its time
        return text.replace("【", "[").replace("】", "]")
    return _CITATION.sub(r"[\1]", text)
