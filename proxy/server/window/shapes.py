"""The shape of a stream: when the backend sent how much, and which events that became. No content.

Nothing is noted until somebody looks at the request, and nothing any more once nobody has for a while."""

from __future__ import annotations

import re
from collections import deque
from typing import Any

from proxy.stream.tape import Call, Tape
from proxy.stream.translator import Translator

# Calls of the translator that are kept, the last ones.
_KEPT = 500
_EVENT = re.compile(rb"^event: (\S+)", re.MULTILINE)
_CHUNK = re.compile(rb"^data: ?(?!\[DONE\])", re.MULTILINE)


class Shape:
    """Notes the calls of one translator while it is `attached`."""

    def __init__(self, tape: Tape, translator: Translator) -> None:
        self.steps: deque[dict[str, Any]] = deque(maxlen=_KEPT)
        self.noted = 0  # steps, also those that are not kept any more
        self._tape = tape
        self._translator = translator

    def attach(self) -> None:
        """Begin to note."""
        self._tape.attach(self._translator, self._note)

    def detach(self) -> None:
        """Note nothing any more."""
        self._tape.detach(self._translator, self._note)

    def _note(self, call: Call, sent: bytes) -> None:
        received = call.argument or b""
        self.noted += 1
        self.steps.append(
            {
                "number": self.noted,
                "call": call.method,
                "time": call.at,
                "bytes": len(received),
                "chunks": len(_CHUNK.findall(received)),
                "events": [{"type": kind.decode("utf-8", "replace")} for kind in _EVENT.findall(sent)],
                "held": self._translator.held,
            }
        )
