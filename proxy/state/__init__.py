"""What was answered: responses, the items they are made of, conversations, and the event logs of running responses."""

from proxy.state.database import Database, StoreUnavailable
from proxy.state.events import EventsUnavailable, LiveLog
from proxy.state.records import Conversation, Cursor, EventRow, NewItem, Page, PageOrder, Record, Running, Span, Stored
from proxy.state.sqlite import Sqlite
from proxy.state.store import Store

__all__ = [
    "Conversation",
    "Cursor",
    "Database",
    "EventRow",
    "EventsUnavailable",
    "LiveLog",
    "NewItem",
    "Page",
    "PageOrder",
    "Record",
    "Running",
    "Span",
    "Sqlite",
    "Store",
    "StoreUnavailable",
    "Stored",
]
