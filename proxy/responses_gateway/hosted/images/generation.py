"""The hosted tool `image_generation`: a prompt of the model becomes an image of a server of images."""

from __future__ import annotations

import asyncio
import base64
import binascii
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from responses_gateway.hosted.interface import HostedResult, ToolFailure
from responses_gateway.wire.chat import possible, whole_number
from responses_gateway.wire.hosted import ImageUsage
from responses_gateway.wire.json_text import decode_as

# The largest image, in base64; an answer with it may be a little longer.
LONGEST_IMAGE = 8 * 1024 * 1024
LONGEST_ANSWER = LONGEST_IMAGE + 64 * 1024
_LONGEST_PROMPT = 32_000
_DONE = "The image was generated, and the user sees it. Do not describe it at length."
# How files of the formats begin that clients show. No SVG: it may contain scripts.
_FORMATS = {"png": b"\x89PNG", "jpeg": b"\xff\xd8\xff", "webp": b"RIFF....WEBP", "gif": b"GIF8[79]a"}
# What an item may say of its image -> the values that the API knows; None for any text.
_SHOWN: dict[str, frozenset[str] | None] = {
    "size": None,
    "quality": frozenset({"low", "medium", "high", "xhigh", "max", "auto"}),
    "background": frozenset({"transparent", "opaque", "auto"}),
}

# Sends the body of a request for images, and returns that of the answer. Raises `ToolFailure`.
Generate = Callable[[bytes], Awaitable[bytes]]


class _Image(msgspec.Struct):
    b64_json: str | None = None
    revised_prompt: str | None = None


class _Answer(msgspec.Struct):
    data: list[_Image]
    usage: Any = None
    size: Any = None
    quality: Any = None
    background: Any = None


@dataclass(frozen=True, slots=True)
class ImageGeneration:
    """Makes the images of one request. `model` is that of the settings, `options` are the request's."""

    generate: Generate
    model: str
    options: Mapping[str, Any]

    async def run(self, arguments: Mapping[str, Any]) -> HostedResult:
        """Make an image of `prompt`."""
        prompt = arguments.get("prompt")
        if not isinstance(prompt, str) or not prompt.strip():
            raise ToolFailure('The argument "prompt" is missing: say what the image shows.')
        question = {
            "model": self.model,
            "prompt": prompt[:_LONGEST_PROMPT],
            "n": 1,
            "response_format": "b64_json",
            **self.options,
        }
        body = await self.generate(msgspec.json.encode(question))
        item, used = await asyncio.to_thread(read_image, body, self.options)
        return HostedResult(_DONE, {"revised_prompt": prompt, **item}, images=used)


def read_image(body: bytes, options: Mapping[str, Any]) -> tuple[dict[str, Any], ImageUsage | None]:
    """Return the members of the item for the answer of a server of images, and what it has cost. Raise `ToolFailure`."""
    try:
        answer = decode_as(body, _Answer)
    except msgspec.DecodeError:
        raise ToolFailure("The server of images sent something that is not an image.") from None
    image = answer.data[0] if answer.data else _Image()
    if image.b64_json is None:
        raise ToolFailure("The server of images sent no image.")
    if len(image.b64_json) > LONGEST_IMAGE:
        raise ToolFailure("The image is too large. Ask for a smaller one.")
    layout = image_format(image.b64_json)
    if layout is None:
        raise ToolFailure("The server of images sent something that is not an image.")
    item: dict[str, Any] = {"result": image.b64_json, "output_format": layout}
    if image.revised_prompt:
        item["revised_prompt"] = image.revised_prompt
    for name, known in _SHOWN.items():
        value = getattr(answer, name) or options.get(name)
        if isinstance(value, str) and (known is None or value in known):
            item[name] = value
    return item, _used(answer.usage)


def _used(usage: Any) -> ImageUsage | None:
    """Return the counts of an answer; None without any. What no detail names is text in the input and image in the output."""
    read = _count(usage, "input_tokens")
    written = _count(usage, "output_tokens")
    if not read + written:
        return None
    images = min(_count(usage.get("input_tokens_details"), "image_tokens"), read)
    text = min(_count(usage.get("output_tokens_details"), "text_tokens"), written)
    return ImageUsage(read - images, images, text, written - text)


def _count(counts: Any, name: str) -> int:
    return possible(whole_number(counts.get(name))) or 0 if isinstance(counts, dict) else 0


def image_format(content: str) -> str | None:
    """Return the format of an image in base64, or of its beginning; None for what is no image, or no base64."""
    try:
        data = base64.b64decode(content, validate=True)
    except (binascii.Error, ValueError):
        return None
    return next((name for name, beginning in _FORMATS.items() if re.match(beginning, data, re.DOTALL)), None)
