"""The input as a flat list of items, each with its type and the path that names it in an error; and their content, as content
parts of Chat Completions.

A user message or tool output that consists of text parts alone becomes one string, joined with line feeds, because many
templates accept only strings; the parts of an assistant message are pieces of one text and are joined directly.

A content that is null or missing counts as an empty one, and so does a part or a text that is null, because clients keep such
messages in their histories: a refusal would end the session."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from responses_gateway.request.fields import (
    Entry,
    Object,
    missing,
    nullable_text,
    object_list,
    optional_text,
    quote,
    required_object,
    text,
    too_long,
    wrong_type,
)
from responses_gateway.request.loss_report import LossReport
from responses_gateway.wire.errors import ApiError, invalid_request
from responses_gateway.wire.hosted import SandboxFiles, sent_file
from responses_gateway.wire.json_text import decode_as

ResolveItem = Callable[[str], "dict[str, Any] | None"]
# The type of an item that names one which is stored.
_REFERENCE = "item_reference"
_TEXT_TYPES = frozenset({"input_text", "output_text", "text", "summary_text", "reasoning_text"})
# Those of them that a message or a thought may have, as a tuple, because what a client sends as a type may not be hashable.
_PLAIN_TYPES = ("input_text", "output_text", "text", "reasoning_text")
_DETAILS = frozenset({"auto", "low", "high"})


def entries(
    source: str | list[Any] | None,
    resolve_item: ResolveItem | None,
    history: Sequence[Object],
    replaced: Container[int],
    limit: int,
) -> list[Entry]:
    """Return the history, then the input, in order, with item references resolved; a string is one user message. A reference to
    an item that the history or the input itself contains is dropped, since the item is there already. Items of the input whose
    positions are in `replaced` are checked and left out. Raises `ApiError` 400, also for more than `limit` items: a body within
    its size limit can still contain millions."""
    count = len(history) + (len(source) if type(source) is list else 1)
    if count > limit:
        raise too_long("input", count, limit, "items, the history included" if history else "items")
    if type(source) is str:
        message = Entry("input", "message", text_item(source))
        return [*entries_at(history, "history"), message] if history else [message]
    own = entries_at(object_list(source or [], "input"), "input")
    if replaced:
        own = [entry for index, entry in enumerate(own) if index not in replaced]
    if _REFERENCE in [entry.kind for entry in own]:
        own = _with_referenced(own, history, resolve_item)
    return entries_at(history, "history") + own if history else own


def text_item(source: str) -> Object:
    """Return the item that an input means which is a text, as it is translated."""
    return {"type": "message", "role": "user", "content": source}


def entries_at(items: Sequence[Object], path: str, start: int = 0) -> list[Entry]:
    """Return the items of a list at `path`, of which `start` come before, references unresolved. Raises `ApiError` 400."""
    return [
        Entry(f"{path}[{index}]", kind, item)  # as most items of clients that store nothing
        if type(kind := item.get("type")) is str and "id" not in item
        else _entry(item, f"{path}[{index}]")
        for index, item in enumerate(items, start)
    ]


def _entry(item: Object, path: str) -> Entry:
    if "id" in item:
        optional_text(item, "id", path)  # the store, and references to items, rely on its type
    kind = item.get("type")
    return Entry(path, kind if isinstance(kind, str) else _kind(item, path), item)


def _with_referenced(own: list[Entry], history: Sequence[Object], resolve_item: ResolveItem | None) -> list[Entry]:
    """Return items with those that the references among them name in their places, unless they are in the history or there."""
    present = {str(item.get("id")) for item in (*history, *(entry.item for entry in own if entry.kind != _REFERENCE))}
    return [
        _resolved(entry, resolve_item) if entry.kind == _REFERENCE else entry
        for entry in own
        if entry.kind != _REFERENCE or text(entry.item, "id", entry.path) not in present
    ]


def _kind(item: Object, path: str) -> str:
    """Return an item's type; messages and references may come without one."""
    kind = optional_text(item, "type", path)
    if kind is not None:
        return kind
    if "role" in item or "content" in item:
        return "message"
    if "id" in item:
        return _REFERENCE
    raise missing(f"{path}.type")


def _resolved(entry: Entry, resolve_item: ResolveItem | None) -> Entry:
    item_id = text(entry.item, "id", entry.path)
    item = resolve_item(item_id) if resolve_item is not None else None
    if item is None:
        raise _not_found(item_id, entry.path)
    kind = _kind(item, entry.path)
    if kind == _REFERENCE:
        raise _not_found(item_id, entry.path)
    return Entry(entry.path, kind, item)


