"""What the gateway does for a model with tools that stops too early, or goes round in circles."""

from __future__ import annotations

from typing import Annotated, Literal

from responses_gateway.settings.section import OFF, Section


class AgentTurnSettings(Section):
    """All of it is off by default, and counted in any case."""

    title = "Turns of agents"
    optional = True

    continue_early_ends: Annotated[Literal["off", "certain", "all"], OFF] = "off"
    """Ask a model to go on, within the same response, if its answer ended before its work did: `certain` only if that is beyond
    doubt (only a thought after a tool's output, no answer, a broken call), `all` also if its text announces a step. Recommended
    for open models with Codex and Claude Code: `certain`. See [docs/agents.md](agents.md#early-ends)."""
    repetition_notice: bool = False
    """Tell a model after a tool's output that it has made the same call five times, with the same output."""
    end_text_loops: bool = False
    """End an answer that repeats the same text endlessly. It is then incomplete."""
