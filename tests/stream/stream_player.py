"""Plays a chat stream to a translator and reads back what a client would see. Every play is judged."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from responses_gateway.conformance.checker import frames
from responses_gateway.stream.lifecycle.needs import AnotherTurn, CallToRun, RunCalls
from responses_gateway.stream.options import STANDARD, Client, StreamOptions
from responses_gateway.stream.translator import Translator
from responses_gateway.wire.errors import ApiError
from responses_gateway.wire.tools import ToolTable, ToolTarget
from tests.judges import judge_stream
from tests.judges.streams import RESPONSE

NOW = 1_800_000_000.5
DONE = b"data: [DONE]\n\n"

# What the request repeats in every response: all that is neither identity nor progress.
ECHO = {
    name: value
    for name, value in RESPONSE.items()
    if name
    not in {"id", "object", "created_at", "completed_at", "status", "incomplete_details", "model", "output", "error", "usage"}
}

# One tool of each kind, under the names that the model sees.
TOOLS: ToolTable = {
    "weather": ToolTarget("function", "weather"),
    "clock": ToolTarget("function", "clock"),
    "patch": ToolTarget("custom", "patch"),
    "local_shell": ToolTarget("local_shell", "local_shell"),
    "shell": ToolTarget("shell", "shell"),
    "apply_patch": ToolTarget("apply_patch", "apply_patch"),
    "tool_search": ToolTarget("tool_search", "tool_search"),
    "crm__find": ToolTarget("function", "find", "crm"),
}

# Error codes that the SDK's closed list lacks: Codex acts on them, and no SDK validates a stream.
_CODES_BEYOND_THE_SDK = {"context_length_exceeded", "insufficient_quota"}

Item = dict[str, Any]
Said = tuple[Any, ...]


# ---- what the backend sends -------------------------------------------------------------------------------------------


def chunk(delta: dict[str, Any] | None = None, finish: str | None = None, **fields: Any) -> bytes:
    """Return one event with one choice. `fields` are further members of the choice."""
    choice = {"index": 0, "delta": delta or {}, "finish_reason": finish, **fields}
    return event({"object": "chat.completion.chunk", "choices": [choice]})


def event(payload: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(payload, ensure_ascii=False).encode() + b"\n\n"


def text(content: str, **fields: Any) -> bytes:
    return chunk({"content": content}, **fields)


def think(reasoning: str) -> bytes:
    return chunk({"reasoning": reasoning})


def refuse(refusal: str) -> bytes:
    return chunk({"refusal": refusal})


def call(index: int | None, call_id: str | None, name: str | None, arguments: Any = None) -> bytes:
    """Return the beginning of a call, or all of it."""
    return chunk({"tool_calls": [tool(index, call_id, name, arguments)]})


def tool(index: int | None, call_id: str | None, name: str | None, arguments: Any = None) -> dict[str, Any]:
    entry: dict[str, Any] = {"index": index, "id": call_id, "type": "function"}
    return entry | {"function": {"name": name, "arguments": arguments}}


def arguments(index: int | None, piece: str) -> bytes:
    """Return a piece of the arguments of a call."""
    return chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})


def finish(reason: str = "stop") -> bytes:
    return chunk({}, finish=reason)


def usage(**counts: Any) -> bytes:
    return event({"object": "chat.completion.chunk", "choices": [], "usage": counts})


# ---- what the client sees ---------------------------------------------------------------------------------------------


class Play(NamedTuple):
    """A stream that has ended: its bytes, its events, the final response."""

    data: bytes
    events: list[dict[str, Any]]
    response: dict[str, Any]
    translator: Translator

    @property
    def said(self) -> list[Said]:
        """The output in short: `("text", "hello")`, `("call", name, arguments)`, with "incomplete" behind where it is."""
        return [short(item) for item in self.response["output"]]

    @property
    def kinds(self) -> list[str]:
        """The types of all events, without `response.`."""
        return [event["type"].removeprefix("response.") for event in self.events]

    def deltas(self, kind: str) -> list[str]:
        """Return the deltas of one type, e.g. `output_text`."""
        return [event["delta"] for event in self.events if event["type"] == f"response.{kind}.delta"]

    @property
    def error(self) -> tuple[str, str]:
        """Code and message of a failed response."""
        return self.response["error"]["code"], self.response["error"]["message"]


def options(**fields: Any) -> StreamOptions:
    return StreamOptions(**{"response_id": "resp_a1", "model": "m", "echo": ECHO, "tools": TOOLS, **fields})


def new_translator(**fields: Any) -> Translator:
    return Translator(options(**fields), lambda: NOW)


def translate(pieces: Iterable[bytes], **fields: Any) -> bytes:
    """Return the whole stream for a body that arrives in these pieces, unchecked."""
    playing = new_translator(**fields)
    return playing.start() + b"".join([playing.feed(piece) for piece in pieces]) + playing.finish() + playing.terminal()


def substance(data: bytes) -> list[dict[str, Any]]:
    """Return the events of a stream, however its body was cut: neighbouring deltas of one text as one, without numbers."""
    events: list[dict[str, Any]] = []
    for event in events_of(data):
        del event["sequence_number"]
        before = events[-1] if events else {}
        same = all(event[key] == before.get(key) for key in event if key not in {"delta", "logprobs"})
        if "delta" in event and same:
            before["delta"] += event["delta"]
            before.setdefault("logprobs", []).extend(event.get("logprobs", []))
        else:
            events.append(event)
    return events


def play(*pieces: bytes | ApiError, done: bool = True, **fields: Any) -> Play:
    """Feed the pieces (an error: the stream breaks there), then `[DONE]` unless told otherwise, then the end of the body."""
    playing = new_translator(**fields)
    out = [playing.start()]
    for piece in (*pieces, *([DONE] if done else [])):
        out.append(playing.fail(piece) if isinstance(piece, ApiError) else playing.feed(piece))
    out.append(playing.finish())
    return judged(b"".join(out), playing, fields.get("client", STANDARD))


def judged(data: bytes, playing: Translator, client: Client = STANDARD) -> Play:
    """Return the play after checking it; `data` are the events up to the terminal one."""
    data += playing.terminal()
    events = events_of(data)
    found = complaints(data, client)
    assert found == []
    response = events[-1]["response"]
    assert json.loads(playing.response.json()) == response
    return Play(data, events, response, playing)


def events_of(data: bytes) -> list[dict[str, Any]]:
    return [json.loads(frame.data) for frame in frames(data) if frame.data != "[DONE]"]


def complaints(data: bytes, client: Client = STANDARD) -> list[str]:
    """Return what the judges report, but for error codes that the SDK's closed list lacks."""
    found = judge_stream(data, unfinished_allowed=client.runs_cut_calls)
    return [complaint for complaint in found if not _is_about_a_code(complaint, data)]


def _is_about_a_code(complaint: str, data: bytes) -> bool:
    return "SDK: response.error.code" in complaint and any(
        f'"code":"{code}"'.encode() in data for code in _CODES_BEYOND_THE_SDK
    )


def short(item: Item) -> Said:
    """See `Play.said`."""
    match item["type"]:
        case "reasoning":
            said: Said = ("reasoning", "".join(part["text"] for part in item["content"]))
        case "message" if item["content"][0]["type"] == "refusal":
            said = ("refusal", item["content"][0]["refusal"])
        case "message":
            said = ("text", item["content"][0]["text"])
        case "function_call":
            said = ("call", item["name"], item["arguments"])
        case "custom_tool_call":
            said = ("custom", item["name"], item["input"])
        case kind:
            said = (kind, *(item[field] for field in ("action", "operation", "arguments") if field in item))
    return said if item["status"] == "completed" else (*said, item["status"])


def calls_to_run(translator: Translator) -> Sequence[CallToRun]:
    """Return the calls whose outcomes the stream needs."""
    return translator.needs.calls if isinstance(translator.needs, RunCalls) else ()


def wants_turn(translator: Translator) -> bool:
    """Tell whether the stream needs the model's next answer."""
    return isinstance(translator.needs, AnotherTurn)
