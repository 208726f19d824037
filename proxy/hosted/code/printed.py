"""Output of code as plain text: what terminals, stores and JSON cannot take is removed."""

from __future__ import annotations

import re

# Sequences by which a program controls a terminal: colours, titles, links.
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~]?)")
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def plain_text(text: str) -> str:
    """Return text without terminal sequences, control characters (such as NUL, which PostgreSQL refuses) and half surrogate
    pairs; a carriage return ends a line."""
    text = text.encode("utf-8", "replace").decode("utf-8")
    text = _ESCAPES.sub("", text).replace("\r\n", "\n").replace("\r", "\n")
    return _CONTROLS.sub("", text)
