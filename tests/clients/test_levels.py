"""The levels of the rules, held against three clients: breaking a rule of the level `breaks` disturbs one of them."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from responses_gateway.conformance.checker import RULES, check_stream, frames
from tests.clients.client_programs import missing, run_text
from tests.conformance.broken_streams import BROKEN, OPENAI
from tests.judges.streams import encode, good

PROGRAM = Path(__file__).with_name("levels.mjs")
pytestmark = pytest.mark.skipif(missing(".mjs") is not None, reason=str(missing(".mjs")))

# Rules whose violations disturb others.
ELSEWHERE = {
    "item_overlap": "Codex shows a message twice",
    "snapshot_output": "openai-node 6 raises",
    "call_name": "@ai-sdk/open-responses calls a tool without a name",
}
ENDINGS = {"response.completed": "completed", "response.incomplete": "incomplete", "response.failed": "failed"}
# Texts, calls (id and input, as JSON), and how it ended.
Heard = tuple[list[str], list[tuple[str, str]], str | None]


@cache
def streams() -> dict[str, bytes]:
    """Return the broken streams by the rule and a number, and OpenAI's habits. Those that were steered came over a WebSocket,
    which these clients do not open."""
    made = {f"{rule} {number}": encode(stream()) for number, (rule, stream) in enumerate(BROKEN)}
    made = {name: body for name, body in made.items() if b"response.steer." not in body}
    made["event_name"] = b"\n".join(line for line in encode(good()).split(b"\n") if not line.startswith(b"event:"))
    made["done_marker"] = encode(good(), done=False)
    return made | {f"OpenAI: {habit}": encode(stream(), done=False) for habit, stream in OPENAI.items()}


@pytest.fixture(scope="module")
def disturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """Return the clients that each stream disturbs: they raise, or their user gets something else than the model said."""
    file = tmp_path_factory.mktemp("levels") / "streams.json"
    file.write_text(json.dumps({name: body.decode() for name, body in streams().items()}))
    got = run_text(PROGRAM.read_text(), ".mjs", str(file)).results
    with answering() as client:
        for name in streams():
            got[name]["openai-python"] = read_by_python(client, name)
    return {
        name: [client for client, result in got[name].items() if heard(result) != said(body, client)]
        for name, body in streams().items()
    }


@contextmanager
def answering() -> Iterator[openai.OpenAI]:
    """Yield a client that gets the stream named in its request's header `x-stream`."""

    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(
            200, content=streams()[request.headers["x-stream"]], headers={"content-type": "text/event-stream"}
        )

    with (
        httpx.Client(transport=httpx.MockTransport(answer)) as http,
        openai.OpenAI(base_url="http://gateway/v1", api_key="sk-test", http_client=http, max_retries=0) as client,
        warnings.catch_warnings(action="ignore"),  # about values that are not what the models expect
    ):
        yield client


def read_by_python(client: openai.OpenAI, name: str) -> dict[str, Any]:
    final = {}
    try:
        with client.responses.stream(model="m", input="hi", extra_headers={"x-stream": name}) as stream:
            for event in stream:
                if event.type in ENDINGS:
                    final = event.response.to_dict()
    except Exception as error:
        return {"error": repr(error)}
    return {"output": final.get("output", []), "status": final.get("status")}


def heard(result: dict[str, Any]) -> Heard:
    """Return what a client's user got."""
    if "error" in result:
        return [], [], result["error"]
    if "output" in result:
        return *contents(result["output"]), result["status"]
    calls = [(call_id, json.dumps(value)) for call_id, value in result["calls"]]
    return [text for text in result["texts"] if text], calls, result["reason"]


def said(body: bytes, client: str) -> Heard:
    """Return what this client's user should get: what the items say that were done, and how the response ended."""
    events = [json.loads(frame.data) for frame in frames(body) if frame.data != "[DONE]"]
    done = {event["item"]["id"]: event["item"] for event in events if event["type"] == "response.output_item.done"}
    ending = next((event for event in events if event["type"] in ENDINGS), None)
    if ending is None:
        return [], [], "no end, which is told"
    texts, calls = contents(list(done.values()))
    status = ENDINGS[ending["type"]]
    if client != "AI SDK":
        # The status is the response's own.
        return texts, calls, ending["response"].get("status")
    if status == "failed":
        return [], [], (ending["response"].get("error") or {}).get("message")
    refused = any(part["type"] == "refusal" for item in done.values() for part in item.get("content") or ())
    reasons = {"completed": "tool-calls" if calls else "content-filter" if refused else "stop", "incomplete": "length"}
    return texts, calls, reasons[status]


def contents(output: Sequence[Any]) -> tuple[list[str], list[tuple[str, str]]]:
    """Return texts and calls of a response's items."""
    texts: list[str] = []
    calls: list[tuple[str, str]] = []
    for item in output:
        if item["type"] == "message":
            texts += filter(None, (part.get("text") or part.get("refusal") for part in item["content"]))
        elif item["type"] == "function_call":
            calls.append((item["call_id"], json.dumps(json_or_text(item["arguments"]))))
        elif item["type"] == "custom_tool_call":
            calls.append((item["call_id"], json.dumps(item["input"])))
    return texts, calls


def json_or_text(text: str) -> Any:
    try:
        return json.loads(text or "{}")
    except ValueError:
        return text


def test_what_disturbs_a_client_is_of_the_level_breaks(disturbed: dict[str, list[str]]) -> None:
    harmless = [name for name, body in streams().items() if "breaks" not in {found.level for found in check_stream(body)}]
    assert {name: disturbed[name] for name in harmless if disturbed[name]} == {}


def test_a_rule_of_the_level_breaks_disturbs_a_client(disturbed: dict[str, list[str]]) -> None:
    seen = {found.rule for name, clients in disturbed.items() if clients for found in check_stream(streams()[name])}
    assert {rule for rule, demand in RULES.items() if demand.level == "breaks"} - seen == set(ELSEWHERE)
