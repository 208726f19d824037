"""Good streams written down by hand, for the tests of the judges themselves. They share no code with the gateway."""

from __future__ import annotations

import json
from typing import Any

Event = dict[str, Any]
Item = dict[str, Any]

# The fields that every response must have.
RESPONSE: dict[str, Any] = {
    "id": "resp_1", "object": "response", "created_at": 1700000000, "completed_at": None, "status": "in_progress",
    "incomplete_details": None, "model": "m", "previous_response_id": None, "instructions": None, "output": [],
    "error": None, "tools": [], "tool_choice": "auto", "truncation": "disabled", "parallel_tool_calls": True,
    "text": {"format": {"type": "text"}}, "top_p": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0,
    "top_logprobs": 0, "temperature": 1.0, "reasoning": {"effort": None, "summary": None}, "usage": None,
    "max_output_tokens": None, "max_tool_calls": None, "store": False, "background": False, "service_tier": "default",
    "metadata": {}, "safety_identifier": None, "prompt_cache_key": None,
}  # fmt: skip
USAGE = {
    "input_tokens": 10,
    "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 0},
    "output_tokens": 7,
    "output_tokens_details": {"reasoning_tokens": 3},
    "total_tokens": 17,
}
OUTCOMES: dict[str, dict[str, Any]] = {
    "completed": {"completed_at": 1700000005, "usage": USAGE},
    "incomplete": {"incomplete_details": {"reason": "max_output_tokens"}, "usage": USAGE},
    "failed": {"error": {"code": "server_error", "message": "the backend went away"}},
}


