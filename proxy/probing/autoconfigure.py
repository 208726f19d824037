"""Find out while the gateway serves which settings its backends need, and apply them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from proxy.backend.transport.client import Backend
from proxy.probing.prober import NoAnswer, probe_briefly
from proxy.probing.profile import Profile
from proxy.probing.recommend import common_settings, settings_to_apply
from proxy.settings import Settings
from proxy.telemetry import logs
from proxy.wire.errors import ApiError

# Seconds until a server that could not be reached is tried again: doubled each time, up to the maximum.
RECONNECT_DELAY = 1.0
RECONNECT_DELAY_MAX = 60.0
# Seconds until a server that did not answer a question is asked again; after the last one it is left alone.
ANSWER_RETRY_DELAYS = (10.0, 30.0, 90.0, 270.0)
_KEY_REQUIRED = "the backend requires a key: set backend_api_key, or the settings that fit"


class Autoconfigure:
    """Apply the settings that all backends need, as soon as each of them has answered.

    `looked` is set when the first attempt at each backend is over, whatever came of it.
    """

    def __init__(self, settings: Settings, use: Callable[[Settings], None], looked: Callable[[], None] | None = None) -> None:
        """Take the `settings` that were given. `use` is called with the settings to use from then on, each time they change;
        `looked` when the first attempt at each backend is over."""
        self.looked = asyncio.Event()
        self._on_looked = looked
        self._settings = settings
        self._use = use
        self._needed: dict[str, dict[str, Any]] = {}  # by the backend's URL, without settings that were given
        self._taken: dict[str, Any] = {}
        self._pending: set[str] = set()  # backends that were not attempted yet

    @property
    def taken(self) -> dict[str, Any]:
        """The settings that were applied so far."""
        return dict(self._taken)

    def take_over(self, taken: dict[str, Any]) -> Settings:
        """Return the settings to use, given those that another process has found out."""
        self._taken = {name: value for name, value in taken.items() if name in Settings.model_fields}
        return self._settings.model_copy(update=self._taken)

    async def run(self, backends: Sequence[Backend]) -> None:
        """Probe the backends. Returns when each has been probed or given up."""
        self._pending = {str(backend.url) for backend in backends}
        async with asyncio.TaskGroup() as group:
            for backend in backends:
                group.create_task(self._configure(backend))

    async def _configure(self, backend: Backend) -> None:
        url = str(backend.url)
        try:
            profile = await self._probe(backend, url)
            if profile is not None:
                self._apply(url, profile)
        finally:
            self._attempted(url)

    def _attempted(self, url: str) -> None:
        self._pending.discard(url)
        if self._pending or self.looked.is_set():
            return
        self.looked.set()
        if self._on_looked is not None:
            self._on_looked()

    def _apply(self, url: str, profile: Profile) -> None:
        if profile.refusal is not None:
            _warn("not adapted to the backend", url, profile.refusal)
            return
        self._needed[url] = settings_to_apply(self._settings, profile)
        common, conflicting = common_settings(list(self._needed.values()))
        for name in common.keys() - self._taken.keys():
            fields = logs.fields(setting=name, value=common[name], model=profile.model or None, backend=url)
            logs.logger().info("adapted to the backend", extra=fields)
        for name in conflicting:
            value = self._needed[url].get(name)
            fields = logs.fields(setting=name, value=value, model=profile.model or None, backend=url)
            logs.logger().warning("the backends differ: not adapted", extra=fields)
        if common != self._taken:
            self._taken = common
            self._use(self._settings.model_copy(update=common))
        fields = logs.fields(server=profile.server, model=profile.model, seconds=profile.seconds, backend=url)
        logs.logger().info("examined the backend", extra=fields)

    async def _probe(self, backend: Backend, url: str) -> Profile | None:
        """Probe a backend, waiting until it can be reached. Return None if it is given up."""
        delay = RECONNECT_DELAY
        retry_delays = iter(ANSWER_RETRY_DELAYS)
        while True:
            try:
                return await probe_briefly(backend)
            except ApiError as error:
                if backend.closed:
                    return None
                if error.status in (401, 403):
                    _warn("not adapted to the backend", url, _KEY_REQUIRED)
                    return None
                if delay == RECONNECT_DELAY:
                    _warn("the backend cannot be examined yet", url, error.message)
                pause: float | None = delay
                delay = min(delay * 2, RECONNECT_DELAY_MAX)
            except NoAnswer as error:
                _warn("the backend cannot be examined yet", url, str(error))
                pause = next(retry_delays, None)
            if pause is None:
                return None
            self._attempted(url)
            await asyncio.sleep(pause)


def _warn(message: str, url: str, reason: str) -> None:
    logs.logger().warning(message, extra=logs.fields(reason=reason, backend=url))
