"""Read the content blocks of a Messages body as parts of Responses items. Raise `ApiError` 400 that names the field."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from responses_gateway.request.fields import (
    Object,
    filled_text,
    nullable_text,
    optional_text,
    quote,
    required_object,
    text,
    wrong_type,
)
from responses_gateway.request.loss_report import LossReport
from responses_gateway.wire.errors import invalid_request
from responses_gateway.wire.search_results import carried_text

_TEXTS = frozenset({"input_text", "output_text"})  # as Responses calls them, and clients with a part of both
_NO_PDF = "[{} cannot be shown here: it is not fetched. Its text can be read with a program, if one is at hand.]"


class Block(NamedTuple):
    """A content block and where it stands (`messages[1].content[0]`)."""

    path: str
    kind: str
    fields: Object


def blocks(content: object, path: str) -> list[Block]:
    """Return the blocks of a content, of which a string is one; texts that are empty are left out. A content that is null
    or missing is empty, and so is a block or a text that is null (as in `request/input/items.py`)."""
    if isinstance(content, str):
        return [Block(path, "text", {"type": "text", "text": content})] if content else []
    if content is None:
        return []
    if not isinstance(content, list):
        raise wrong_type(path, "a string or a list of blocks")
    result: list[Block] = []
    for index, block in enumerate(content):
        if block is None:
            continue
        place = f"{path}[{index}]"
        if not isinstance(block, dict):
            raise wrong_type(place, "an object")
        kind = block.get("type")
        if not isinstance(kind, str):
            kind = text(block, "type", place)
        if kind in _TEXTS:
            kind = "text"
        if kind != "text" or nullable_text(block, "text", place):
            result.append(Block(place, kind, block))
    return result


def text_of(block: Block) -> str:
    """Return the text of a block where nothing else can stand, as in a system message. Raise `ApiError` 400."""
    path, kind, fields = block
    if kind != "text":
        raise invalid_request(f"{path}.type: blocks of type {quote(kind)} cannot stand here.", f"{path}.type", "invalid_value")
    value: str = fields["text"]
    return value


class ContentReader(msgspec.Struct):
    """Reads blocks of users and of tools as parts. `referenced` are the tools that `tool_reference` blocks name, in order,
    `defined` those that the conversation itself declares, each with its place. `cached`: a mark for the cache was reported."""

    _report: LossReport
    referenced: dict[str, None] = {}
    defined: list[tuple[Object, str]] = []
    cached: bool = False

    def note_cache_control(self, block: Object) -> None:
        """Report that a block is marked for Anthropic's cache."""
        if not self.cached and block.get("cache_control") is not None:
            self.cached = True
            reason = "the backend decides what it caches"
            self._report.ignored("parameter", "cache_control", reason, "cache_control", matters=False)

    def tool_change(self, block: Block) -> None:
        """Read a block that adds a tool to those that are offered from there on, or takes one away. All tools stand before the
        conversation here: one that is added is declared, one that is taken away stays."""
        path, kind, fields = block
        tool = required_object(fields, "tool", path)
        what = text(tool, "type", f"{path}.tool")
        if kind == "tool_addition" and what == "tool_definition":
            self.defined.append((required_object(tool, "definition", f"{path}.tool"), f"{path}.tool.definition"))
        elif kind == "tool_addition" and what == "tool_reference":
            self.referenced[filled_text(tool, "name", f"{path}.tool")] = None
        else:
            self._report.ignored("content", kind, "the tools stay as they are", path)
            return
        self._report.adapted("content", kind, "the tool is declared for the whole conversation")

    def part(self, block: Block) -> Object | None:
        """Return the part for a block; None if it cannot be shown."""
        path, kind, fields = block
        if "cache_control" in fields:
            self.note_cache_control(fields)
        match kind:
            case "text":
                return _text(fields["text"])
            case "image":
                return _image(fields, path)
            case "document":
                return self._document(fields, path)
            case "search_result":
                self._report.adapted("content", "search_result", "sent as text")
                content = _joined(fields.get("content"), f"{path}.content")
                return _text(f"{text(fields, 'title', path)}\n{text(fields, 'source', path)}\n\n{content}")
            case "tool_reference":
                name = filled_text(fields, "tool_name", path)
                self.referenced[name] = None
                self._report.adapted("content", "tool_reference", "sent as text; the tool is declared")
                return _text(f"The tool {name} is available now.")
            case "container_upload":
                raise invalid_request(f"{path}: files of containers are not here.", f"{path}.type", "unsupported_value")
        self._report.ignored("content", "unknown", f"a block of the type {kind[:64]}", f"{path}.type")
        return None

    def _document(self, document: Object, path: str) -> Object:
        title = optional_text(document, "title", path)
        about = optional_text(document, "context", path)
        source = required_object(document, "source", path)
        place = f"{path}.source"
        kind = text(source, "type", place)
        match kind:
            case "text":
                content = text(source, "data", place)
            case "content":
                content = "\n".join(
                    block.fields["text"] for block in blocks(source.get("content"), f"{place}.content") if block.kind == "text"
                )
            case "base64":  # read as text behind this room
                media_type = optional_text(source, "media_type", place) or "application/pdf"
                named = "\n".join(filter(None, (title, about)))
                data = f"data:{media_type};base64,{text(source, 'data', place)}"
                return {"type": "input_file", "filename": named, "file_data": data}
            case "url":
                self._report.ignored("content", "document", "a PDF at a URL is not fetched, of which the model is told", path)
                named = f"The document {title!r}" if title else "This document"
                return _text(_NO_PDF.format(f"{named} ({text(source, 'url', place)})"))
            case _:
                raise _unknown_source(kind, place)
        self._report.adapted("content", "document", "its text")
        return _text("\n\n".join(filter(None, (title, about, content))))


