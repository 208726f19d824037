"""What an application of the simulator keeps, and under which keys."""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Any

from aiohttp import web

from proxy.simulator.metrics import Counters
from proxy.simulator.options import SimulatorOptions

_REMEMBERED = 1000


class Strikes:
    """How often a fault has struck for a message, for the faults that strike only a number of times."""

    def __init__(self) -> None:
        self._struck: OrderedDict[int, int] = OrderedDict()

    def strike(self, message: str, times: int | None) -> bool:
        """Whether a fault that strikes `times` times (None: always) strikes for this message once more."""
        if times is None:
            return True
        key = hash(message)
        struck = self._struck.get(key, 0)
        self._struck[key] = struck + 1
        while len(self._struck) > _REMEMBERED:
            self._struck.popitem(last=False)
        return struck < times


OPTIONS = web.AppKey("options", SimulatorOptions)
COUNTERS = web.AppKey("counters", Counters)
#: the last requests, oldest first: `{"body": …, "headers": …}`
RECEIVED: web.AppKey[deque[dict[str, Any]]] = web.AppKey("received", deque)
STRIKES = web.AppKey("strikes", Strikes)
