"""Tell by the last tokens of a prompt whether the answer begins inside reasoning.

Many chat templates end with the marker that opens a thought. It is then not part of the answer, and the ids of the prompt's
tokens are the proof."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

# How tokenizers write a space, a line break and a tab.
_BLANK = " \n\t\r▁ĠĊĉč"


class PromptEnd(msgspec.Struct, frozen=True):
    """The tokens of a model by which the end of a prompt is read: opening markers that are single tokens, with their ids, and
    ids of white space, which may follow them."""

    openings: Mapping[str, int]
    blank: frozenset[int] = frozenset()

    def opens(self, last_ids: Sequence[int], openings: Iterable[str]) -> bool | None:
        """Tell by the last ids of a prompt whether it ends behind one of the markers; None if none of them is a token."""
        known = {self.openings[marker] for marker in openings if marker in self.openings}
        last = next((token for token in reversed(last_ids) if token not in self.blank), None)
        return last in known if known and last is not None else None


def prompt_end_of(tokens: Iterable[tuple[int, str]], openings: Iterable[str]) -> PromptEnd:
    """Return the tokens that matter of some text: pairs of an id and how a tokenizer writes it."""
    wanted = frozenset(openings)
    found: dict[str, int] = {}
    blank: set[int] = set()
    for token, text in tokens:
        if text in wanted:
            found[text] = token
        elif text and not text.strip(_BLANK):
            blank.add(token)
    return PromptEnd(found, frozenset(blank))


def ends_open(prompt: str, openings: Iterable[str]) -> bool:
    """Tell whether a prompt, or its tokens joined as a tokenizer writes them, ends behind one of the markers."""
    return prompt.rstrip(_BLANK).endswith(tuple(openings))