def as_content(parts: list[Object]) -> str | list[Object]:
    """Return parts as the content of an item: a text by itself, so that the two forms of a content are the same item."""
    return parts[0]["text"] if len(parts) == 1 and parts[0]["type"] == "input_text" else parts


def appended(content: str | list[Object], part: Object) -> list[Object]:
    """Return a content with one more part."""
    return [*([_text(content)] if isinstance(content, str) else content), part]


def pictures_in(document: Block) -> list[Block]:
    """Return the pictures of a document that is given in blocks: its own part is their text."""
    source = document.fields["source"]
    inner = blocks(source.get("content"), f"{document.path}.source.content") if source["type"] == "content" else []
    return [block for block in inner if block.kind == "image"]


def _joined(content: object, path: str) -> str:
    return "\n".join(map(text_of, blocks(content, path)))


def _text(content: str) -> Object:
    return {"type": "input_text", "text": content}


def _image(image: Object, path: str) -> Object:
    source = required_object(image, "source", path)
    place = f"{path}.source"
    kind = text(source, "type", place)
    if kind == "base64":
        url = f"data:{filled_text(source, 'media_type', place)};base64,{filled_text(source, 'data', place)}"
    elif kind == "url":
        url = filled_text(source, "url", place)
    else:
        raise _unknown_source(kind, place)
    return {"type": "input_image", "image_url": url}


def _unknown_source(kind: str, place: str) -> Exception:
    what = (
        "files cannot be resolved by this gateway: send the content itself"
        if kind == "file"
        else f"unknown source {quote(kind)}"
    )
    return invalid_request(f"{place}.type: {what}.", f"{place}.type", "unsupported_value")


def server_result(block: Object) -> str:
    """Return the result of a server tool as the model has read it, or what can be read of it. Its shape depends on the tool."""
    content = block.get("content")
    if content == []:
        return _readable(block.get("text"))
    if isinstance(content, list) and (carried := carried_text(content)):
        return carried
    page = content.get("content") if isinstance(content, dict) and content.get("type") == "web_fetch_result" else None
    source = page.get("source") if isinstance(page, dict) else None
    data = source.get("data") if isinstance(source, dict) and source.get("type") == "text" else None
    return data if isinstance(data, str) else _readable(content)


def _readable(content: Any) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n\n".join(filter(None, map(_readable, content)))
    if not isinstance(content, dict):
        return ""
    if isinstance(content.get("error_code"), str):
        message = content.get("message")  # what the model has read, from this gateway
        return message if isinstance(message, str) and message else f"Error: {content['error_code']}"
    known = [
        content[name] for name in ("title", "url", "text", "data", "stdout", "stderr") if isinstance(content.get(name), str)
    ]
    inner = [_readable(content[name]) for name in ("source", "content") if isinstance(content.get(name), dict | list | str)]
    return "\n".join(filter(None, [*known, *inner]))
