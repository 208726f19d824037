"""A worker among others: it does what they tell, and tells them what it has done and found out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from pydantic import ValidationError

from proxy.probing.autoconfigure import Examination
from proxy.server.generation.gateway import Gateway
from proxy.server.process.notices import ADAPTED, ADDED, DRAINED, EXAMINED, LOOKED, REMOVED, RESUMED, Notice
from proxy.server.setup.backends import spec_of
from proxy.settings import BackendDetails, Settings
from proxy.telemetry import logs
from proxy.wire.errors import ApiError


class Colleagues:
    """The other workers, for one gateway that serves. Create it inside the running event loop."""

    def __init__(self, gateway: Gateway, post: Callable[[Notice], None], *, one_examines: bool) -> None:
        """`post` tells the others. `one_examines`: the parent will say who asks the backends what they want; a parent of an
        older version does not, and each asks for itself."""
        self._gateway = gateway
        self._post = post
        self._one_examines = one_examines
        gateway.post = post
        if one_examines and gateway.settings.adapt:
            gateway.examination = Examination(gateway.settings, self._use, lambda: post(Notice(LOOKED)))

    def begin(self) -> None:
        """This worker is ready."""
        if not self._one_examines:
            self._gateway.begin_adapting()

    def examine(self) -> None:
        """Ask the backends, for all workers."""
        gateway = self._gateway
        if gateway.examination is None:
            self._post(Notice(EXAMINED))
        elif gateway.adapting is None:
            gateway.examine()
            assert gateway.adapting is not None
            gateway.adapting.add_done_callback(self._examined)

    def hear(self, notice: Notice) -> None:
        """Do what another worker did, or what was done before this one was there."""
        try:
            self._follow(notice)
        except (ApiError, ValidationError) as error:  # the settings of this one may have it already, or not at all
            reason = error.message if isinstance(error, ApiError) else "its fields are those of another version"
            fields = logs.fields(change=notice.about, backend=notice.name, reason=reason)
            logs.logger().warning("a change was not taken over", extra=fields)

    def _follow(self, notice: Notice) -> None:
        gateway, members = self._gateway, self._gateway.pool.members
        if notice.about == ADDED:
            members.add(spec_of(notice.name, BackendDetails.model_validate(notice.fields), gateway.settings))
        elif notice.about == REMOVED:
            members.remove(notice.name)
        elif notice.about in (DRAINED, RESUMED):
            members.drain(notice.name, notice.about == DRAINED)
        elif gateway.examination is None:
            return
        elif notice.about == ADAPTED:
            gateway.use_settings(gateway.examination.take_over(notice.fields))
        elif notice.about in (LOOKED, EXAMINED):
            gateway.examination.looked.set()

    def _use(self, settings: Settings) -> None:
        examination = self._gateway.examination
        assert examination is not None
        self._gateway.use_settings(settings)
        self._post(Notice(ADAPTED, fields=examination.taken))

    def _examined(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled():  # else this worker ends, and another one takes over
            self._post(Notice(EXAMINED))
