"""Store responses, their items, conversations, and the events of running responses."""

from proxy.state.fleet_counters import CountersUnavailable, FleetCounters, LimitRequest, Refusal, Verdict
from proxy.state.interfaces import Database, EventsUnavailable, LiveLog, StoreUnavailable
from proxy.state.records import (
    Abandoned,
    AbandonedEnd,
    Ages,
    Conversation,
    Cursor,
    EventRow,
    HistorySpan,
    ItemPage,
    NewEvents,
    NewItem,
    Orphan,
    PageOrder,
    ResponseRecord,
    Running,
    Stored,
)
from proxy.state.results import recent
from proxy.state.sqlite import Sqlite
from proxy.state.store import Store

__all__ = [
    "Abandoned", "AbandonedEnd", "Ages", "Conversation", "CountersUnavailable", "Cursor", "Database", "EventRow",
    "EventsUnavailable", "FleetCounters", "HistorySpan", "ItemPage", "LimitRequest", "LiveLog", "NewEvents", "NewItem",
    "Orphan", "PageOrder", "Refusal", "ResponseRecord", "Running", "Sqlite", "Store", "StoreUnavailable", "Stored", "Verdict",
    "recent",
]  # fmt: skip
