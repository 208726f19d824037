"""Reads the messages of a server before the library does.

The library builds all that a message holds, several times: seconds for what fits into 8 MiB, in which nothing else happens. So
it is given a small message of the same meaning, made without building what is left out."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any, Literal

import msgspec
from mcp_types import INTERNAL_ERROR
from msgspec import Raw, Struct, field
from pydantic_core import from_json

from responses_gateway.bounded_memory import BoundedDict
from responses_gateway.hosted.mcp.servers import McpLimits

# What a message may be made of without being read, and of how many values the library, or Python, builds objects.
MOST_VALUES = 400_000
MOST_BUILT = 20_000
# Bytes of a message that is neither a list of tools nor the result of a call, and of one member of those.
_LONGEST_OTHER = 64 * 1024
_LONGEST_MEMBER = 4 * 1024
# Characters of what a server says of a tool, as it is offered to the model.
_LONGEST_NAME = 128
_LONGEST_DESCRIPTION = 16 * 1024
_LONGEST_SCHEMA = 64 * 1024
_LONGEST_TITLE = 1024
_LONGEST_WORD = 200  # characters of a name in the words for a content that the model cannot be shown
_AT_ONCE = 50  # contents that are read in one go
_MOST_REFUSED = 100  # answers that are remembered as refused; nobody waits for older ones
# Members of a result that the library gets as they are.
_OTHERS = ("isError", "nextCursor", "resultType", "ttlMs", "cacheScope")
# No message, but JSON.
_UNREADABLE = b"null"
_NONE = Raw(b"")


class _Result(Struct):
    """The members of a result that are used, and those that the library wants to see."""

    tools: Raw = _NONE
    content: Raw = _NONE
    structuredContent: Raw = _NONE  # noqa: N815  (the names of the protocol, here and below)
    isError: Raw = _NONE  # noqa: N815
    nextCursor: Raw = _NONE  # noqa: N815
    resultType: Raw = _NONE  # noqa: N815
    ttlMs: Raw = _NONE  # noqa: N815
    cacheScope: Raw = _NONE  # noqa: N815


class _Error(Struct):
    code: Raw
    message: Raw


class _Message(Struct):
    id: int | str | None = None
    method: str | None = None
    result: _Result | None = None
    error: _Error | None = None


class _Annotations(Struct, omit_defaults=True):
    title: str | None = None
    readOnlyHint: bool | None = None  # noqa: N815
    destructiveHint: bool | None = None  # noqa: N815
    idempotentHint: bool | None = None  # noqa: N815
    openWorldHint: bool | None = None  # noqa: N815


class _Tool(Struct, omit_defaults=True):
    name: str
    inputSchema: dict[str, Any] | list[Any] | None = None  # noqa: N815
    description: str | None = None
    annotations: _Annotations | None = None


class _Schema(Struct):
    """What the library demands of the schema of a tool."""

    type: Literal["object"] = "object"
    properties: dict[str, dict[str, Any] | bool] | None = None
    required: list[str] | None = None
    dialect: str | None = field(default=None, name="$schema")


class _Text(Struct, tag="text"):
    text: str


class _Image(Struct, tag="image"):
    data: Raw
    mimeType: str  # noqa: N815


class _Audio(Struct, tag="audio"):
    data: Raw
    mimeType: str  # noqa: N815


class _Link(Struct, tag="resource_link"):
    uri: str
    name: str
    title: str | None = None


class _Contents(Struct):
    uri: str
    text: str | None = None
    blob: Raw = _NONE


class _Resource(Struct, tag="resource"):
    resource: _Contents


_MESSAGE: msgspec.json.Decoder[_Message] = msgspec.json.Decoder(_Message)
_PIECES: msgspec.json.Decoder[list[Raw]] = msgspec.json.Decoder(list[Raw])
_TOOL: msgspec.json.Decoder[_Tool] = msgspec.json.Decoder(_Tool)
_BLOCK: msgspec.json.Decoder[_Text | _Image | _Audio | _Link | _Resource] = msgspec.json.Decoder(
    _Text | _Image | _Audio | _Link | _Resource
)
_ODD = (msgspec.MsgspecError, ValueError, RecursionError, OverflowError)  # what decoders raise


def values(data: bytes | Raw) -> int:
    """Return a number that JSON has no more values than, without reading it: commas and brackets may be text."""
    data = bytes(data)
    return data.count(b",") + data.count(b"[") + data.count(b"{") + 1


class MessageReader:
    """Reads messages within limits. `log` gets how many tools of a list cannot be offered. `refused` is what was refused of
    an answer, by the id of the request: "longer than …"."""

    def __init__(self, limits: McpLimits, log: Callable[[str], None]) -> None:
        self.limits = limits
        self.refused: BoundedDict[str | int, str] = BoundedDict(_MOST_REFUSED)
        self._log = log

    async def read(self, data: bytes, request_id: str | int | None = None) -> bytes:
        """Return the message for the library; nothing if there is none for it. `request_id` is that of the request that it
        answers, where that is certain: an error may have none, and the library would wait on."""
        message = _decoded(data)
        if message is None:
            data = _mended(data)
            message = _decoded(data)
        await asyncio.sleep(0)
        if message is not None and message.error is not None and message.id is None and request_id is not None:
            message.id = request_id
            return self._small(message)
        result = message.result if message is not None else None
        try:
            if message is not None and result is not None:
                if values(result.tools) > MOST_VALUES or values(result.content) > MOST_VALUES:
                    return self._refuse(message, f"made of more than {MOST_VALUES} values")
                if result.tools:
                    return _answer(message, tools=await self._tools(result.tools))
                if result.content:
                    return _answer(message, **await self._result(result))
        except _ODD:
            pass  # not as the protocol has it
        return data if len(data) <= _LONGEST_OTHER else self._small(message)

    def _small(self, message: _Message | None) -> bytes:
        """Return a message in the place of one that is too large, or too odd."""
        if message is None:
            return _UNREADABLE
        if message.method is not None:  # of the server's requests and announcements, none is so large
            return b""
        if message.error is not None and len(message.error.message) <= _LONGEST_OTHER:  # its data are not needed
            return msgspec.json.encode({"jsonrpc": "2.0", "id": message.id, "error": message.error})
        return self._refuse(message, f"longer than {_LONGEST_OTHER} bytes, and neither a list of tools nor a result")

    def _refuse(self, message: _Message, problem: str) -> bytes:
        """Return an error in the place of an answer."""
        if message.id is not None:
            self.refused[message.id] = problem
        error = {"code": INTERNAL_ERROR, "message": problem}
        return msgspec.json.encode({"jsonrpc": "2.0", "id": message.id, "error": error})

    async def _tools(self, listed: Raw) -> Raw:
        """Return the tools that can be offered, as many as there may be."""
        tools: list[bytes] = []
        bytes_left = 2 * self.limits.list_bytes  # with the names; the list itself is bounded later
        values_left = MOST_BUILT
        pieces = _PIECES.decode(listed)
        for number, piece in enumerate(pieces[: self.limits.tools]):
            if number % _AT_ONCE == 0 or len(piece) > _LONGEST_OTHER:
                await asyncio.sleep(0)
            count = values(piece)
            tool = _tool(piece) if count <= values_left else None
            if tool is not None and len(tool) <= bytes_left:
                tools.append(tool)
                bytes_left -= len(tool)
                values_left -= count
        if len(tools) < len(pieces):
            self._log(f"tools of its list that cannot be offered, or too many: {len(pieces) - len(tools)}")
        return Raw(b"[" + b",".join(tools) + b"]")

    async def _result(self, result: _Result) -> dict[str, Any]:
        """Return the result of a call with its contents as one text. Structured content takes their place if there are none,
        and is left out if it is too large."""
        pieces = _PIECES.decode(result.content)
        longest = self.limits.result_characters
        texts: list[str] = []
        room = longest
        for number, piece in enumerate(pieces[: self.limits.contents]):
            if number % _AT_ONCE == 0 or len(piece) > _LONGEST_OTHER:
                await asyncio.sleep(0)
            text = _words(_BLOCK.decode(piece))
            if text and room > 0:
                texts.append(text[:room])
                room -= len(texts[-1])
        if len(pieces) > self.limits.contents:
            texts.append(f"[{len(pieces) - self.limits.contents} more contents: not shown]")
        structured = bytes(result.structuredContent)
        if structured not in (b"", b"null") and not texts:
            texts = [structured[:longest].decode("utf-8", "ignore")]
        read: dict[str, Any] = {"content": [{"type": "text", "text": "\n".join(texts)}]}
        if structured and len(structured) <= longest and values(structured) <= MOST_BUILT and _library_reads(structured):
            read["structuredContent"] = result.structuredContent
        return read


def _decoded(data: bytes) -> _Message | None:
    try:
        return _MESSAGE.decode(data)
    except _ODD:
        return None


def _mended(data: bytes) -> bytes:
    """Return a message without what only some parsers read: NaN and half surrogate pairs. Tools with these are left out,
    elsewhere a question mark replaces them. What is too large for that, or no JSON at all, is no message."""
    if values(data) > MOST_BUILT:
        return _UNREADABLE
    half = "\ud800"  # stands for NaN as well, so that one attempt to encode finds both
    try:
        message = json.loads(data, parse_constant=lambda _: half)
        result = message.get("result") if isinstance(message, dict) else None
        if isinstance(result, dict) and isinstance(result.get("tools"), list):
            result["tools"] = [tool if _encodable(tool) else None for tool in result["tools"]]
        return json.dumps(message, ensure_ascii=False).encode("utf-8", "replace")
    except _ODD:
        return _UNREADABLE


def _encodable(value: Any) -> bool:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def _answer(message: _Message, **read: Any) -> bytes:
    """Return the answer with what was `read` of its result."""
    others = ((name, getattr(message.result, name)) for name in _OTHERS)
    kept = {name: value for name, value in others if 0 < len(value) <= _LONGEST_MEMBER}
    return msgspec.json.encode({"jsonrpc": "2.0", "id": message.id, "result": {**kept, **read}})


def _library_reads(data: bytes) -> bool:
    """Tell whether the library's parser reads a part of a message: it is stricter with depths and numbers."""
    try:
        from_json(b"[[[[[%s]]]]]" % data)
    except ValueError:
        return False
    return True


