"""Text of strangers, made fit for a model."""

from __future__ import annotations


def clean(text: str) -> str:
    """Return text without control characters and without the brackets of citations, which would look like marks of ours."""
    kept = text if text.isprintable() else "".join(character if character.isprintable() else " " for character in text)
    return kept.replace("【", "[").replace("】", "]")


def shortened(text: str, longest: int) -> str:
    """Return text of at most `longest` characters, with a sign where it was cut."""
    return text if len(text) <= longest else f"{text[: longest - 1].rstrip()}…"
