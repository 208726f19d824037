"""The features of a gateway, in the order in which they are opened and in which they change a request. The one list."""

from __future__ import annotations

from responses_gateway.server.features.agent_turns.feature import AGENT_TURNS
from responses_gateway.server.features.cache_diagnostics.diagnostics import CACHE_DIAGNOSTICS
from responses_gateway.server.features.client_keys.feature import CLIENT_KEYS
from responses_gateway.server.features.completion_windows.feature import COMPLETION_WINDOWS
from responses_gateway.server.features.decisions.decisions import DECISIONS
from responses_gateway.server.features.feature import Feature
from responses_gateway.server.features.hosted_tools.feature import HOSTED_TOOLS
from responses_gateway.server.features.moderation.feature import MODERATION
from responses_gateway.server.features.rollouts.feature import ROLLOUTS
from responses_gateway.server.features.safeguards.feature import SAFEGUARDS
from responses_gateway.server.features.session_hints.feature import SESSION_HINTS
from responses_gateway.server.features.sessions.feature import SESSIONS
from responses_gateway.server.features.tool_calls.feature import TOOL_CALLS
from responses_gateway.server.features.webhooks.feature import WEBHOOKS
from responses_gateway.settings import Settings

FEATURES: tuple[Feature, ...] = (
    HOSTED_TOOLS,
    CACHE_DIAGNOSTICS,
    SESSION_HINTS,
    AGENT_TURNS,
    MODERATION,  # after what it could not see: it judges the request that is sent
    SAFEGUARDS,
    TOOL_CALLS,
    COMPLETION_WINDOWS,
    WEBHOOKS,
    DECISIONS,
    ROLLOUTS,
    SESSIONS,
    CLIENT_KEYS,
)


async def failing_programs(settings: Settings) -> list[str]:
    """Start each program of the settings once, and return what is wrong with those that fail. Raises `ValueError`."""
    starting = (feature.failing_programs for feature in FEATURES if feature.failing_programs is not None)
    return [problem for start in starting for problem in await start(settings)]
