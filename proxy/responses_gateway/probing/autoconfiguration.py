"""Find out while the gateway serves which settings its backends need, and apply them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from responses_gateway.backend.pool import Pool
from responses_gateway.backend.transport.client import Backend
from responses_gateway.ended_tasks import end_tasks
from responses_gateway.probing.answer import Patience
from responses_gateway.probing.known_models import KnownModel, KnownModels
from responses_gateway.probing.prober import NoAnswer, probe_briefly
from responses_gateway.probing.profile import Profile
from responses_gateway.probing.questions import Questions, ask_chat_template
from responses_gateway.probing.recommend import common_settings, known_model, settings_to_apply, without_given
from responses_gateway.settings import Settings
from responses_gateway.telemetry import logs
from responses_gateway.wire.errors import ApiError

# Seconds until a server that could not be reached is tried again: doubled each time, up to the maximum.
RECONNECT_DELAY = 1.0
RECONNECT_DELAY_MAX = 60.0
# Seconds until a server that did not answer a question is asked again; after the last one it is left alone.
ANSWER_RETRY_DELAYS = (10.0, 30.0, 90.0, 270.0)
# Seconds in which a server renders a short prompt.
_TEMPLATE_TIMEOUT = 30.0
_KEY_REQUIRED = "the backend requires a key: set backend_api_key, or the settings that fit"


class Autoconfiguration:
    """Probes the backends of a pool in the background, and applies the settings that all of them need.

    With several workers one of them probes and reports, and the others `take_over` what it found. `looked` is set when the
    first attempt at each backend is over, whatever its result."""

    def __init__(
        self, settings: Settings, pool: Pool, use: Callable[[Settings], None], known: KnownModels | None = None
    ) -> None:
        """Take the `settings` that were given. `use` is called with the settings to use from then on. What probing shows of the
        models themselves is added to `known`."""
        # Called whenever something was found out, for other workers.
        self.report: Callable[[Autoconfiguration], None] = lambda _found: None
        self.enabled = settings.adapt
        self.finished = False
        self.looked = asyncio.Event()
        self.task: asyncio.Task[None] | None = None  # running or done
        self._expected = False  # this process or another one probes
        self._settings = settings
        self._pool = pool
        self._use = use
        self.known_models = KnownModels() if known is None else known
        self._needed: dict[str, dict[str, Any]] = {}  # by the backend's URL, without settings that were given
        self.taken: dict[str, Any] = {}  # the settings that were applied so far
        self.profiles: dict[str, Profile] = {}  # what was found out here, by the backend's URL
        self._pending: set[str] = set()  # backends that were not attempted yet
        self._probing = 0  # so many at a time

    @property
    def pending(self) -> bool:
        """Whether the first attempt is not over yet, so that an answer may not be the best one."""
        return self._expected and not self.looked.is_set()

    @property
    def settled(self) -> bool:
        """Whether the settings of requests will stay as they are, unless another backend comes."""
        if not self.enabled:
            return True
        if self.task is None or self.task.done():
            return self.looked.is_set() or self.task is not None
        return self.looked.is_set() and not self._probing  # what is left are pools without members

    def expect(self) -> None:
        """Note that another process probes, unless that is disabled."""
        self._expected = self.enabled
        self.known_models.may_ask = self.enabled

    def begin(self) -> None:
        """Probe the backends of the pool, unless that is disabled or has begun."""
        if not self.enabled or self.task is not None:
            return
        self._expected = True
        self.known_models.may_ask = True
        members = self._pool.members
        backends = [member.backend for member in members.by_name.values() if not member.spec.pool]
        self.task = asyncio.create_task(self.run(backends, list(members.pools)))
        self.task.add_done_callback(self._done)

    def take_over(self, taken: dict[str, Any]) -> None:
        """Apply the settings that another process has found."""
        self.taken = {name: value for name, value in taken.items() if name in Settings.model_fields}
        self._use(self._settings.model_copy(update=self.taken))

    def replace(self, settings: Settings) -> None:
        """Take settings that were given anew: what was found out applies where they say nothing."""
        self._settings = settings
        if self._needed:
            usable = {url: profile for url, profile in self.profiles.items() if url in self._needed}
            self._needed = {url: settings_to_apply(settings, profile) for url, profile in usable.items()}
            self.taken, _ = common_settings(list(self._needed.values()))
            self.report(self)
        else:  # another process has found it out
            self.taken = without_given(settings, self.taken)
        self._use(settings.model_copy(update=self.taken))

    async def close(self) -> None:
        """Stop probing."""
        if self.task is not None:
            self.task.cancel()

    async def run(self, backends: Sequence[Backend], pools: Sequence[str] = ()) -> None:
        """Probe the backends, and one of each pool. Returns when each has been probed or given up."""
        self._pending = {str(backend.url) for backend in backends}
        async with asyncio.TaskGroup() as group:
            for backend in backends:
                group.create_task(self._configure(backend))
            for pool in pools:
                group.create_task(self._configure_pool(pool))

    async def _configure_pool(self, pool: str) -> None:
        """Probe one member of a pool, which stands for all of them; another one if it leaves before that is done."""
        while True:
            member = await self._pool.members.first_of(pool)
            probing = asyncio.create_task(self._configure(member.backend))
            leaving = asyncio.create_task(member.left.wait())
            try:
                await asyncio.wait((probing, leaving), return_when=asyncio.FIRST_COMPLETED)
                if probing.done() and not member.left.is_set():
                    return probing.result()
            finally:
                await end_tasks(probing, leaving)
            if str(member.backend.url) in self.profiles:
                return None

    async def _configure(self, backend: Backend) -> None:
        url = str(backend.url)
        self._probing += 1
        try:
            profile = await self._probe(backend, url)
            if profile is not None:
                self.profiles[url] = profile
                await self._learn(backend, profile)
                self._apply(url, profile)
        except Exception as error:  # what one server answers must not keep the others from being examined
            logs.logger().error("a defect while probing a backend", exc_info=error, extra=logs.fields(backend=url))
        finally:
            self._probing -= 1
            self._attempted(url)

    def _attempted(self, url: str) -> None:
        self._pending.discard(url)
        if self._pending or self.looked.is_set():
            return
        self.looked.set()
        self.report(self)

    async def _learn(self, backend: Backend, profile: Profile) -> None:
        """Learn how the model thinks, by its answers and, where the server can tell, by its chat template."""
        known = known_model(profile)
        if profile.server == "vllm" and profile.refusal is None:
            try:
                template = await ask_chat_template(Questions(backend, profile, Patience(_TEMPLATE_TIMEOUT, _TEMPLATE_TIMEOUT)))
                known = known.with_more(KnownModel(thoughts=template.thoughts) if known.field else template)
            except ApiError as error:
                logs.logger().debug("the chat template is not known", extra=logs.fields(reason=error.message))
        self.known_models.learn(profile.model, known)

    def _apply(self, url: str, profile: Profile) -> None:
        if profile.refusal is not None:
            _warn("not adapted to the backend", url, profile.refusal)
            return
        self._needed[url] = settings_to_apply(self._settings, profile)
        common, conflicting = common_settings(list(self._needed.values()))
        source = {"model": profile.model or None, "backend": url}
        for name in common.keys() - self.taken.keys():
            logs.logger().info("adapted to the backend", extra=logs.fields(setting=name, value=common[name], **source))
        for name in conflicting:
            fields = logs.fields(setting=name, value=self._needed[url].get(name), **source)
            logs.logger().warning("the backends differ: not adapted", extra=fields)
        if common != self.taken:
            self.taken = common
            self._use(self._settings.model_copy(update=common))
            self.report(self)
        fields = logs.fields(server=profile.server, model=profile.model, seconds=profile.times.seconds, backend=url)
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

    def _done(self, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            return
        error = task.exception()
        if error is not None:
            logs.logger().error("a defect while probing the backends", exc_info=error)
        self.finished = True
        self.report(self)


def _warn(message: str, url: str, reason: str) -> None:
    logs.logger().warning(message, extra=logs.fields(reason=reason, backend=url))
