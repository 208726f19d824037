"""How the sandbox runs code, and what a container may use up."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b

import msgspec


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a container: `timeout` in seconds for a run, `memory_bytes` for variables and files together, `output_bytes`
    of text and `image_bytes` of images for a run."""

    timeout: float = 30.0
    memory_bytes: int = 256 * 1024**2
    output_bytes: int = 64 * 1024
    image_bytes: int = 4 * 1024**2

    def line_bytes(self) -> int:
        """Return the size that an answer of the child cannot exceed: escaped text, images in base64, names of files."""
        return 8 * self.output_bytes + 2 * self.image_bytes + 1024**2


class SandboxOptions(msgspec.Struct, frozen=True):
    """How code is run. Workers with the same options share their containers: a rolling restart may bring others, or another
    `version` of the gateway."""

    version: str
    python: str
    limits: Limits
    containers: int
    idle: float

    @property
    def socket_name(self) -> str:
        """The name of their socket."""
        return f"code-{blake2b(msgspec.json.encode(self), digest_size=4).hexdigest()}"
