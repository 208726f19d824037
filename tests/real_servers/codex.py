"""The Codex CLI through the gateway, as its user sees it."""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.codex.codex_cli import BINARY, Codex
from tests.real_servers.conversation import Conversation, Wrong, scenario

_ANSWER = "Good morning. What shall we build?"
_THOUGHT = "The user greets me. A short friendly reply is enough."


def is_installed() -> bool:
    """Tell whether there is a Codex CLI to run."""
    return BINARY.exists()


def codex(with_: Conversation) -> None:
    """Check that Codex shows the thought as reasoning, the answer without markup, and no error."""
    with tempfile.TemporaryDirectory() as folder:
        program = Codex(Path(folder), f"{with_.url}/v1")
        program.top["model"] = with_.server.model
        program.top["model_context_window"] = 32768
        run = program.run(scenario("think"))
    shown = [item["text"] for item in run.items("reasoning")]
    with_.said.append(f"codex exec: status {run.code}\n{run.events}\n{run.stderr}")
    if run.code != 0 or run.errors:
        raise Wrong(f"status {run.code}: {'; '.join(run.errors)[:160]}")
    if run.answers != [_ANSWER]:
        raise Wrong(f"answers {str(run.answers)[:120]}")
    if shown and not all(_THOUGHT in text for text in shown):
        raise Wrong(f"reasoning {str(shown)[:120]}")
