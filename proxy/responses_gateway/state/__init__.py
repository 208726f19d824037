"""Store responses, their items, conversations, and the events of running responses."""

from responses_gateway.state.fleet_counters import CountersUnavailable, FleetCounters, LimitRequest, Refusal, Verdict
from responses_gateway.state.hosted_calls import recent
from responses_gateway.state.interfaces import Database, EventsUnavailable, LiveLog, StoreUnavailable
from responses_gateway.state.quotas import Charge, Counter, Period, QuotaCounters, QuotasUnavailable, QuotaTable, counter
from responses_gateway.state.records import (
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
from responses_gateway.state.sqlite import Sqlite
from responses_gateway.state.store import Store
from responses_gateway.state.waiting import Due, Held, NewWaiting, Waiting

__all__ = [
    "Abandoned",
    "AbandonedEnd",
    "Ages",
    "Charge",
    "Conversation",
    "Counter",
    "CountersUnavailable",
    "Cursor",
    "Database",
    "Due",
    "EventRow",
    "EventsUnavailable",
    "FleetCounters",
    "Held",
    "HistorySpan",
    "ItemPage",
    "LimitRequest",
    "LiveLog",
    "NewEvents",
    "NewItem",
    "NewWaiting",
    "Orphan",
    "PageOrder",
    "Period",
    "QuotaCounters",
    "QuotaTable",
    "QuotasUnavailable",
    "Refusal",
    "ResponseRecord",
    "Running",
    "Sqlite",
    "Store",
    "StoreUnavailable",
    "Stored",
    "Verdict",
    "Waiting",
    "counter",
    "recent",
]  # fmt: skip
