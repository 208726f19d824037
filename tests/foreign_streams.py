"""Streams that others recorded, from `foreign/` beside the checkout: chat streams of many servers, and Responses streams of
OpenAI and others. Their data is not part of the repository; where it is absent, there are none."""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache
from typing import Any, NamedTuple

import pytest

from responses_gateway.conformance.checker import check_stream, frames
from responses_gateway.conformance.levels import Violation
from tests.data_folder import BESIDE

FOLDER = BESIDE / "foreign"
ABSENT = "the streams that others recorded are not here"
# For tests that read them; it does not read them itself, because every process of a run asks.
needs_them = pytest.mark.skipif(not FOLDER.exists(), reason=ABSENT)

# What the host that was asked, or else the name of the file has in it -> who sent the stream; the first that fits counts.
_SENDERS = {
    "copilot": "GitHub Copilot", "azure": "Azure", "openrouter": "OpenRouter", "xai": "xAI", "lmstudio": "LM Studio",
    "groq": "Groq", "mistral": "Mistral", "alibaba": "Alibaba", "deepseek": "DeepSeek", "perplexity": "Perplexity",
    "huggingface": "Hugging Face", "moonshotai": "Moonshot AI", "crusoecloud": "Crusoe", "z.ai": "Z.ai",
    "bedrock": "Amazon Bedrock", "openai": "OpenAI", "programmatic": "OpenAI",
}  # fmt: skip
# Written or shortened by hand, which their ids and numbers show.
_BY_HAND = (
    "openai-apply-patch-tool-delete.1", "openai-custom-tool.1", "openai-phase.1", "openai-shell-container.1",
    "parallel-tool-call-wrapper.1",
)  # fmt: skip
# The files have the events alone, without the lines around them.
_LINES = {"event_name", "done_marker"}


class ChatStream(NamedTuple):
    """The chunks of a chat stream."""

    name: str
    sender: str
    chunks: list[dict[str, Any]]


class ResponsesStream(NamedTuple):
    """The body of a Responses stream, and the year in which it was made, where it says that."""

    name: str
    sender: str
    body: bytes
    year: int | None

    @property
    def violations(self) -> list[Violation]:
        """The rules that it breaks."""
        return [violation for violation in check_stream(self.body) if violation.rule not in _LINES]


@cache
def chat_streams() -> list[ChatStream]:
    """Return all chat streams."""
    rows = [row for row in _rows("chat-streams") if row["chunks"][0].get("object") != "text_completion"]
    return [ChatStream(f"{number} {_name(row)}", _sender(row), row["chunks"]) for number, row in enumerate(rows)]


@cache
def responses_streams() -> list[ResponsesStream]:
    """Return all Responses streams, each once, as they were recorded; where a file has several turns, each by itself."""
    found: dict[str, ResponsesStream] = {}
    for row in _rows("responses-streams"):
        if not _name(row).startswith(_BY_HAND):
            for response, body in _turns(row["sse"].encode()):
                created = response["created_at"]
                year = datetime.fromtimestamp(created, UTC).year if created else None
                found.setdefault(response["id"], ResponsesStream(f"{len(found)} {_name(row)}", _sender(row), body, year))
    return list(found.values())


def _rows(stem: str) -> Iterator[dict[str, Any]]:
    for path in sorted(FOLDER.glob(f"{stem}*.jsonl.xz")):
        with lzma.open(path, "rt", encoding="utf-8") as lines:
            yield from map(json.loads, lines)


def _name(row: dict[str, Any]) -> str:
    return str(row["file"]).rpartition("/")[2].removesuffix(".yaml").removesuffix(".chunks.txt")


def _sender(row: dict[str, Any]) -> str:
    project, _, host = row["from"].partition(":")
    where = host if project == "pydantic" else _name(row)
    return next(sender for word, sender in _SENDERS.items() if word in where)


def _turns(data: bytes) -> Iterator[tuple[dict[str, Any], bytes]]:
    """Yield the first response object and the body of each stream that a file has."""
    events = [json.loads(frame.data) for frame in frames(data) if frame.data != "[DONE]"]
    starts = [number for number, event in enumerate(events) if event["type"] == "response.created"]
    for start, end in zip(starts, [*starts[1:], len(events)], strict=True):
        lines = [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events[start:end]]
        yield events[start]["response"], "".join(lines).encode()


# ---- what must come out of a chat stream ----------------------------------------------------------------------------------


class Said(NamedTuple):
    """What a model said: the texts of each kind put together, and its calls with their arguments."""

    texts: dict[str, str]
    calls: list[tuple[str, str]]


def sent(stream: ChatStream) -> Said:
    """Put the chunks together, without the gateway: what the server sent."""
    texts: dict[str, str] = {}
    calls: dict[int, tuple[str, str]] = {}
    for chunk in stream.chunks:
        for choice in chunk.get("choices") or ():
            delta = choice.get("delta") or {}
            for kind, text in _texts(delta):
                texts[kind] = texts.get(kind, "") + text
            for call in delta.get("tool_calls") or ():
                name, arguments = calls.get(call.get("index", 0), ("", ""))
                function = call["function"]
                more = (name + (function.get("name") or ""), arguments + (function.get("arguments") or ""))
                calls[call.get("index", 0)] = more
    return _stripped(texts, list(calls.values()))


def _texts(delta: dict[str, Any]) -> Iterator[tuple[str, str]]:
    yield "reasoning", delta.get("reasoning_content") or delta.get("reasoning") or ""
    yield "refusal", delta.get("refusal") or ""
    content = delta.get("content") or ""
    for part in [{"type": "text", "text": content}] if isinstance(content, str) else content:
        if part["type"] == "thinking":
            yield "reasoning", "".join(piece["text"] for piece in part["thinking"])
        else:
            yield "text", part["text"]


def received(body: bytes) -> Said:
    """Return what the items of the final response say."""
    *_, last = (json.loads(frame.data) for frame in frames(body) if frame.data != "[DONE]")
    texts: dict[str, str] = {}
    calls = []
    for item in last["response"]["output"]:
        if item["type"] == "function_call":
            calls.append((item["name"], item["arguments"]))
        for part in item.get("content") or ():
            kind = item["type"] if item["type"] == "reasoning" else part["type"].removeprefix("output_")
            texts[kind] = texts.get(kind, "") + (part.get("text") or part.get("refusal"))
    return _stripped(texts, calls)


def _stripped(texts: dict[str, str], calls: list[tuple[str, str]]) -> Said:
    """Leave out the white space at both ends, which separates items."""
    return Said({kind: text.strip() for kind, text in sorted(texts.items()) if text.strip()}, calls)
