"""Cut the text of a result to the size that the settings allow."""

from __future__ import annotations


def cut(text: str, most_bytes: int) -> tuple[str, bool]:
    """Cut a text to a number of bytes, with a note for the model at its end. Return it, and whether it was cut."""
    encoded = text.encode("utf-8", "replace")
    if len(encoded) <= most_bytes:
        return text, False
    note = f"\n[cut: {len(encoded)} bytes are more than the {most_bytes} that a result may have]"
    kept = encoded[: max(0, most_bytes - len(note))].decode("utf-8", "ignore")
    return kept + note, True
