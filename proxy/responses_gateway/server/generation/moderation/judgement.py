"""What a guard model says of a text."""

from __future__ import annotations

from typing import Any, NamedTuple

# The categories of Llama Guard.
_KNOWN = tuple(f"S{number}" for number in range(1, 15))
# Most categories that are taken from one answer, and most characters of each.
_MOST = 32
_LONGEST = 64


class Judgement(NamedTuple):
    """Whether something in a text was flagged, and under which categories, in the guard's words."""

    flagged: bool
    categories: tuple[str, ...] = ()

    def also(self, other: Judgement) -> Judgement:
        """Return the judgement of two texts together."""
        if not other.flagged:
            return self
        return Judgement(True, tuple(dict.fromkeys(self.categories + other.categories)))

    def result(self, model: str) -> dict[str, Any]:
        """Return the `moderation_result` of the API. A guard says yes or no: scores are 1 or 0."""
        names = tuple(dict.fromkeys(_KNOWN + self.categories))
        return {
            "type": "moderation_result",
            "model": model,
            "flagged": self.flagged,
            "categories": {name: name in self.categories for name in names},
            "category_scores": {name: float(name in self.categories) for name in names},
            "category_applied_input_types": {name: ["text"] for name in names},
        }


SAFE = Judgement(False)


def read_judgement(answer: str) -> Judgement | None:
    """Read the answer of a guard: `safe`, or `unsafe` and a line of categories, whatever it thought before. None for anything
    else."""
    first, _, rest = answer.rpartition("</think>")[2].strip().partition("\n")
    word = first.strip().lower()
    if word == "safe" and not rest.strip():
        return SAFE
    if word != "unsafe":
        return None
    named = rest.strip().partition("\n")[0].split(",")
    return Judgement(True, tuple(name.strip()[:_LONGEST] for name in named[:_MOST] if name.strip()))


def failure(code: str, message: str) -> dict[str, Any]:
    """Return what stands in the place of a result, in the API's words."""
    return {"type": "error", "code": code, "message": message}
