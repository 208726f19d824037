"""The sandbox for code that the settings ask for."""

from __future__ import annotations

import sys

from proxy.hosted.code.container import Limits
from proxy.hosted.code.sandbox import Sandbox
from proxy.settings import Settings

IMAGE_BYTES = 4 * 1024**2


async def open_sandbox(settings: Settings) -> Sandbox | None:
    """Open the sandbox; return None if code runs elsewhere, or nowhere. Raise SandboxUnavailable."""
    if settings.code_interpreter != "sandbox":
        return None
    sandbox = Sandbox(
        settings.code_interpreter_python or sys.executable,
        code_limits(settings),
        containers=settings.code_interpreter_containers,
        idle=settings.code_interpreter_idle,
    )
    await sandbox.start()
    return sandbox


def code_limits(settings: Settings) -> Limits:
    """Return the limits of one container."""
    return Limits(
        timeout=settings.code_interpreter_timeout,
        memory_bytes=settings.code_interpreter_memory_bytes,
        output_bytes=settings.code_interpreter_output_bytes,
        image_bytes=IMAGE_BYTES,
    )
