"""Conversations for templates that want the turns of user and assistant to alternate (Mistral's and others).

Nothing is left out: messages of one role in a row become one, and where a turn is missing a short one is put in. A user never
speaks directly behind the result of a tool, because such templates have the assistant answer a result first. What stands before
a message does not depend on what follows it, so that the beginning of a growing conversation stays the same."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Any

from responses_gateway.request.fields import Object
from responses_gateway.request.loss_report import Loss

ALTERNATED = Loss("content", "turns", "adapted", "messages are joined or put in, for a template that wants turns to alternate")
# Before a conversation that the assistant begins, between the result of a tool and a message of the user, and behind the last
# message if that is the assistant's.
_FIRST = {"role": "user", "content": "Hello."}
_ANSWER = {"role": "assistant", "content": "Understood."}
_LAST = {"role": "user", "content": "Go on."}
_THOUGHTS = ("reasoning", "reasoning_content")
# What refusals of a conversation's order speak of. A wrong guess costs one request: the other form counts only if it is taken.
_ORDER = re.compile(
    r"\broles?\b|alternat|consecutive|jinja|chat[ _]template|\bmust (?:start|begin|be followed)|(?:first|last) message|"
    r"(?:user|assistant|tool) message",
    re.IGNORECASE,
)


def is_about_order(refusal: bytes) -> bool:
    """Tell whether the body of a refused request may be about the order of its messages."""
    return _ORDER.search(refusal.decode("utf-8", "replace")) is not None


def alternating(messages: Sequence[Object]) -> list[Object]:
    """Return chat messages in which the turns alternate, and the assistant's is next; the same if they do already."""
    leading = list(itertools.takewhile(lambda message: message["role"] == "system", messages))
    ordered = [_joined(leading)] if len(leading) > 1 else leading
    spoken = [_of_user(message) for message in messages[len(leading) :]]
    if spoken and spoken[0]["role"] == "assistant":
        ordered.append(_FIRST)
    for message in _in_turns(spoken):
        if message["role"] == "user" and ordered and ordered[-1]["role"] == "tool":
            ordered.append(_ANSWER)
        ordered.append(message)
    if ordered and ordered[-1]["role"] == "assistant":
        ordered.append(_LAST)
    return ordered


def alternating_before(messages: Sequence[Object]) -> list[Object]:
    """Return the same where the answer continues the last message."""
    return [*alternating(messages[:-1]), messages[-1]]


def users_merged(messages: Iterable[Object]) -> list[Object]:
    """Merge consecutive user messages into one."""
    merged: list[Object] = []
    for role, row in itertools.groupby(messages, key=itemgetter("role")):
        together = list(row)
        merged += [_joined(together)] if role == "user" else together
    return merged


def _of_user(message: Object) -> Object:
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
            yield _joined(together)


def _joined(row: Sequence[Object]) -> Object:
    """Return one message for several of the same role, of which the last one alone may have calls."""
    joined: dict[str, Any] = {"role": row[0]["role"], "content": _contents([message["content"] for message in row])}
    for name in _THOUGHTS:
        thoughts = [message[name] for message in row if message.get(name)]
        if thoughts:
            joined[name] = "\n".join(thoughts)
    calls = [call for message in row for call in message.get("tool_calls", ())]
    if calls:
        joined["tool_calls"] = calls
    return joined


def _contents(contents: Sequence[str | list[Object]]) -> str | list[Object]:
    texts = [content for content in contents if isinstance(content, str)]
    if len(texts) == len(contents):
        return "\n\n".join(text for text in texts if text)
    parts = ([{"type": "text", "text": content}] if isinstance(content, str) else content for content in contents)
    return list(itertools.chain.from_iterable(parts))
