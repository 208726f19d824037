"""The matrix: every check against one gateway, and what came of each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from tests.real_servers import accounting, answers, codex, messages
from tests.real_servers.conversation import Conversation, Wrong

Check = Callable[[Conversation], None]
Mark = Literal["✓", "✗", "–"]
_ARGUMENTS_FIRST = "arguments first"
_CODEX = "Codex"
# No note of the table: it is the same for most servers.
ELSEWHERE = "run with two settings of vLLM"

CHECKS: dict[str, Check] = {
    "text": answers.text,
    "thought": answers.thought,
    "call": answers.call,
    "parallel": answers.parallel_calls,
    "reasoning sent back": answers.reasoning_sent_back,
    "JSON schema": answers.json_schema,
    "logprobs": answers.logprobs,
    "forced tool": answers.forced_tool,
    _ARGUMENTS_FIRST: answers.arguments_first,
    "no limit": accounting.no_limit,
    "cut": accounting.cut,
    "overflow": accounting.overflow,
    "cancel": accounting.cancel,
    "usage": accounting.usage,
    "input tokens": accounting.input_tokens,
    "Messages API": messages.messages,
    "decisions": messages.decisions,
    _CODEX: codex.codex,
}


@dataclass(frozen=True)
class Cell:
    """The result of one check. `note` says what was seen, or why the server cannot do it; `evidence` has the exchanges."""

    mark: Mark
    note: str = ""
    evidence: str = ""


def run(with_: Conversation, report: Callable[[str, Cell], None]) -> dict[str, Cell]:
    """Run all checks, one after the other, and report each as it ends."""
    cells: dict[str, Cell] = {}
    for name, check in CHECKS.items():
        cells[name] = _run(name, check, with_)
        report(name, cells[name])
    return cells


def _run(name: str, check: Check, with_: Conversation) -> Cell:
    left_out = _left_out(name, with_)
    if left_out is not None:
        return Cell("–", left_out)
    with_.said.clear()
    try:
        check(with_)
    except Wrong as wrong:
        impossible = None if wrong.broken else with_.setting.cannot.get(name)
        if impossible is not None:
            return Cell("–", impossible)
        return Cell("✗", str(wrong), "\n".join(with_.said))
    except (KeyError, IndexError, TypeError, AttributeError, ValueError) as error:  # an answer of another shape
        return Cell("✗", f"unreadable answer: {error!r}"[:160], "\n".join(with_.said))
    return Cell("✓")


def _left_out(name: str, with_: Conversation) -> str | None:
    if name in with_.setting.left_out:
        return with_.setting.left_out[name]
    if name == _ARGUMENTS_FIRST and with_.setting.markup != "hermes":
        return "this markup has no such calls"
    if name == _CODEX and not with_.setting.codex:
        return ELSEWHERE
    if name == _CODEX and not codex.is_installed():
        return "the Codex CLI is not installed (`scripts/install-codex`)"
    return None
