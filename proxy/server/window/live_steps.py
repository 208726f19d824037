"""The steps of a running stream without its content: when the backend sent how many bytes, and which events resulted.

A translator's calls are noted only while a visitor has its request open."""

from __future__ import annotations

import re
import time
from collections import deque
from typing import Any

from proxy.stream.translator import Translator
from proxy.wire.errors import ApiError

# The number of steps that are kept, the most recent ones.
_KEPT = 500
_EVENT = re.compile(rb"^event: (\S+)", re.MULTILINE)
_CHUNK = re.compile(rb"^data: ?(?!\[DONE\])", re.MULTILINE)


class LiveSteps:
    """Notes the calls of one translator from `attach` to `detach`."""

    def __init__(self, translator: Translator) -> None:
        self.steps: deque[dict[str, Any]] = deque(maxlen=_KEPT)
        self.total = 0  # of all steps, including those that are not kept any more
        self._translator = translator

    def attach(self) -> None:
        """Begin to note, unless the exchange is recorded."""
        if self._translator.note is None:
            self._translator.note = self._note

    def detach(self) -> None:
        """Stop noting."""
        if self._translator.note == self._note:
            self._translator.note = None

    def _note(self, call: str, data: bytes | ApiError | None, sent: bytes) -> None:
        received = data if isinstance(data, bytes) else b""
        self.total += 1
        self.steps.append(
            {
                "number": self.total,
                "call": call,
                "time": time.time(),
                "bytes": len(received),
                "chunks": len(_CHUNK.findall(received)),
                "events": [{"type": kind.decode("utf-8", "replace")} for kind in _EVENT.findall(sent)],
                "held": self._translator.held,
            }
        )
