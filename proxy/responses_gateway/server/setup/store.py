"""The store that the settings ask for, and its upkeep: what has expired or no longer fits is deleted a little at a time, and
what is left is measured."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from responses_gateway.extras import how_to_install
from responses_gateway.settings import Settings
from responses_gateway.settings.storage import STORE_SCHEMES
from responses_gateway.state import Database, LiveLog, Sqlite, Store, StoreUnavailable
from responses_gateway.state.fleet_counters import FleetCounters
from responses_gateway.state.quotas import QuotaCounters, QuotaTable
from responses_gateway.state.schema import OtherSchema
from responses_gateway.state.upkeep import Upkeep
from responses_gateway.telemetry import logs
from responses_gateway.telemetry.instruments import STORE_UP, Counter, Gauge
from responses_gateway.telemetry.metrics import Metrics

STORE_BYTES = Gauge("store_bytes", "Size of the stored data, without free space.", together="livemax")
STORE_OLDEST = Gauge("store_oldest_seconds", "Age of the oldest stored response.", together="livemax")
STORE_EXPIRED = Gauge("store_expired_seconds", "How long ago a response that is still stored expired.", together="livemax")
STORE_DELETED = Counter(
    "store_deleted_total",
    "Responses and conversations that were deleted: expired, or no_room (`store_max_bytes`).",
    ("reason",),
)
STORE_METRICS = (STORE_UP, STORE_BYTES, STORE_OLDEST, STORE_EXPIRED, STORE_DELETED)
_DAY = 86_400
_FILE = "responses.sqlite3"
_UPKEEP_INTERVAL = 30.0  # seconds between two rounds of the upkeep


async def open_store(settings: Settings) -> Store | None:
    """Open the store; return None if nothing is to be kept. Raises `StoreUnavailable`.

    If the default file cannot be written, as in a container without a home, responses are kept in memory, with a warning in the
    log. A file or server that the settings name has to be there. One of another version is never passed over, since what it
    has would seem to be lost."""
    if settings.store == "none":
        return None
    if settings.store.startswith(STORE_SCHEMES):
        database, clock = _postgres(settings.store)
        return await _opened(database, settings, clock)
    try:
        return await _opened(Sqlite(_file_of(settings)), settings, time.time)
    except StoreUnavailable as error:
        if settings.store != "auto" or isinstance(error, OtherSchema):
            raise
        if settings.workers > 1:
            raise StoreUnavailable(f"{error}; several workers need a file that all can write, or `store: none`") from error
        logs.logger().warning("store in memory", extra=logs.fields(reason=str(error)))
        return await _opened(Sqlite(None), settings, time.time)


def without_new_file(settings: Settings) -> Settings:
    """Return the settings with a store in memory in the place of a file that would have to be created: who only tries settings
    may be another user, and the gateway could not open that file."""
    try:
        file = _file_of(settings)
        if file is None:
            return settings
        folder = next(folder for folder in file.parents if folder.exists())
        can_be_created = not file.exists() and folder.is_dir() and os.access(folder, os.W_OK)
    except (OSError, StoreUnavailable):  # which a start comes upon, too
        return settings
    return settings.model_copy(update={"store": "memory"}) if can_be_created else settings


def _file_of(settings: Settings) -> Path | None:
    """Return the SQLite file of the store; None if it has none."""
    if settings.store in {"none", "memory"} or settings.store.startswith(STORE_SCHEMES):
        return None
    return default_path(os.environ) if settings.store == "auto" else _home(settings.store)


def default_path(environ: Mapping[str, str]) -> Path:
    """Return the file of `store: auto`."""
    return _home(environ.get("XDG_STATE_HOME") or "~/.local/state") / "responses-gateway" / _FILE


def _postgres(url: str) -> tuple[Database, Callable[[], float]]:
    """Return a database, and the clock of its server."""
    try:
        from responses_gateway.state.postgres import Postgres  # noqa: PLC0415  (its driver is an extra)
    except ImportError as error:
        raise StoreUnavailable(f"a PostgreSQL store needs: {how_to_install('postgres')}") from error
    database = Postgres(url)
    return database, database.now


def _live_log(settings: Settings) -> LiveLog | None:
    url = _redis_url(settings)
    if url is None:
        return None
    from responses_gateway.state.redis import RedisLog  # noqa: PLC0415  (its driver is an extra)

    return RedisLog(url)


def fleet_counters(settings: Settings) -> FleetCounters | None:
    """Return the counters that several gateways share; None without Redis. Raises `StoreUnavailable`."""
    url = _redis_url(settings)
    if url is None:
        return None
    from responses_gateway.state.redis_counters import RedisCounters  # noqa: PLC0415  (its driver is an extra)

    return RedisCounters(url)


def quota_counters(settings: Settings, store: Store | None) -> QuotaCounters | None:
    """Return the counters of quotas: in Redis, else in the store; None without either. Raises `StoreUnavailable`."""
    url = _redis_url(settings)
    if url is None:
        return QuotaTable(store.database) if store is not None else None
    from responses_gateway.state.redis_quotas import RedisQuotas  # noqa: PLC0415  (its driver is an extra)

    return RedisQuotas(url)


def _redis_url(settings: Settings) -> str | None:
    """Return the URL of the Redis or Valkey server; None without one. Raise `StoreUnavailable` without its driver."""
    if settings.events == "store":
        return None
    if importlib.util.find_spec("redis") is None:
        raise StoreUnavailable(f"Redis or Valkey (`events`) need: {how_to_install('redis')}")
    return settings.events


async def _opened(database: Database, settings: Settings, clock: Callable[[], float]) -> Store:
    kept = settings.store_days * _DAY
    store = Store(database, kept, clock, _live_log(settings), time.monotonic, settings.store_max_bytes or 0)
    await store.open()
    return store


def _home(path: str) -> Path:
    try:
        return Path(path).expanduser()
    except RuntimeError:  # the user of a container may have none
        raise StoreUnavailable(f"{path}: this user has no home, or there is no such user") from None


async def keep_up(upkeep: Upkeep, metrics: Metrics) -> None:
    """Clean up, which one process does for all of them, and measure, again and again. What is left to do at the end is done by
    the next process."""
    while True:
        try:
            if await upkeep.lease("clean-up", _UPKEEP_INTERVAL / 2):
                metrics.count(STORE_DELETED, "expired", amount=await upkeep.clean_up())
                metrics.count(STORE_DELETED, "no_room", amount=await upkeep.make_room())
                await upkeep.give_space_back()
            ages = await upkeep.ages()
            metrics.set(STORE_BYTES, await upkeep.size())
            metrics.set(STORE_OLDEST, ages.oldest)
            metrics.set(STORE_EXPIRED, ages.expired)
            metrics.set(STORE_UP, 1, "store")
        except StoreUnavailable:  # `Background` logs outages
            metrics.set(STORE_UP, 0, "store")
        await asyncio.sleep(_UPKEEP_INTERVAL)
