"""Read the `image_generation` tool of a request: what is asked of the server of images, and what cannot be."""

from __future__ import annotations

from typing import Any, NamedTuple

from responses_gateway.request.fields import Object, optional_text, wrong_type

_TEXTS = ("size", "quality", "background", "output_format")
# Options that are not sent -> why.
_NOT_SENT = {
    "model": "the setting image_generation_model names the model",
    "partial_images": "images are sent when they are complete",
    "input_fidelity": "images cannot be edited here",
    "input_image_mask": "images cannot be edited here",
    "moderation": "the server of images decides",
    "complexity": "servers of images do not support it",
    "frame_count": "servers of images do not support it",
    "frame_duration_ms": "servers of images do not support it",
}


class ImageOptions(NamedTuple):
    """The options that are sent, and why others are not."""

    sent: dict[str, Any]
    losses: list[str]


def read_image_generation(tool: Object, path: str) -> ImageOptions:
    """Read the tool at `path`. Raise `ApiError` 400 for options of the wrong type."""
    sent: dict[str, Any] = {}
    for name in _TEXTS:
        value = optional_text(tool, name, path)
        if value not in (None, "auto"):
            sent[name] = value
    compression = tool.get("output_compression")
    if compression is not None:
        if not isinstance(compression, int) or isinstance(compression, bool):
            raise wrong_type(f"{path}.output_compression", "an integer")
        sent["output_compression"] = compression
    losses = [f"{name}: {reason}" for name, reason in _NOT_SENT.items() if tool.get(name)]
    if optional_text(tool, "action", path) == "edit":
        losses.append("action: images cannot be edited here")
    return ImageOptions(sent, losses)
