"""The turns of a conversation that the next request has again, and what reading them has come to.

An agent sends its whole conversation with each turn. The bytes of its last messages change, though: the mark for Anthropic's
cache moves to the newest block, and the content of a system message is a list only as long as it is the last one. What is kept
ends before the first message that may still change, and before a message of the model: nothing that follows can become a part
of what was read before it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from responses_gateway.request.fields import Object
from responses_gateway.request.loss_report import Loss
from responses_gateway.request.messages.places import Place
from responses_gateway.request.policy import Policy

# The last messages, in which marks move: clients have up to four marks, on messages of the user. Those before them stay.
_MOVING = 8


class ReadConversation(NamedTuple):
    """What messages were read as; see the members of `Conversation` and `ContentReader` of these names."""

    items: Sequence[Object]
    places: Sequence[Place]
    leading: Sequence[str]
    calls: Mapping[str, int]
    unanswered: Mapping[str, int]
    referenced: Mapping[str, None]
    defined: Sequence[tuple[Object, str]]
    cached: bool


class ReadTools(NamedTuple):
    """What the tools of a body, which were `declared`, were read as: the `fields` of a Responses request, their places in the
    body, and their losses. `given`: all else that they depend on."""

    declared: list[Any] | None
    given: tuple[object, ...]
    fields: Object
    places: Sequence[str]
    losses: Sequence[Loss]


NO_TOOLS = ReadTools(None, (), {}, (), ())


class ReadSystem(NamedTuple):
    """The texts of a system prompt, and what was reported of it."""

    texts: Sequence[str]
    losses: Sequence[Loss]


NO_SYSTEM = ReadSystem((), ())


class ReadTurns(msgspec.Struct, frozen=True, eq=False):
    """What the first `messages` of a body were read as, for a `policy` and behind a `system` prompt. `losses` are those of
    these messages, `tools` those of the body."""

    messages: int
    policy: Policy
    system: ReadSystem
    conversation: ReadConversation
    losses: Sequence[Loss]
    tools: ReadTools = NO_TOOLS

    @property
    def items(self) -> int:
        """How many items they have become."""
        return len(self.conversation.items)

    def fits(self, policy: Policy, system: ReadSystem, messages: Sequence[Any]) -> bool:
        """Tell whether these turns are read in the same way where others of their messages follow."""
        return policy == self.policy and system == self.system and _speaks(messages[self.messages : self.messages + 1])


def turns_end(messages: Sequence[Object], known: int) -> int | None:
    """Return how many of the messages may be kept; None if there are no more than are `known`."""
    end = len(messages)
    for index in range(end - 1, max(known, end - _MOVING) - 1, -1):
        if _is_marked(messages[index]):
            end = index
    candidates = range(min(end, len(messages) - 1), known, -1)
    return next((index for index in candidates if _speaks(messages[index : index + 1])), None)


def _speaks(following: Sequence[Any]) -> bool:
    """Tell whether the first of the messages that follow is one of the model that becomes an item."""
    if not following or type(following[0]) is not dict or following[0].get("role") != "assistant":
        return False
    content = following[0].get("content")
    if type(content) is not list:
        return bool(content)
    blocks = [(block.get("type"), block) for block in content if type(block) is dict]
    return any(kind == "tool_use" or (kind in ("text", "thinking") and block.get(kind)) for kind, block in blocks)


def _is_marked(message: Object) -> bool:
    content = message.get("content")
    return type(content) is list and any(type(block) is dict and "cache_control" in block for block in content)