class Script:
    """The events of one stream in the making: items are finished in order, `end` takes them into the response."""

    def __init__(self, **response: Any) -> None:
        self.events: list[Event] = []
        self.output: list[Item] = []
        self._response = {**RESPONSE, **response}

    def say(self, kind: str, **fields: Any) -> None:
        self.events.append({"type": f"response.{kind}", "sequence_number": len(self.events), **fields})

    def snapshot(self, kind: str, **fields: Any) -> None:
        self.say(kind, response={**self._response, "output": list(self.output), **fields})

    def open(self) -> Script:
        self.snapshot("created")
        self.snapshot("in_progress")
        return self

    def reasoning(self, *pieces: str, summary: bool = False, name: str = "reasoning_text", status: str = "completed") -> Script:
        text = "".join(pieces)
        item_id, place = self._add("rs", {"type": "reasoning", "summary": [], "content": []})
        content = {**place, "content_index": 0}
        short = {**place, "summary_index": 0}
        self.say("content_part.added", **content, part={"type": "reasoning_text", "text": ""})
        if summary:
            self.say("reasoning_summary_part.added", **short, part={"type": "summary_text", "text": ""})
        for piece in pieces:
            self.say(f"{name}.delta", **content, delta=piece)
            if summary:
                self.say("reasoning_summary_text.delta", **short, delta=piece)
        self.say(f"{name}.done", **content, text=text)
        self.say("content_part.done", **content, part={"type": "reasoning_text", "text": text})
        final: Item = {"type": "reasoning", "id": item_id, "status": status}
        final |= {"summary": [], "content": [{"type": "reasoning_text", "text": text}]}
        if summary:
            self.say("reasoning_summary_text.done", **short, text=text)
            final["summary"] = [{"type": "summary_text", "text": text}]
            self.say("reasoning_summary_part.done", **short, part=final["summary"][0])
        return self._finish(final)

    def message(self, *pieces: str, status: str = "completed", parts: int = 1) -> Script:
        """Return the events of a message of text; with several parts each has the same text."""
        text = "".join(pieces)
        item_id, place = self._add("msg", {"type": "message", "role": "assistant", "content": []})
        part = {"type": "output_text", "annotations": [], "logprobs": []}
        for index in range(parts):
            content = {**place, "content_index": index}
            self.say("content_part.added", **content, part={**part, "text": ""})
            for piece in pieces:
                self.say("output_text.delta", **content, delta=piece, logprobs=[])
            self.say("output_text.done", **content, text=text, logprobs=[])
            self.say("content_part.done", **content, part={**part, "text": text})
        final = {"type": "message", "id": item_id, "status": status, "role": "assistant"}
        return self._finish({**final, "content": [{**part, "text": text}] * parts})

    def refusal(self, *pieces: str) -> Script:
        text = "".join(pieces)
        item_id, place = self._add("msg", {"type": "message", "role": "assistant", "content": []})
        content = {**place, "content_index": 0}
        self.say("content_part.added", **content, part={"type": "refusal", "refusal": ""})
        for piece in pieces:
            self.say("refusal.delta", **content, delta=piece)
        self.say("refusal.done", **content, refusal=text)
        part = {"type": "refusal", "refusal": text}
        self.say("content_part.done", **content, part=part)
        final = {"type": "message", "id": item_id, "status": "completed", "role": "assistant", "content": [part]}
        return self._finish(final)

    def call(self, *pieces: str, custom: bool = False, status: str = "completed", cut: bool = False) -> Script:
        """Return the events of a call with its arguments (custom: its input); `cut`: without its done events."""
        kind = "function_call"
        field = "arguments"
        family = "function_call_arguments"
        if custom:
            kind = "custom_tool_call"
            field = "input"
            family = "custom_tool_call_input"
        call_id = f"call_{len(self.output)}"
        head = {"type": kind, "call_id": call_id, "name": "weather"}
        item_id, place = self._add("fc", {**head, field: ""})
        for piece in pieces:
            self.say(f"{family}.delta", **place, delta=piece)
        if cut:
            return self
        self.say(f"{family}.done", **place, **{field: "".join(pieces)})
        return self._finish({**head, "id": item_id, field: "".join(pieces), "status": status})

    def item(self, kind: str, **fields: Any) -> Script:
        """Return the events of an item without text of its own, added and done at once."""
        self._add("x", {"type": kind, **fields})
        return self._finish({"type": kind, **fields, "id": f"x_{len(self.output)}", "status": "completed"})

    def end(self, status: str = "completed", **fields: Any) -> list[Event]:
        self.snapshot(status, status=status, **{**OUTCOMES[status], **fields})
        events: list[Event] = json.loads(json.dumps(self.events))  # so that no two events share an item
        return events

    def _add(self, prefix: str, item: Item) -> tuple[str, dict[str, Any]]:
        index = len(self.output)
        item_id = f"{prefix}_{index}"
        self.say("output_item.added", output_index=index, item={**item, "id": item_id, "status": "in_progress"})
        return item_id, {"item_id": item_id, "output_index": index}

    def _finish(self, item: Item) -> Script:
        self.say("output_item.done", output_index=len(self.output), item=item)
        self.output.append(item)
        return self


def good() -> list[Event]:
    """Return a stream with one of each kind of item that a chat model makes, and a keep-alive in the middle."""
    script = Script().open().reasoning("think", " hard", summary=True).message("Hel", "lo")
    script.snapshot("in_progress")
    return script.call('{"city":', '"Paris"}').call("*** Begin", " Patch", custom=True).end()


def encode(events: list[Event], *, done: bool = True) -> bytes:
    """Return the body: `event:` equal to the type, one `data:` line, and `data: [DONE]`."""
    body = "".join(f"event: {event.get('type')}\ndata: {json.dumps(event)}\n\n" for event in events)
    return (body + "data: [DONE]\n\n" * done).encode()


def renumber(events: list[Event]) -> list[Event]:
    """Return the same events with sequence numbers from 0."""
    return [{**event, "sequence_number": number} for number, event in enumerate(events)]


def find(events: list[Event], kind: str, nth: int = 0) -> int:
    """Return the position of the nth event of a type (without `response.`)."""
    return [n for n, event in enumerate(events) if event["type"] == f"response.{kind}"][nth]
