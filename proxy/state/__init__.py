"""What was answered: responses, the items they are made of, conversations, and the event logs of running responses."""

from proxy.state.database import Database, StoreUnavailable
from proxy.state.records import Conversation, EventRow, NewItem, Page, PageOrder, Record, Running, Stored
from proxy.state.sqlite import Sqlite
from proxy.state.store import Store

__all__ = [
    "Conversation",
    "Database",
    "EventRow",
    "NewItem",
    "Page",
    "PageOrder",
    "Record",
    "Running",
    "Sqlite",
    "Store",
    "StoreUnavailable",
    "Stored",
]
