"""Signs of what an answer is, by its text alone, in any language: does it ask something, or announce a step?

Word lists fire on good answers ("let me know", "I will need to"), and know one language. So a step counts as announced only by
how the text is written: it is short, and stops where something has to follow."""

from __future__ import annotations

import re

# Characters. Longer texts are reports.
_LONGEST_ANNOUNCEMENT = 400
# The end of a text in which a question would stand.
_TAIL = 1_000
# Question marks of all scripts; `;` is not among them, though Greek writes one like it.
_QUESTION = re.compile(r"[?？؟՞\u037e⸮](?=[\s)\]}\"'»”’」』*_.!。！]|$)")
# Japanese and Chinese questions may do without a mark.
_ASKING_ENDS = ("か", "か。", "吗", "吗。", "嗎", "嗎。", "呢", "呢。")
_CODE = re.compile(r"`[^`\n]*`")
_LIST = re.compile(r"^\s{0,8}(?:[-*+•·]|\d{1,3}[.)、])\s", re.MULTILINE)
# What has something to follow: a colon, or dots that trail off.
_OPEN_ENDS = (":", "：", "…", "...")
# What a model may write around the last word.
_CLOSING = " \t\r\n*_"


def asks(text: str) -> bool:
    """Tell whether an answer asks its reader something near its end, so that the turn is theirs."""
    tail = _CODE.sub("", text[-_TAIL:]).rstrip(_CLOSING)
    return tail.endswith(_ASKING_ENDS) or _QUESTION.search(tail) is not None


def announces(text: str) -> bool:
    """Tell whether an answer seems to announce a step that it does not take. A guess: whoever acts on it acts on some good
    answers, too."""
    stripped = text.strip()
    if not stripped or len(stripped) > _LONGEST_ANNOUNCEMENT or "```" in stripped:
        return False
    if not stripped.rstrip(_CLOSING).endswith(_OPEN_ENDS):
        return False
    return not asks(stripped) and _LIST.search(stripped) is None
