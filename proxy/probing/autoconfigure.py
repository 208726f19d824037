"""A gateway that serves finds out what its backends want, and takes the settings that fit."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any

from proxy.backend.transport.client import Backend
from proxy.probing.brief import NoAnswer, probe_briefly
from proxy.probing.profile import Profile
from proxy.probing.recommend import agreed, missing_settings
from proxy.settings import Settings
from proxy.telemetry import logs
from proxy.wire.errors import ApiError

#: Seconds until a server that is not there yet is looked for again: doubled each time, up to the second number.
LOOK_AGAIN, LOOK_AGAIN_AT_MOST = 1.0, 60.0
#: Seconds until a server that did not answer is asked again; after the last one it is left alone.
ASK_AGAIN = (10.0, 30.0, 90.0, 270.0)
_NO_KEY = "the backend wants a key: give it in backend_api_key, or the settings that fit"


class Examination:
    """Of one backend or several. What they all want is taken, as soon as each of them has answered.

    `looked` is set when the first attempt at each backend is over, whatever came of it.
    """

    def __init__(self, settings: Settings, use: Callable[[Settings], None], looked: Callable[[], None] | None = None) -> None:
        """`use` is called with the settings that fit, each time when there are others; `looked` when each was looked at."""
        self.looked = asyncio.Event()
        self._tell_looked = looked
        self._settings = settings
        self._use = use
        self._wanted: dict[str, dict[str, Any]] = {}  # backend -> what it wants, of what was not given
        self._taken: dict[str, Any] = {}
        self._not_looked_at: set[str] = set()

    @property
    def taken(self) -> dict[str, Any]:
        """The settings that were taken so far."""
        return dict(self._taken)

    def take_over(self, taken: dict[str, Any]) -> Settings:
        """The settings that fit, when another process has found out `taken`."""
        self._taken = {name: value for name, value in taken.items() if name in Settings.model_fields}
        return self._settings.model_copy(update=self._taken)

    async def run(self, backends: Sequence[Backend]) -> None:
        """Ends when all are examined, or some in vain."""
        self._not_looked_at = {str(backend.url) for backend in backends}
        async with asyncio.TaskGroup() as group:
            for backend in backends:
                group.create_task(self._examine(backend))

    async def _examine(self, backend: Backend) -> None:
        url = str(backend.url)
        try:
            profile = await self._profile(backend, url)
            if profile is not None:
                self._take(url, profile)
        finally:
            self._looked_at(url)

    def _looked_at(self, url: str) -> None:
        self._not_looked_at.discard(url)
        if self._not_looked_at or self.looked.is_set():
            return
        self.looked.set()
        if self._tell_looked is not None:
            self._tell_looked()

    def _take(self, url: str, profile: Profile) -> None:
        if profile.refusal is not None:
            logs.logger().warning("not adapted to the backend", extra=logs.fields(reason=profile.refusal, backend=url))
            return
        self._wanted[url] = missing_settings(self._settings, profile)
        taken, disputed = agreed(list(self._wanted.values()))
        for name in taken.keys() - self._taken.keys():
            fields = logs.fields(setting=name, value=taken[name], model=profile.model or None, backend=url)
            logs.logger().info("adapted to the backend", extra=fields)
        for name in disputed:
            value = self._wanted[url].get(name)
            fields = logs.fields(setting=name, value=value, model=profile.model or None, backend=url)
            logs.logger().warning("the backends differ: not adapted", extra=fields)
        if taken != self._taken:
            self._taken = taken
            self._use(self._settings.model_copy(update=taken))
        fields = logs.fields(server=profile.server, model=profile.model, seconds=profile.seconds, backend=url)
        logs.logger().info("examined the backend", extra=fields)

    async def _profile(self, backend: Backend, url: str) -> Profile | None:
        """What was found out, however long it takes until somebody answers; None if there is no use in asking on."""
        delay, asked = LOOK_AGAIN, 0
        while True:
            began = time.monotonic()
            try:
                profile = await probe_briefly(backend)
                profile.seconds = round(time.monotonic() - began, 3)
                return profile
            except ApiError as error:
                if backend.closed:
                    return None
                if error.status in (401, 403):
                    logs.logger().warning("not adapted to the backend", extra=logs.fields(reason=_NO_KEY, backend=url))
                    return None
                if delay == LOOK_AGAIN:
                    self._not_yet(url, error.message)
                pause, delay = delay, min(delay * 2, LOOK_AGAIN_AT_MOST)
            except NoAnswer as error:
                self._not_yet(url, str(error))
                if asked == len(ASK_AGAIN):
                    return None
                pause, asked = ASK_AGAIN[asked], asked + 1
            self._looked_at(url)
            await asyncio.sleep(pause)

    def _not_yet(self, url: str, reason: str) -> None:
        logs.logger().warning("the backend cannot be examined yet", extra=logs.fields(reason=reason, backend=url))
