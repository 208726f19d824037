"""Conversations for templates that want the turns of user and assistant to alternate (Mistral's and others).

Nothing is left out: messages of one role in a row become one, and where a turn is missing a short one is put in. A user never
speaks directly behind the result of a tool, because such templates have the assistant answer a result first. What stands before
a message does not depend on what follows it, so that the beginning of a growing conversation stays the same."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Any

from responses_gateway.request.fields import Object

# Before a conversation that the assistant begins, between the result of a tool and a message of the user, and behind the last
# message if that is not of the user or a tool.
_FIRST = {"role": "user", "content": "Hello."}
_ANSWER = {"role": "assistant", "content": "Understood."}
_LAST = {"role": "user", "content": "Go on."}
THOUGHTS = ("reasoning", "reasoning_content")


def alternating(messages: Sequence[Object]) -> list[Object]:
    """Return chat messages in which the turns alternate, and the assistant's is next; the same if they do already."""
    leading, others = with_leading(messages)
    ordered = [joined(leading)] if len(leading) > 1 else leading
    spoken = [of_user(message) for message in others]
    if spoken and spoken[0]["role"] == "assistant":
        ordered.append(_FIRST)
    for message in _in_turns(spoken):
        if message["role"] == "user" and ordered and ordered[-1]["role"] == "tool":
            ordered.append(_ANSWER)
        ordered.append(message)
    if ordered and ordered[-1]["role"] in ("assistant", "system"):
        ordered.append(_LAST)
    return ordered


def alternating_before(messages: Sequence[Object]) -> list[Object]:
    """Return the same where the answer continues the last message."""
    return [*alternating(messages[:-1]), messages[-1]]


def with_leading(messages: Sequence[Object]) -> tuple[list[Object], Sequence[Object]]:
    """Return the system messages that a conversation begins with, and all others."""
    leading = list(itertools.takewhile(lambda message: message["role"] == "system", messages))
    return leading, messages[len(leading) :]


def users_merged(messages: Iterable[Object]) -> list[Object]:
    """Merge consecutive user messages into one."""
    merged: list[Object] = []
    for role, row in itertools.groupby(messages, key=itemgetter("role")):
        together = list(row)
        merged += [joined(together)] if role == "user" else together
    return merged


def of_user(message: Object) -> Object:
    """Return a system message behind the first ones as one of the user, marked with tags."""
    if message["role"] != "system":
        return message
    return {"role": "user", "content": f"<system_message>\n{message['content']}\n</system_message>"}


def _in_turns(messages: Iterable[Object]) -> Iterator[Object]:
    """Yield messages with those of one role in a row as one; each call is answered by a message of its own."""
    for role, row in itertools.groupby(messages, key=itemgetter("role")):
        together = list(row)
        if role == "tool" or len(together) == 1:
            yield from together
        else:
            yield joined(together)


def joined(row: Sequence[Object]) -> Object:
    """Return one message for several of the same role, of which the last one alone may have calls."""
    joined: dict[str, Any] = {"role": row[0]["role"], "content": contents([message.get("content") for message in row])}
    for name in THOUGHTS:
        thoughts = [message[name] for message in row if message.get(name)]
        if thoughts:
            joined[name] = "\n".join(thoughts)
    calls = [call for message in row for call in message.get("tool_calls", ())]
    if calls:
        joined["tool_calls"] = calls
    return joined


def contents(said: Sequence[str | list[Object] | None]) -> str | list[Object]:
    """Return one content for several: a text, or parts where one of them has parts."""
    there: list[str | list[Object]] = [content or "" for content in said]
    texts = [content for content in there if isinstance(content, str)]
    if len(texts) == len(there):
        return "\n\n".join(text for text in texts if text)
    parts = ([{"type": "text", "text": content}] if isinstance(content, str) else content for content in there)
    return list(itertools.chain.from_iterable(parts))