def _not_found(item_id: str, path: str) -> ApiError:
    message = f"Item with id {quote(item_id)} not found. Only stored items can be referred to: send the item itself."
    return invalid_request(message, f"{path}.id", "item_not_found")


class Output(msgspec.Struct, frozen=True):
    """The output of a tool: text for the tool message, and the parts that only a user message may have."""

    text: str
    media: Sequence[Object] = ()


def user_content(content: object, path: str, report: LossReport) -> str | list[Object]:
    """Return the content of the user message at `path`: a string if it is text alone, else parts. Raises `ApiError` 400."""
    if type(content) is str:
        return content
    only = _only_text(content)
    if only is not None:
        return only
    parts = [_chat_part(part, param, report) for part, param in _parts(content, f"{path}.content")]
    if all(part["type"] == "text" for part in parts):
        return "\n".join(part["text"] for part in parts)
    return parts


def system_text(content: object, path: str, report: LossReport) -> str:
    """Return the text of a system or developer message, which can have nothing else in a chat request."""
    if isinstance(content, str):
        return content
    texts = []
    for part, param in _parts(content, path):
        chat_part = _chat_part(part, param, report)
        if chat_part["type"] == "text":
            texts.append(chat_part["text"])
        else:
            report.ignored("content", part["type"], "a system message is text only", param)
    return "\n\n".join(texts)


def assistant_text(content: object, path: str, report: LossReport) -> str:
    """Return the text of the assistant message at `path`, refusals included (templates ignore the chat field `refusal`)."""
    if isinstance(content, str):
        return content
    only = _only_text(content)
    if only is not None:
        return only
    texts = []
    for part, param in _parts(content, f"{path}.content"):
        kind = text(part, "type", param)
        if kind == "refusal":
            report.adapted("content", "refusal", "sent back as text")
            texts.append(nullable_text(part, "refusal", param))
        elif kind in _TEXT_TYPES:
            texts.append(nullable_text(part, "text", param))
        else:
            raise _unknown_part(part, param)
    return "".join(texts)


def tool_output(content: object, path: str, report: LossReport) -> Output:
    """Return the output of a tool in the item at `path`, given as a string or a list of parts. Raises `ApiError` 400."""
    if isinstance(content, str) and content[:1] == "[":
        content = _with_pictures(content)
    if isinstance(content, str):
        return Output(content)
    parts = [_chat_part(part, param, report) for part, param in _parts(content, f"{path}.output")]
    texts = [part["text"] for part in parts if part["type"] == "text"]
    media = [part for part in parts if part["type"] != "text"]
    return Output("\n".join(texts), media)


def _with_pictures(written: str) -> str | list[Object]:
    """Return the parts of an output that a program has written as one text, if pictures are among them: as a text, one picture
    takes more tokens than a context has. Any other output stays as it is."""
    if '"data:image/' not in written:
        return written
    with suppress(msgspec.DecodeError):
        parts = decode_as(written.encode(), list[Object])
        texts = [part for part in parts if _only_text([part]) is not None]
        pictures = [part for part in parts if part.get("type") == "input_image" and str(part.get("image_url"))[:5] == "data:"]
        pictures = [part for part in pictures if isinstance(part.get("detail"), str | None)]  # the program is not the client
        if pictures and len(texts) + len(pictures) == len(parts):
            return parts
    return written


def reasoning_text(item: Object, path: str) -> str:
    """Return the text of a reasoning item: its content, or its summary if the content is empty or null."""
    for key in ("content", "summary"):
        parts = item.get(key)
        only = _only_text(parts)
        if only:
            return only
        texts = [nullable_text(part, "text", param) for part, param in _parts(parts, f"{path}.{key}")] if parts else []
        if any(texts):
            return "\n".join(texts)
    return ""


def _only_text(content: object) -> str | None:
    """Return the text of a content that is one text part and nothing else, as most are: the others take longer."""
    if type(content) is not list or len(content) != 1 or type(part := content[0]) is not dict:
        return None
    words = part.get("text")
    if part.get("type") in _PLAIN_TYPES and type(words) is str and "prompt_cache_breakpoint" not in part:
        return words
    return None


def screenshot(image: Object | None, path: str, report: LossReport) -> Output:
    """Return the output of a computer call: one image."""
    return Output("", () if image is None else (_image(image, path, report),))


