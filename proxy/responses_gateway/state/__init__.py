"""Store responses, their items, conversations, and the events of running responses.

Tables, and the vocabularies of waiting responses, quotas and a fleet's counters, are imported from their files."""

from responses_gateway.state.interfaces import Database, EventsUnavailable, LiveLog, StoreUnavailable
from responses_gateway.state.records import (
    Abandoned,
    AbandonedEnd,
    Conversation,
    Cursor,
    EventRow,
    HistorySpan,
    ItemPage,
    NewEvents,
    Orphan,
    PageOrder,
    ResponseRecord,
    Running,
    Stored,
)
from responses_gateway.state.sqlite import Sqlite
from responses_gateway.state.store import Store

__all__ = [
    "Abandoned", "AbandonedEnd", "Conversation", "Cursor", "Database", "EventRow", "EventsUnavailable", "HistorySpan",
    "ItemPage", "LiveLog", "NewEvents", "Orphan", "PageOrder", "ResponseRecord", "Running", "Sqlite", "Store",
    "StoreUnavailable", "Stored",
]  # fmt: skip
