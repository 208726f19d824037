"""`configuration_update` items: what the conversation itself says about how it is to be answered from there on."""

from __future__ import annotations

from collections.abc import Iterable

from proxy.request.fields import optional_object, optional_text, required_object
from proxy.request.input.items import Entry
from proxy.request.parameters.text_format import response_format
from proxy.wire.requests import ReasoningConfig, ResponsesRequest, TextConfig


def configured(request: ResponsesRequest, entries: Iterable[Entry]) -> ResponsesRequest:
    """The request with the effort and the output format of the last update that names one; they stay in effect until the next
    update, so they go before the request's own. Raises `ApiError` 400."""
    for entry in entries:
        if entry.kind == "configuration_update":
            request = _updated(request, entry)
    return request


def _updated(request: ResponsesRequest, entry: Entry) -> ResponsesRequest:
    changes: dict[str, ReasoningConfig | TextConfig] = {}
    reasoning = optional_object(entry.item, "reasoning", entry.path)
    if reasoning is not None and "effort" in reasoning:
        effort = optional_text(reasoning, "effort", f"{entry.path}.reasoning")
        changes["reasoning"] = (request.reasoning or ReasoningConfig()).model_copy(update={"effort": effort})
    text = optional_object(entry.item, "text", entry.path)
    if text is not None:
        path = f"{entry.path}.text"
        layout = required_object(text, "format", path)
        response_format(layout, f"{path}.format")
        changes["text"] = (request.text or TextConfig()).model_copy(update={"format": layout})
    return request.model_copy(update=changes) if changes else request
