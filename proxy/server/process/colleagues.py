"""A worker among others: it does what they tell, and tells them what it has done and found out."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pydantic import ValidationError

from proxy.probing.autoconfiguration import Autoconfiguration
from proxy.server.lifespan import Parts
from proxy.server.process.notices import ADAPTED, ADDED, DRAINED, EXAMINED, LOOKED, REMOVED, RESUMED, Notice
from proxy.server.setup.backends import spec_of
from proxy.settings import BackendDetails
from proxy.telemetry import logs
from proxy.wire.errors import ApiError


class Colleagues:
    """The other workers, for one gateway that serves. Create it inside the running event loop."""

    _parts: Parts

    def __init__(self, post: Callable[[Notice], None], *, one_examines: bool) -> None:
        """`post` tells the others. `one_examines`: the parent will say who examines the backends."""
        self._post = post
        self._one_examines = one_examines

    def join(self, parts: Parts, notices: Iterable[Notice]) -> None:
        """Take part, knowing what the others know."""
        self._parts = parts
        if self._one_examines:
            parts.autoconfiguration.expect()
        for notice in notices:
            self.hear(notice)

    def begin(self) -> None:
        """This worker is ready."""
        if not self._one_examines:
            self._parts.autoconfiguration.begin()

    def examine(self) -> None:
        """Ask the backends, for all workers."""
        if self._parts.autoconfiguration.enabled:
            self._parts.autoconfiguration.begin()
        else:
            self._post(Notice(EXAMINED))

    def report(self, found: Autoconfiguration) -> None:
        """Tell the others what was found out."""
        if not self._one_examines:
            return
        if found.taken:
            self._post(Notice(ADAPTED, fields=found.taken))
        if found.looked.is_set():
            self._post(Notice(LOOKED))
        if found.finished:
            self._post(Notice(EXAMINED))

    def hear(self, notice: Notice) -> None:
        """Do what another worker did, or what was done before this one was there."""
        try:
            self._follow(notice)
        except (ApiError, ValidationError) as error:  # the settings of this one may have it already, or not at all
            reason = error.message if isinstance(error, ApiError) else "its fields are those of another version"
            fields = logs.fields(change=notice.about, backend=notice.name, reason=reason)
            logs.logger().warning("a change was not taken over", extra=fields)

    def _follow(self, notice: Notice) -> None:
        members = self._parts.pool.members
        if notice.about == ADDED:
            members.add(spec_of(notice.name, BackendDetails.model_validate(notice.fields), self._parts.settings))
        elif notice.about == REMOVED:
            members.remove(notice.name)
        elif notice.about in (DRAINED, RESUMED):
            members.drain(notice.name, notice.about == DRAINED)
        elif notice.about == ADAPTED:
            self._parts.autoconfiguration.take_over(notice.fields)
        elif notice.about in (LOOKED, EXAMINED):
            self._parts.autoconfiguration.looked.set()
