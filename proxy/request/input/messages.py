"""Build chat messages: one assistant message at a time, immediately followed by the tool messages of its calls.

A user message or tool output that consists of text parts alone becomes one string, joined with line feeds, because many
templates accept only strings; the parts of an assistant message are pieces of one text and are joined directly.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from operator import itemgetter
from typing import NamedTuple

from proxy.request.fields import Object, missing, object_list, optional_text, quote, required_object, text, wrong_type
from proxy.request.input.call_matching import NO_OUTPUT, MatchedCall
from proxy.request.loss_report import LossReport
from proxy.request.policy import Policy
from proxy.wire.errors import ApiError, invalid_request

_TEXT_TYPES = frozenset({"input_text", "output_text", "text", "summary_text", "reasoning_text"})
_DETAILS = frozenset({"auto", "low", "high"})


class Output(NamedTuple):
    """The output of a tool: text for the tool message, and the parts that only a user message may have."""

    text: str
    media: list[Object]


def user_content(content: object, path: str, report: LossReport) -> str | list[Object]:
    """Return the content of a user message: a string if it is text alone, else chat parts. Raises `ApiError` 400."""
    if isinstance(content, str):
        return content
    parts = [_chat_part(part, param, report) for part, param in _parts(content, path)]
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
    """Return the text of an assistant message, refusals included (templates ignore the chat field `refusal`)."""
    if isinstance(content, str):
        return content
    texts = []
    for part, param in _parts(content, path):
        kind = text(part, "type", param)
        if kind == "refusal":
            report.adapted("content", "refusal", "sent back as text")
            texts.append(text(part, "refusal", param))
        elif kind in _TEXT_TYPES:
            texts.append(text(part, "text", param))
        else:
            raise _unknown_part(part, param)
    return "".join(texts)


def tool_output(content: object, path: str, report: LossReport) -> Output:
    """Return the output of a tool, given as a string or a list of parts. Raises `ApiError` 400."""
    if isinstance(content, str):
        return Output(content, [])
    if content is None:
        raise missing(path)
    parts = [_chat_part(part, param, report) for part, param in _parts(content, path)]
    texts = [part["text"] for part in parts if part["type"] == "text"]
    media = [part for part in parts if part["type"] != "text"]
    return Output("\n".join(texts), media)


def reasoning_text(item: Object, path: str) -> str:
    """Return the text of a reasoning item: its content, or its summary if the content is empty or null."""
    for key in ("content", "summary"):
        found = item.get(key)
        texts = [text(part, "text", param) for part, param in _parts(found, f"{path}.{key}")] if found else []
        if any(texts):
            return "\n".join(texts)
    return ""


def screenshot(image: Object, path: str, report: LossReport) -> Output:
    """Return the output of a computer call: one image."""
    return Output("", [_image(image, path, report)])


def _parts(content: object, path: str) -> list[tuple[Object, str]]:
    if content is None:
        raise missing(path)
    if not isinstance(content, list):
        raise wrong_type(path, "a string or a list of parts")
    return [(part, f"{path}[{index}]") for index, part in enumerate(object_list(content, path))]


def _chat_part(part: Object, param: str, report: LossReport) -> Object:
    kind = text(part, "type", param)
    if part.get("prompt_cache_breakpoint") is not None:
        reason = "the backend decides what it caches"
        report.ignored("content", "prompt_cache_breakpoint", reason, f"{param}.prompt_cache_breakpoint", matters=False)
    if kind in _TEXT_TYPES:
        return {"type": "text", "text": text(part, "text", param)}
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
    found: Object = {}
    for key in ("filename", "file_data", "file_url"):
        value = optional_text(part, key, param)
        if value:
            found[key] = value
    if "file_data" not in found and "file_url" not in found:
        raise _without_source(part, param, "file_data")
    if optional_text(part, "detail", param) not in (None, "auto"):
        report.ignored("content", "file_detail", "chat servers know it of images only", f"{param}.detail", matters=False)
    if "file_url" in found:
        report.adapted("content", "input_file", "sent as a file part with file_url, which few chat servers fetch")
    else:
        report.preserved("content", "input_file")
    return {"type": "file", "file": found}


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


# The text of a tool message whose output has no text.
SEE_BELOW = "(the output follows in the next message)"

_REASONING_FIELDS = {
    "reasoning": ("reasoning",),
    "reasoning_content": ("reasoning_content",),
    "both": ("reasoning", "reasoning_content"),
    "none": (),
}


class MessageBuilder:
    """Accepts the content of a conversation in order and arranges it as the strictest chat backend requires.

    An assistant message stays open while the model speaks, and until all of its calls that have an output later in the
    input have been answered; then `finish` or the next speaker closes it.
    """

    def __init__(self, policy: Policy, report: LossReport) -> None:
        self._policy = policy
        self._report = report
        self._messages: list[Object] = []
        self._turn: _Turn | None = None

    def add_user(self, content: str | list[Object]) -> None:
        """Add a user message."""
        self._close_turn()
        self._messages.append({"role": "user", "content": content})

    def add_system(self, content: str) -> None:
        """Add a system message in the middle of the conversation."""
        self._close_turn()
        self._messages.append({"role": "system", "content": content})

    def add_reasoning(self, text: str) -> None:
        """Add reasoning to the model's turn."""
        self._open_turn().reasoning.append(text)

    def add_text(self, text: str) -> None:
        """Add text to the model's turn."""
        if text:
            self._open_turn().texts.append(text)

    def add_call(self, matched: MatchedCall) -> None:
        """Add a call to the model's turn."""
        turn = self._open_turn()
        turn.calls.append(matched)
        if matched.call.output is not None:
            turn.answered = True
        elif matched.output is not NO_OUTPUT:
            turn.waiting.add(matched.id)

    def add_output(self, matched: MatchedCall) -> None:
        """Note where the output of a call stands; it is sent directly after its call in any case."""
        turn = self._turn
        if turn is not None and matched.id in turn.waiting:
            turn.waiting.discard(matched.id)
            turn.answered = True
        else:
            self._report.adapted("content", "order", "an output that did not follow its call was moved to it")

    def finish(self) -> list[Object]:
        """Return all messages."""
        self._close_turn()
        return _users_merged(self._messages) if self._policy.user_messages == "merge" else self._messages

    def _open_turn(self) -> _Turn:
        turn = self._turn
        if turn is not None and turn.answered and not turn.waiting:
            self._close_turn()
        if self._turn is None:
            self._turn = _Turn()
        return self._turn

    def _close_turn(self) -> None:
        turn = self._turn
        if turn is None:
            return
        self._turn = None
        if not turn.texts and not turn.calls:
            if turn.reasoning:
                reason = "no message or call of the same turn follows it"
                self._report.ignored("item", "reasoning", reason, "input", matters=False)
            return
        self._messages.append(self._assistant(turn))
        media: list[Object] = []
        for matched in turn.calls:
            output = matched.output or NO_OUTPUT
            text = output.text or (SEE_BELOW if output.media else "")
            self._messages.append({"role": "tool", "tool_call_id": matched.id, "content": text})
            if output.media:
                label = f"Output of the call {matched.id} ({matched.call.name}):"
                media += [{"type": "text", "text": label}, *output.media]
        if media:
            self._report.adapted("content", "tool_output_media", "moved into a user message after the tool messages")
            self._messages.append({"role": "user", "content": media})

    def _assistant(self, turn: _Turn) -> Object:
        # An empty string, not null: templates print null as "None" or fail on it.
        message: Object = {"role": "assistant", "content": "\n\n".join(turn.texts)}
        if turn.reasoning:
            for field in _REASONING_FIELDS[self._policy.reasoning_field]:
                message[field] = "\n".join(turn.reasoning)
        if turn.calls:
            message["tool_calls"] = [_tool_call(matched) for matched in turn.calls]
        return message