def _tool(piece: Raw) -> bytes | None:
    """Return a tool as the library accepts it; None if it cannot be offered. A schema may lack its type, and PHP writes an
    empty object as an empty list. Output schemas are not needed."""
    try:
        tool = _TOOL.decode(piece)
        declared = tool.inputSchema or {}
        if not isinstance(declared, dict) or not tool.name or len(tool.name) > _LONGEST_NAME or not tool.name.isprintable():
            return None
        schema = {"type": "object", **declared}
        if schema.get("properties") == []:
            schema["properties"] = {}
        msgspec.convert(schema, _Schema)
        if len(msgspec.json.encode(schema)) > _LONGEST_SCHEMA:
            return None
        if tool.annotations is not None and tool.annotations.title is not None:
            tool.annotations.title = tool.annotations.title[:_LONGEST_TITLE]
        tool.inputSchema = schema
        tool.description = tool.description[:_LONGEST_DESCRIPTION] if tool.description else None
        encoded = msgspec.json.encode(tool)
    except _ODD:
        return None
    return encoded if _library_reads(encoded) else None


def _words(block: _Text | _Image | _Audio | _Link | _Resource) -> str:
    """Return the text of a content, or a note about what the model cannot be shown."""
    match block:
        case _Text():
            return block.text
        case _Image() | _Audio():
            kind = "image" if isinstance(block, _Image) else "audio"
            return f"[{kind}, {_short(block.mimeType)}, {_size(block.data)} bytes: not shown]"
        case _Link():
            return f"[resource: {_short(block.title or block.name)}, {_short(block.uri)}]"
        case _Resource():
            resource = block.resource
            if resource.text is not None:
                return resource.text
            return f"[resource: {_short(resource.uri)}, {_size(resource.blob)} bytes: not shown]"


def _size(base64: Raw) -> int:
    return max(0, len(base64) - 2) * 3 // 4


def _short(word: str) -> str:
    return " ".join(word[: 4 * _LONGEST_WORD].split())[:_LONGEST_WORD]
