"""A chat request reduced to what tells whether the prompt of a later one begins like it.

Checksums of the parts are made of the bytes that are sent, in C, because this is done for each turn of a session, whose
requests are long. They need not withstand an attack: a client that makes two parts look alike misleads itself alone."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal
from zlib import crc32

import msgspec

from responses_gateway.wire.chat import texts_in

Reason = Literal["model_changed", "tools_changed", "reasoning_effort_changed", "verbosity_changed"]
# Bytes of the checksum of a message.
_WIDTH = 8
_ABSENT = msgspec.Raw()
# Members of an item that say nothing to the model.
_ADDED = frozenset({"id", "status", "phase", "annotations"})


class _Body(msgspec.Struct):
    """The fields of a chat request that its prompt is made of."""

    messages: list[msgspec.Raw]
    model: msgspec.Raw = _ABSENT
    tools: msgspec.Raw = _ABSENT
    reasoning_effort: msgspec.Raw = _ABSENT
    chat_template_kwargs: msgspec.Raw = _ABSENT
    verbosity: msgspec.Raw = _ABSENT


class Message(msgspec.Struct):
    """What is read of a single message. Its `content` may be long, and is decoded where its text is asked for."""

    role: str = ""
    content: msgspec.Raw = msgspec.Raw(b"null")
    reasoning: Any = None
    reasoning_content: Any = None
    tool_calls: Any = None

    @property
    def thinks(self) -> bool:
        """Whether it brings a thought back to the model."""
        return bool(self.reasoning or self.reasoning_content)

    @property
    def text(self) -> str:
        """What it says."""
        return "".join(texts_in(msgspec.json.decode(self.content)))


_read_body = msgspec.json.Decoder(_Body).decode
_read_message = msgspec.json.Decoder(Message).decode


class PromptPrint(msgspec.Struct, array_like=True, frozen=True):
    """The checksums of one prompt. `before`: those of what templates read before the messages, by what is said to have
    changed. `messages` has eight bytes for each; the first `leading` ones are instructions. `sizes` are their lengths in bytes,
    and `size` that of all parts. `key` names the cache, where requests are routed by it."""

    before: dict[Reason, int]
    messages: bytes
    leading: int
    sizes: bytes
    size: int
    key: int = 0

    @property
    def count(self) -> int:
        """The number of its messages."""
        return len(self.messages) // _WIDTH

    @property
    def has_tools(self) -> bool:
        """Whether it declares any tools."""
        return self.before["tools_changed"] != crc32(b"")

    def changed(self, earlier: PromptPrint) -> list[Reason]:
        """Return what of the parts before the messages is not as in an earlier prompt."""
        return [reason for reason, checksum in self.before.items() if checksum != earlier.before.get(reason)]

    def same_instructions(self, earlier: PromptPrint) -> bool:
        """Tell whether both begin with the same instructions."""
        return self.messages[: self.leading * _WIDTH] == earlier.messages[: earlier.leading * _WIDTH]

    def shared_messages(self, earlier: PromptPrint) -> int:
        """Return how many messages behind the instructions are the same."""
        return _common(self.messages[self.leading * _WIDTH :], earlier.messages[earlier.leading * _WIDTH :])

    def in_common(self, earlier: PromptPrint) -> int:
        """Return how many messages at the beginning are the same."""
        return _common(self.messages, earlier.messages)

    def bytes_of(self, first: int, last: int | None = None) -> int:
        """Return the length of some messages together."""
        return sum(array("I", self.sizes)[first:last])


class Prompt(msgspec.Struct, frozen=True):
    """A chat request: its checksums, and its messages as they are sent."""

    checksums: PromptPrint
    messages: Sequence[bytes | msgspec.Raw]

    def message(self, index: int) -> Message:
        """Return one message; an empty one if there is none, or none of this form."""
        try:
            return _read_message(self.messages[index])
        except (IndexError, msgspec.ValidationError):
            return Message()

    @property
    def last_answer(self) -> int | None:
        """The place of the last message of the model; None if there is none."""
        places = reversed(range(len(self.messages)))
        return next((place for place in places if self.message(place).role == "assistant"), None)


def text_checksum(text: str) -> int:
    """Return the checksum of what a message says, which does not depend on white space around it; 0 for nothing."""
    stripped = text.strip()
    return crc32(stripped.encode("utf-8", "replace")) if stripped else 0


def read_prompt(
    data: bytes, key: str | None = None, messages: Sequence[bytes] | None = None, checksum: Callable[[bytes], int] = crc32
) -> Prompt:
    """Read a chat request as it is sent. `key` is the client's name of the cache, where requests are routed by it. `messages`
    are the JSON of each, where that is known; then `data` need not have them. `checksum` is that of one of them: `hash` for
    prompts that are compared in this process alone, because an object has its own only once."""
    body = _read_body(data)
    if messages is None:
        messages = body.messages
    before: dict[Reason, int] = {
        "model_changed": crc32(body.model),
        "tools_changed": crc32(body.tools),
        "reasoning_effort_changed": crc32(body.chat_template_kwargs, crc32(body.reasoning_effort)),
        "verbosity_changed": crc32(body.verbosity),
    }
    sizes = array("I", map(len, messages))
    checksums = PromptPrint(
        before,
        array("q", map(checksum, map(bytes, messages))).tobytes(),
        _leading(messages),
        sizes.tobytes(),
        sum(sizes) + len(body.tools),
        0 if key is None else crc32(key.encode("utf-8", "replace")),
    )
    return Prompt(checksums, messages)


def print_of_items(model: str, echo: Mapping[str, Any], items: Iterable[Mapping[str, Any]]) -> PromptPrint:
    """Return the same of items and of what a response repeats of its request (`echo`), where the chat request is not known any
    more. Ids and the like, which the store adds, count for nothing."""
    effort = (echo.get("reasoning") or {}).get("effort")
    before: dict[Reason, int] = {
        "model_changed": _checksum(model),
        "tools_changed": _checksum(echo.get("tools")),
        "reasoning_effort_changed": _checksum(effort),
        "verbosity_changed": _checksum((echo.get("text") or {}).get("verbosity")),
    }
    plain_items = [{name: value for name, value in item.items() if name not in _ADDED} for item in items]
    texts = [msgspec.json.encode(part) for part in (echo.get("instructions"), *plain_items)]
    sizes = array("I", map(len, texts))
    messages = array("q", map(crc32, texts)).tobytes()
    return PromptPrint(before, messages, 1, sizes.tobytes(), sum(sizes))


def _checksum(value: object) -> int:
    return crc32(msgspec.json.encode(value))


def _common(one: bytes, other: bytes) -> int:
    """Return how many checksums two rows of them have in common at the beginning."""
    length = min(len(one), len(other))
    difference = int.from_bytes(one[:length], "little") ^ int.from_bytes(other[:length], "little")
    # In C, because each turn is compared with those of many threads: the lowest bit that differs.
    return (length if not difference else ((difference & -difference).bit_length() - 1) // 8) // _WIDTH


def _leading(messages: Sequence[bytes | msgspec.Raw]) -> int:
    """Return how many messages are instructions, before anybody has said anything."""
    for index, message in enumerate(messages):
        if _read_message(message).role not in ("system", "developer"):
            return index
    return len(messages)
