"""To which session the threads of sub-agents belong, where a client names no more than the parent of each."""

from __future__ import annotations

from collections import OrderedDict

from responses_gateway.request.who_asks.asker import Asker, with_session
from responses_gateway.tenant_shares import TenantShares

# The threads that are remembered, those used last: of one tenant, who pushes out its own, and of all.
MOST_OF_TENANT = 2_000
MOST = 10_000


class SessionRoots:
    """Remembers the sessions of sub-agents' threads, so that what these begin is in the same session, however deep. After a
    restart, and at another process, a thread that was not seen there is a session for those that it begins."""

    def __init__(self) -> None:
        self._tenants: dict[str, OrderedDict[str, str]] = {}  # thread -> its session
        self._shares = TenantShares()

    def placed(self, tenant: str, asker: Asker) -> Asker:
        """Return an asker that has a parent, in the session of this parent if it is known, and remember its thread."""
        threads = self._tenants.get(tenant)
        parent = asker.parent
        by_parent = asker.source.get("session") == asker.source.get("parent")  # the client named no session
        if threads is not None and parent is not None and by_parent and parent in threads:
            threads.move_to_end(parent)
            asker = with_session(asker, threads[parent], asker.source["session"])
        if asker.session is not None and asker.thread is not None:
            self._remember(tenant, asker.thread, asker.session)
        return asker

    def _remember(self, tenant: str, thread: str, session: str) -> None:
        threads = self._tenants.setdefault(tenant, OrderedDict())
        self._shares.add(tenant, int(thread not in threads))
        threads[thread] = session
        threads.move_to_end(thread)
        if len(threads) > MOST_OF_TENANT:
            self._forget_oldest(tenant)
        while self._shares.total > MOST:
            self._forget_oldest(self._shares.largest())

    def _forget_oldest(self, tenant: str) -> None:
        threads = self._tenants[tenant]
        threads.popitem(last=False)
        self._shares.add(tenant, -1)
        if not threads:
            del self._tenants[tenant]
