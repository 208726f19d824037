"""The keys that the store has, in force in this process: read at its start, after each change here or in another worker, and
every few seconds, because other gateways with the same store change them, too."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import msgspec
from pydantic import ValidationError

from responses_gateway.ended_tasks import end_tasks, keep_going
from responses_gateway.server.generation.preparation.live_settings import LiveSettings
from responses_gateway.settings import ApiKey, first_problem
from responses_gateway.state import StoreUnavailable
from responses_gateway.state.client_keys import ClientKeyTable, KeyRow, Stamp
from responses_gateway.telemetry import logs

# Seconds between two looks at the store: for so long a key lives on in other gateways that was revoked.
INTERVAL = 2.0


class StoredKeys:
    """Reads the table, and adds its keys to the settings in force. Create it inside the running event loop."""

    def __init__(self, table: ClientKeyTable, live: LiveSettings) -> None:
        self.table = table
        self.rows: Sequence[KeyRow] = ()
        self._live = live
        self._stamp: Stamp | None = None
        self._keys: dict[KeyRow, ApiKey | None] = {}
        self._reading = asyncio.Lock()  # an earlier state must not replace a later one
        self._task: asyncio.Task[None] | None = None

    async def read(self) -> None:
        """Put in force what the store has now. Raise `StoreUnavailable`; the keys that were read last stay in force then."""
        async with self._reading:
            changed = await self.table.read(self._stamp)
            if changed is not None:
                self._stamp, self.rows = changed
                known = self._keys  # because validating many thousand would take long
                self._keys = {row: known.get(row) or _key_of(row) for row in self.rows}
                self._live.add_keys({row.name: key for row, key in self._keys.items() if key is not None})

    def is_unknown(self, row: KeyRow) -> bool:
        """Tell whether this version of the gateway cannot tell what the key may do."""
        return self._keys.get(row) is None

    def follow(self, on_defect: Callable[[Exception], None]) -> None:
        """Begin to look regularly for changes. `on_defect` gets exceptions that are no outage of the store."""
        self._task = asyncio.create_task(keep_going(self._follow, on_defect))

    async def close(self) -> None:
        """Look no more."""
        await end_tasks(self._task)

    async def _follow(self) -> None:
        while True:
            await asyncio.sleep(INTERVAL)
            try:
                await self.read()
            except StoreUnavailable as error:  # `Background` logs outages
                logs.logger().debug("client keys not read", extra=logs.fields(error=str(error)))


def _key_of(row: KeyRow) -> ApiKey | None:
    """Return the key of a row as the settings would have it; None if another version of the gateway wrote what this one does
    not know: such a key opens nothing here, since its limits are unknown."""
    try:
        return ApiKey.model_validate({**msgspec.json.decode(row.details), "hash": row.hash})
    except ValidationError as error:
        fields = logs.fields(key=row.name, reason=": ".join(first_problem(error, ())))
        logs.logger().warning("client key of another version", extra=fields)
        return None