def _parts(content: object, path: str) -> list[tuple[Object, str]]:
    """Return the parts of a content, each with its place."""
    if content is None:
        return []
    if not isinstance(content, list):
        raise wrong_type(path, "a string or a list of parts")
    parts = [(part, f"{path}[{index}]") for index, part in enumerate(content) if part is not None]
    for part, place in parts:
        if not isinstance(part, dict):
            raise wrong_type(place, "an object")
    return parts


def _chat_part(part: Object, param: str, report: LossReport) -> Object:
    kind = text(part, "type", param)
    if part.get("prompt_cache_breakpoint") is not None:
        reason = "the backend decides what it caches"
        report.ignored("content", "prompt_cache_breakpoint", reason, f"{param}.prompt_cache_breakpoint", matters=False)
    if kind in _TEXT_TYPES:
        return {"type": "text", "text": nullable_text(part, "text", param)}
    read = _MEDIA.get(kind)
    if read is None:
        raise _unknown_part(part, param)
    return read(part, param, report)


def _image(part: Object, param: str, report: LossReport) -> Object:
    url = optional_text(part, "image_url", param)
    if not url:
        raise _without_source(part, param, "image_url")
    report.preserved("content", "input_image")
    image: Object = {"url": url}
    detail = optional_text(part, "detail", param)
    if detail in _DETAILS:
        image["detail"] = detail
    elif detail is not None:
        image["detail"] = "high"
        report.adapted("content", "input_image", "chat servers do not support the detail level: sent as high")
    return {"type": "image_url", "image_url": image}


def _file(part: Object, param: str, report: LossReport) -> Object:
    file: Object = {}
    for key in ("filename", "file_data", "file_url"):
        value = optional_text(part, key, param)
        if value:
            file[key] = value
    if "file_data" not in file and "file_url" not in file:
        raise _without_source(part, param, "file_data")
    if optional_text(part, "detail", param) not in (None, "auto"):
        report.ignored("content", "file_detail", "chat servers know it of images only", f"{param}.detail", matters=False)
    if "file_url" in file:
        report.adapted("content", "input_file", "sent as a file part with file_url, which few chat servers fetch")
    else:
        report.preserved("content", "input_file")
    return {"type": "file", "file": file}


def _audio(part: Object, param: str, report: LossReport) -> Object:
    audio = required_object(part, "input_audio", param)
    path = f"{param}.input_audio"
    report.preserved("content", "input_audio")
    return {"type": "input_audio", "input_audio": {"data": text(audio, "data", path), "format": text(audio, "format", path)}}


def _video(part: Object, param: str, report: LossReport) -> Object:
    report.preserved("content", "input_video")
    return {"type": "video_url", "video_url": {"url": text(part, "video_url", param)}}


def _without_source(part: Object, param: str, key: str) -> ApiError:
    if part.get("file_id") is not None:
        message = "File ids cannot be resolved by this gateway: send the content itself."
        return invalid_request(message, f"{param}.file_id", "unsupported_value")
    return missing(f"{param}.{key}")


def _unknown_part(part: Object, param: str) -> ApiError:
    message = f"Invalid value: {quote(text(part, 'type', param))} is not a supported content part type."
    return invalid_request(message, f"{param}.type", "invalid_value")


_MEDIA: dict[str, Callable[[Object, str, LossReport], Object]] = {
    "input_image": _image,
    "computer_screenshot": _image,
    "input_file": _file,
    "input_audio": _audio,
    "input_video": _video,
}


def with_paths(items: Sequence[Entry], files: SandboxFiles, report: LossReport) -> list[Entry]:
    """Return the items with the paths at which the code of `code_interpreter` finds files, in place of the files, which few
    chat servers accept. A PDF stays, too: some servers show it to the model, and the code has no library that reads it."""
    described = []
    for entry in items:
        content = entry.item.get("content")
        if entry.item.get("role") == "user" and isinstance(content, list):
            parts = [shown_part for part in content for shown_part in _described(part, files, report)]
            described.append(msgspec.structs.replace(entry, item={**entry.item, "content": parts}))
        else:
            described.append(entry)
    return described


def file_for_code(path: str) -> Object:
    """Return the part that tells the model where its code finds a file."""
    return {"type": "input_text", "text": f"[A file for the code: {path}]"}


def _described(part: Any, files: SandboxFiles, report: LossReport) -> list[Object]:
    sent = sent_file(part)
    path = None if sent is None else files.get(sent)
    if path is None:
        return [part]
    report.adapted("content", "input_file", "the code interpreter has it as a file")
    note = file_for_code(path)
    return [part, note] if path.lower().endswith(".pdf") else [note]
