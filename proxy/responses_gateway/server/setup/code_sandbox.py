"""The sandbox for code that the settings ask for."""

from __future__ import annotations

import sys
from pathlib import Path

from responses_gateway.hosted.code.container import ContainerLimits
from responses_gateway.hosted.code.sandbox import Sandbox, SandboxOptions
from responses_gateway.hosted.code.worker_sandbox import WorkerSandbox
from responses_gateway.settings import Settings
from responses_gateway.version import __version__

IMAGE_BYTES = 4 * 1024**2


async def open_sandbox(settings: Settings, workers_folder: Path | None = None) -> Sandbox | WorkerSandbox | None:
    """Open the sandbox; return None if code runs elsewhere, or nowhere. `workers_folder` is the folder of all workers, if this
    process is one of several: they share one sandbox. Raise SandboxUnavailable."""
    if settings.code_interpreter != "sandbox":
        return None
    options = SandboxOptions(
        __version__,
        settings.code_interpreter_python or sys.executable,
        code_limits(settings),
        settings.code_interpreter_containers,
        settings.code_interpreter_idle,
    )
    sandbox = Sandbox(options) if workers_folder is None else WorkerSandbox(workers_folder, options)
    await sandbox.start()
    return sandbox


def code_limits(settings: Settings) -> ContainerLimits:
    """Return the limits of one container."""
    return ContainerLimits(
        timeout=settings.code_interpreter_timeout,
        memory_bytes=int(settings.code_interpreter_memory_bytes),
        output_bytes=int(settings.code_interpreter_output_bytes),
        image_bytes=IMAGE_BYTES,
    )
