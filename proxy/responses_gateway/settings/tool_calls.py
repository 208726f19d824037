"""What becomes of calls that a client would refuse."""

from __future__ import annotations

from typing import Annotated, Literal

from responses_gateway.settings.section import OFF, ON, Section


class ToolCallSettings(Section):
    """How calls are made valid."""

    title = "Tool calls"
    optional = True

    repair_calls: Annotated[Literal["safe", "off"] | None, OFF] = None
    """`safe` repairs a call that its client would refuse, if it can be read in only one way, which fits the tool's schema;
    arguments are sent when they are complete. By default `safe` for agents that wait for complete calls in any case (Codex,
    Claude Code, opencode, pi and those made with an SDK), `off` for other clients. See [docs/agents.md](agents.md)."""
    strict_calls: Annotated[Literal["auto", "on", "off"], ON, OFF] = "auto"
    """`on` asks the server to hold the model to the schemas of tools (`strict`), without what is costly or ignored (lengths,
    patterns). If the server refuses such a request, it is repeated without `strict`. `auto` sends it only to servers that were
    found to enforce schemas with it, without a change of the prompt. See [docs/agents.md](agents.md)."""
