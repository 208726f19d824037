"""What becomes of calls that a client would refuse."""

from __future__ import annotations

from typing import Annotated, Literal

from responses_gateway.settings.section import OFF, Section


class ToolCallSettings(Section):
    """How the calls of models are repaired."""

    title = "Tool calls"
    optional = True

    repair_calls: Annotated[Literal["safe", "off"] | None, OFF] = None
    """`safe` repairs a call that its client would refuse, if there is one reading of it and that fits the tool's schema; its
    arguments are sent when they are whole. By default `safe` for agents that wait for whole calls in any case (Codex, Claude
    Code, opencode, pi and those made with an SDK), `off` for other clients. See [docs/agents.md](agents.md)."""
