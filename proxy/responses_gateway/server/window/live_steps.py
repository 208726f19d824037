"""The steps of a running stream without its content: when the backend sent how many bytes, and which events resulted.

A translator's calls are noted only while a visitor has its request open."""

from __future__ import annotations

import re
from collections import deque
from typing import Any

from responses_gateway.stream.tape import Call, Tape
from responses_gateway.stream.translator import Translator

# The number of steps that are kept, the most recent ones.
_KEPT = 500
_EVENT = re.compile(rb"^event: (\S+)", re.MULTILINE)
_CHUNK = re.compile(rb"^data: ?(?!\[DONE\])", re.MULTILINE)


class LiveSteps:
    """Notes the calls of one translator from `attach` to `detach`."""

    def __init__(self, tape: Tape, translator: Translator) -> None:
        self.steps: deque[dict[str, Any]] = deque(maxlen=_KEPT)
        self.total = 0  # of all steps, including those that are not kept any more
        self._tape = tape
        self._translator = translator

    def attach(self) -> None:
        """Begin to note."""
        self._tape.attach(self._translator, self._note)

    def detach(self) -> None:
        """Stop noting."""
        self._tape.detach(self._translator, self._note)

    def _note(self, call: Call, sent: bytes) -> None:
        received = call.argument or b""
        self.total += 1
        self.steps.append(
            {
                "number": self.total,
                "call": call.method,
                "time": call.at,
                "bytes": len(received),
                "chunks": len(_CHUNK.findall(received)),
                "events": [{"type": kind.decode("utf-8", "replace")} for kind in _EVENT.findall(sent)],
                "held": self._translator.held,
            }
        )
