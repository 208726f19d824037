"""The streams that the backend sends, and what a client must get: recorded ones of a real vLLM, and rare ones written here."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

_RECORDED = Path(__file__).with_name("streams")
DONE = b"data: [DONE]\n\n"
USAGE = {
    "prompt_tokens": 20,
    "completion_tokens": 12,
    "total_tokens": 32,
    "prompt_tokens_details": {"cached_tokens": 4},
    "completion_tokens_details": {"reasoning_tokens": 3},
}
PATCH = '*** Begin Patch\n*** Add File: hello.txt\n+Grüße "an" alle\n*** End Patch\n'
_PARIS, _ROME = '{"city": "Paris"}', '{"city": "Rome"}'

# Names of the functions that a bridge has offered to the model -> what the model sends.
Offered = Mapping[str, Mapping[str, Any]]
# What ends a stream: the statuses that a response may have then, or an answer with an HTTP error instead of a stream.
Ending = Literal["completed", "incomplete", "failed"]


@dataclass(frozen=True)
class Truth:
    """What a client must get: items as `("text", "…")`, `("call", name, arguments)`; None where any will do. `cut`: the last
    one may be only the beginning of what is here. `endings`: the statuses that a response may end with."""

    items: Sequence[tuple[Any, ...]] | None
    endings: Sequence[Ending] = ("completed",)
    cut: bool = False


@dataclass(frozen=True)
class Scenario:
    """One stream: its bytes, given what the bridge offered to the model, the tools of the request, and the truth.

    `status`: that of the backend's answer. `broken`: the connection is reset behind the last byte. `pieces`: how many bytes
    are sent at a time, 0 for all of them. `delay`: seconds before the first."""

    name: str
    title: str
    body: Callable[[Offered], bytes]
    truth: Truth
    tools: Sequence[Mapping[str, Any]] = ()
    status: int = 200
    broken: bool = False
    pieces: int = 0
    delay: float = 0.0
    recorded: bool = False


# ---- chunks, as vLLM writes them ------------------------------------------------------------------------------------


def _event(payload: Mapping[str, Any]) -> bytes:
    return b"data: " + json.dumps(payload, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n"


def _chunk(delta: Mapping[str, Any], finish: str | None = None) -> bytes:
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1795185900, "model": "m"}
    return _event({**head, "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}]})


def _usage() -> bytes:
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1795185900, "model": "m"}
    return _event({**head, "choices": [], "usage": USAGE})


def _text(*pieces: str) -> bytes:
    return b"".join(_chunk({"content": piece}) for piece in pieces)


def _thought(*pieces: str, field: str = "reasoning") -> bytes:
    return b"".join(_chunk({field: piece}) for piece in pieces)


def _call(index: int, name: str, arguments: str = "") -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return {"id": f"chatcmpl-tool-{index}", "type": "function", "index": index, "function": function}


def _more(index: int, arguments: str) -> dict[str, Any]:
    return {"index": index, "function": {"arguments": arguments}}


def _calls(*entries: Mapping[str, Any]) -> bytes:
    """Return a chunk with these entries."""
    return _chunk({"tool_calls": list(entries)})


def _whole_call(index: int, name: str, arguments: str) -> bytes:
    middle = len(arguments) // 2
    return _calls(_call(index, name)) + _calls(_more(index, arguments[:middle])) + _calls(_more(index, arguments[middle:]))


def _stream(*parts: bytes, finish: str = "stop") -> Callable[[Offered], bytes]:
    body = b"".join([_chunk({"role": "assistant", "content": ""}), *parts, _chunk({}, finish), _usage(), DONE])
    return lambda _offered: body


def _raw(*parts: bytes) -> Callable[[Offered], bytes]:
    body = b"".join([_chunk({"role": "assistant", "content": ""}), *parts])
    return lambda _offered: body


# ---- tools ----------------------------------------------------------------------------------------------------------

_CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"], "additionalProperties": False}
_WEATHER = {"type": "function", "name": "get_weather", "description": "The weather.", "parameters": _CITY, "strict": True}
_APPLY_PATCH = {
    "type": "custom",
    "name": "apply_patch",
    "description": "Edit files.",
    "format": {
        "type": "grammar",
        "syntax": "lark",
        "definition": 'start: "*** Begin Patch" LF line+ "*** End Patch" LF?\nline: /(.*)/ LF\n%import common.LF\n',
    },
}
_CRM = {
    "type": "namespace",
    "name": "crm",
    "description": "Customers.",
    "tools": [{"type": "function", "name": "find", "description": "Find one.", "parameters": _CITY, "strict": False}],
}


def _patch(offered: Offered) -> bytes:
    """Call the function that the bridge made of the custom tool: its one string is the input."""
    name = next((name for name in offered if "apply_patch" in name), "apply_patch")
    properties = offered.get(name, {}).get("properties", {})
    field = next((key for key, schema in properties.items() if schema.get("type") == "string"), "input")
    parts = _whole_call(0, name, json.dumps({field: PATCH}, ensure_ascii=False))
    return _stream(parts, finish="tool_calls")(offered)


def _find(offered: Offered) -> bytes:
    name = next((name for name in offered if "find" in name), "find")
    return _stream(_whole_call(0, name, _PARIS), finish="tool_calls")(offered)


def _error(status: int, code: Any, message: str, kind: str) -> bytes:
    return json.dumps({"error": {"message": message, "type": kind, "param": None, "code": code or status}}).encode()


# ---- the list -------------------------------------------------------------------------------------------------------


def recorded() -> list[Scenario]:
    """Return the recorded streams. The model plays scripts by heart, so the truth is known."""
    titles = {
        "hello.0.nothink": "text",
        "think.0": "reasoning, text",
        "json.0.nothink": "JSON as text",
        "cjk.0": "reasoning and text in Chinese",
        "agent.1": "reasoning, text, call",
        "think_text_tool.0": "reasoning, text, call (another)",
        "weather.0.nothink": "a call",
        "parallel.0.nothink": "text, two calls",
        "twins.0": "four calls",
        "empty.0": "an empty answer",
        "think.0.cut-reasoning": "cut in the reasoning",
        "think.0.cut-text": "cut in the text",
        "cjk.0.cut-inside_character": "cut inside a character",
    }
    truths = json.loads((_RECORDED / "truth.json").read_text(encoding="utf-8"))
    return [_recording(name, title, truths[name]) for name, title in titles.items()]


def _recording(name: str, title: str, entry: dict[str, Any]) -> Scenario:
    body = (_RECORDED / f"{name}.sse").read_bytes()
    items = [
        ("call", item["name"], item["args"]) if item["kind"] == "call" else (item["kind"], item["text"])
        for item in entry["items"]
    ]
    cut = entry["finish_reason"] == "length"
    truth = Truth(items, ("incomplete",) if cut else ("completed",), cut)
    tools = [{"type": "function", "strict": False, **tool} for tool in entry["tools"]]
    return Scenario(name, title, lambda _offered: body, truth, tools, recorded=True)


def written() -> list[Scenario]:
    """Return the streams that are rare, or broken."""
    hello = [("text", "Hello there.")]
    both = [("call", "get_weather", json.loads(_PARIS)), ("call", "get_weather", json.loads(_ROME))]
    thought = [("reasoning", "A greeting."), ("text", "Hello there.")]
    cut_short = Truth([("text", "Hello there.")], ("failed", "incomplete"), cut=True)
    weather = [_WEATHER]
    greeting = _text("Hello", " there.")
    return [
        Scenario("bytes", "each byte sent by itself", _stream(_text("Grüße, 世界 🌍")), Truth([("text", "Grüße, 世界 🌍")]),
                 pieces=1),
        Scenario("reasoning_content", "reasoning in `reasoning_content`",
                 _stream(_thought("A gree", "ting.", field="reasoning_content"), greeting), Truth(thought)),
        Scenario("again", "reasoning, text, reasoning, text, call",
                 _stream(_thought("One", "."), _text("Two", "."), _thought("Three", "."), _text("Four", "."),
                         _whole_call(0, "get_weather", _PARIS), finish="tool_calls"),
                 Truth([("reasoning", "One."), ("text", "Two."), ("reasoning", "Three."), ("text", "Four."), both[0]]),
                 weather),
        Scenario("interleaved", "two calls, interleaved",
                 _stream(_calls(_call(0, "get_weather")), _calls(_call(1, "get_weather")), _calls(_more(0, _PARIS[:9])),
                         _calls(_more(1, _ROME[:9])), _calls(_more(0, _PARIS[9:])), _calls(_more(1, _ROME[9:])),
                         finish="tool_calls"),
                 Truth(both), weather),
        Scenario("one_chunk", "two calls in one chunk",
                 _stream(_calls(_call(0, "get_weather", _PARIS), _call(1, "get_weather", _ROME)), finish="tool_calls"),
                 Truth(both), weather),
        Scenario("custom", "a custom tool with a grammar (Codex's `apply_patch`)", _patch,
                 Truth([("custom", "apply_patch", PATCH)]), [_APPLY_PATCH]),
        Scenario("namespace", "a tool in a namespace (Codex's MCP servers)", _find,
                 Truth([("call", "crm.find", json.loads(_PARIS))]), [_CRM]),
        Scenario("refusal", "a refusal", _stream(_chunk({"refusal": "I cannot "}), _chunk({"refusal": "help."})),
                 Truth([("refusal", "I cannot help.")])),
        Scenario("filter", "`finish_reason: content_filter`", _stream(greeting, finish="content_filter"),
                 Truth(hello, ("incomplete",), cut=True)),
        Scenario("no_finish", "the stream ends without `finish_reason`", _raw(greeting), cut_short),
        Scenario("reset", "the connection breaks", _raw(greeting), cut_short, broken=True),
        Scenario("reset_in_call", "the connection breaks in a call",
                 _raw(_calls(_call(0, "get_weather")), _calls(_more(0, _PARIS[:9]))),
                 Truth(None, ("failed", "incomplete")), weather, broken=True),
        Scenario("error_chunk", "an error chunk in the stream",
                 _raw(greeting, b"data: " + _error(500, None, "The engine died.", "InternalServerError") + b"\n\n", DONE),
                 cut_short),
        Scenario("malformed", "a chunk that is not JSON",
                 _raw(greeting, b'data: {"choices": [{"ind\n\n', _chunk({}, "stop"), DONE),
                 Truth(hello, ("completed", "failed", "incomplete"), cut=True)),
        Scenario("bad_request", "HTTP 400 from the backend",
                 lambda _offered: _error(400, None, "This model's maximum context length is 64 tokens.", "BadRequestError"),
                 Truth(None, ("failed",)), status=400),
        Scenario("busy", "HTTP 429 from the backend", lambda _offered: _error(429, None, "Too many.", "RateLimitError"),
                 Truth(None, ("failed",)), status=429),
        Scenario("slow", "the first token comes after 3 s", _stream(greeting), Truth(hello), delay=3.0),
    ]  # fmt: skip


def scenarios() -> list[Scenario]:
    """Return all of them, in the order of the table."""
    return recorded() + written()
