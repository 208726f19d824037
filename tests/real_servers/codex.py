"""The Codex CLI through the gateway, as its user sees it."""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.codex.codex_cli import BINARY, Codex, Run
from tests.real_servers.conversation import Conversation, Wrong, scenario

_ANSWER = "Good morning. What shall we build?"
_THOUGHT = "The user greets me. A short friendly reply is enough."


def is_installed() -> bool:
    """Tell whether there is a Codex CLI to run."""
    return BINARY.exists()


def run_codex(url: str, model: str, prompt: str, **provider: int) -> Run:
    """Have Codex do one task with a model behind the gateway at this URL. `provider`: more settings of it."""
    with tempfile.TemporaryDirectory() as folder:
        program = Codex(Path(folder), f"{url}/v1")
        program.provider |= provider
        program.top["model"] = model
        program.top["model_context_window"] = 32768
        return program.run(prompt)


def codex(with_: Conversation) -> None:
    """Check that Codex shows the thought as reasoning, the answer without markup, and no error."""
    run = run_codex(with_.url, with_.server.model, scenario("think"))
    shown = [item["text"] for item in run.items("reasoning")]
    with_.said.append(f"codex exec: status {run.code}\n{run.events}\n{run.stderr}")
    if run.code != 0 or run.errors:
        raise Wrong(f"status {run.code}: {'; '.join(run.errors)[:160]}")
    if run.answers != [_ANSWER]:
        raise Wrong(f"answers {str(run.answers)[:120]}")
    if shown and not all(_THOUGHT in text for text in shown):
        raise Wrong(f"reasoning {str(shown)[:120]}")
