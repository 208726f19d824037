"""Which earlier call a prompt continues, by digests of its messages: a client that sends its whole history names no response.

A call is known by what the model was asked, and by what it answered. Reasoning does not count: clients may leave it out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

import msgspec

from responses_gateway.wire.chat import texts_in

# Fields of a chat request that a template may read before the messages.
_BEFORE_MESSAGES = ("model", "tools", "reasoning_effort", "chat_template_kwargs", "verbosity")
_REASONING = ("reasoning", "reasoning_content")
_SIZE = 16  # bytes of a digest
_MOST = 50  # answers of the model in a prompt that are looked for, the last ones


class Link(NamedTuple):
    """A prompt and the answer to it, as digests."""

    prompt: bytes
    answer: bytes


class Links(NamedTuple):
    """The digest of the messages of a prompt, and the links of the answers among them, the last one first; `places` are how
    many messages end with each."""

    prompt: bytes
    answers: Sequence[Link]
    places: Sequence[int]


def links_of(body: Mapping[str, Any]) -> Links:
    """Return the links of a chat request."""
    rolling = blake2b(msgspec.json.encode([body.get(name) for name in _BEFORE_MESSAGES]), digest_size=_SIZE)
    links: list[Link] = []
    places: list[int] = []
    for number, message in enumerate(body["messages"]):
        if message.get("role") == "assistant":
            links.append(Link(rolling.digest(), answer_of_message(message)))
            places.append(number + 1)
        rolling.update(msgspec.json.encode({name: value for name, value in message.items() if name not in _REASONING}))
    return Links(rolling.digest(), links[: -_MOST - 1 : -1], places[: -_MOST - 1 : -1])


def answer_of_message(message: Mapping[str, Any]) -> bytes:
    """Return the digest of an answer as a message of a chat request has it."""
    text = "".join(texts_in(message.get("content")))
    calls = [(call["id"], _canonical(call["function"]["arguments"])) for call in message.get("tool_calls") or ()]
    # It is the same whatever white space there is, because servers and clients trim texts.
    return blake2b(msgspec.json.encode(["".join(text.split()), calls]), digest_size=_SIZE).digest()


def _canonical(arguments: str) -> Any:
    try:
        value = msgspec.json.decode(arguments)
        # Claude Code keeps in this what is no object; of other clients' calls nothing is left there.
        unread = isinstance(value, dict) and value.keys() == {"__unparsedToolInput"}
        return "{}" if unread else msgspec.json.encode(value, order="sorted").decode()
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError):
        return arguments.strip()
