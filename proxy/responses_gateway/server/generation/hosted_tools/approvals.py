"""An approval runs its call once, however often a client sends it: SDKs repeat requests by themselves."""

from __future__ import annotations

from collections.abc import Sequence

from responses_gateway.state import Store, StoreUnavailable
from responses_gateway.state.approvals import digest
from responses_gateway.telemetry import logs
from responses_gateway.wire.errors import server_error

# Without a store, so many approvals are remembered.
_REMEMBERED = 100_000


class UsedApprovals:
    """The approvals that were used: in the store, which processes share; without one in the memory of this process."""

    def __init__(self, store: Store | None = None) -> None:
        self._store = store
        self._remembered: dict[bytes, str] = {}

    async def use(self, tenant: str, request_ids: Sequence[str], response_id: str) -> dict[str, str]:
        """Use up approvals for a response, by the ids of their requests: all of them, or none if some were used by others.
        Return those, with the ids of the responses that used them. Raise `ApiError`."""
        digests = {digest(tenant, request_id): request_id for request_id in request_ids}
        if self._store is None:
            used = self._use_here(list(digests), response_id)
        else:
            try:
                used = await self._store.use_approvals(list(digests), response_id)
            except StoreUnavailable as error:
                logs.logger().error("store", extra=logs.fields(error=str(error)))
                raise server_error(error.for_clients, 503) from None
        return {digests[known_by]: used_by for known_by, used_by in used.items()}

    def _use_here(self, digests: Sequence[bytes], response_id: str) -> dict[bytes, str]:
        remembered = self._remembered
        used = {known_by: remembered[known_by] for known_by in digests if known_by in remembered}
        if not used:
            remembered.update(dict.fromkeys(digests, response_id))
            while len(remembered) > _REMEMBERED:
                del remembered[next(iter(remembered))]
        return used
