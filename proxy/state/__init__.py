"""Store responses, their items, conversations, and the events of running responses."""

from proxy.state.interfaces import Database, EventsUnavailable, LiveLog, StoreUnavailable
from proxy.state.records import Conversation, Cursor, EventRow, NewItem, Page, PageOrder, Record, Running, Span, Stored
from proxy.state.sqlite import Sqlite
from proxy.state.store import Store

__all__ = [
    "Conversation", "Cursor", "Database", "EventRow", "EventsUnavailable", "LiveLog", "NewItem", "Page", "PageOrder", "Record",
    "Running", "Span", "Sqlite", "Store", "StoreUnavailable", "Stored",
]  # fmt: skip
