"""Read a request of the Messages API as a Responses request, so that everything behind it is the same for both. No I/O."""

from responses_gateway.request.messages.places import Places
from responses_gateway.request.messages.reading import (
    MESSAGES_LOSSES,
    MessagesReading,
    in_messages_words,
    read_known_messages,
    read_messages,
)
from responses_gateway.request.messages.turns import ReadTurns

__all__ = [
    "MESSAGES_LOSSES", "MessagesReading", "Places", "ReadTurns", "in_messages_words", "read_known_messages", "read_messages",
]  # fmt: skip
