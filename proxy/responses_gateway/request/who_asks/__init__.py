"""Who asks: the session, thread and turn of an agent, out of the headers and the body of its request. No I/O."""

from responses_gateway.request.who_asks.asker import NOBODY, Asker, Kind, session_id, with_kind, with_session
from responses_gateway.request.who_asks.reading import NAMES, asker_of, asks_for_summary

__all__ = ["NAMES", "NOBODY", "Asker", "Kind", "asker_of", "asks_for_summary", "session_id", "with_kind", "with_session"]
