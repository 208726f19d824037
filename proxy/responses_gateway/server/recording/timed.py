"""Recording for some minutes, into a folder that is deleted when the gateway ends."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from responses_gateway.server.recording.recorder import FileRecorder
from responses_gateway.server.recording.recording import Recorder, Recording
from responses_gateway.settings import Settings

# All records together, in bytes: the oldest are deleted.
_LIMIT = 256 * 1024 * 1024


class TimedRecorder(Recorder):
    """Records nothing until `record_for` is called."""

    def __init__(self, settings: Settings) -> None:
        """`settings` are those at the start."""
        self._settings = settings
        self._folder: tempfile.TemporaryDirectory[str] | None = None  # made when it is needed first
        self._files: FileRecorder | None = None

    def record_for(self, seconds: float) -> None:
        """Record the requests that begin within so many seconds; 0 ends that. Raise `OSError` if no folder can be made."""
        if self._files is None and seconds > 0:
            self._folder = tempfile.TemporaryDirectory(prefix="responses-gateway-records-")
            limit = min(_LIMIT, self._settings.record_limit)
            self._files = FileRecorder(Path(self._folder.name), limit, self._settings)
        self.until = time.time() + seconds if seconds > 0 else 0.0

    def _begin(self, headers: Mapping[str, str], settings: Settings, *, websocket: bool, door: str) -> Recording:
        assert self._files is not None
        return self._files.begin(headers, settings, websocket=websocket, door=door)

    def read(self, name: str) -> str | None:
        """Return the record of this name."""
        return None if self._files is None else self._files.read(name)

    def so_far(self, recording: Recording) -> str | None:
        """Return the record of a running exchange, as it stands."""
        return None if self._files is None else self._files.so_far(recording)

    def close(self) -> None:
        """Delete all records."""
        if self._files is not None:
            self._files.close()
        if self._folder is not None:
            self._folder.cleanup()