class _Turn:
    """The content of one response. `waiting`: ids of calls whose output is still to come; `answered`: some output came."""

    __slots__ = ("answered", "calls", "reasoning", "texts", "waiting")

    def __init__(self) -> None:
        self.reasoning: list[str] = []
        self.texts: list[str] = []
        self.calls: list[MatchedCall] = []
        self.waiting: set[str] = set()
        self.answered = False


def _tool_call(matched: MatchedCall) -> Object:
    function = {"name": matched.call.name, "arguments": matched.call.arguments}
    return {"id": matched.id, "type": "function", "function": function}


def _users_merged(messages: list[Object]) -> list[Object]:
    """Merge consecutive user messages into one."""
    merged: list[Object] = []
    for role, row in itertools.groupby(messages, key=itemgetter("role")):
        if role == "user":
            merged.append({"role": "user", "content": _joined([message["content"] for message in row])})
        else:
            merged.extend(row)
    return merged


def _joined(contents: list[str | list[Object]]) -> str | list[Object]:
    texts = [content for content in contents if isinstance(content, str)]
    if len(texts) == len(contents):
        return "\n\n".join(texts)
    return list(itertools.chain.from_iterable(map(_as_parts, contents)))


def _as_parts(content: str | list[Object]) -> list[Object]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content
