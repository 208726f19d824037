"""What the calls of hosted tools may take, from the settings."""

from __future__ import annotations

from proxy.hosted.tool_runner import HostedLimits
from proxy.settings import Settings

# Until a container runs, on a busy machine, in seconds.
_STARTING = 15


def hosted_limits(settings: Settings) -> HostedLimits:
    """Return the limits of one response."""
    return HostedLimits(
        turns=settings.hosted_turns,
        call_seconds=settings.hosted_call_timeout,
        # The sandbox stops code by itself, and keeps its files then.
        code_seconds=max(settings.hosted_call_timeout, settings.code_interpreter_timeout + _STARTING),
        total_seconds=settings.hosted_total_timeout,
        result_bytes=settings.hosted_result_bytes,
    )
