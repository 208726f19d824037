"""Checks of a running gateway from end to end: its streams must keep the rules of the API."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import httpx

from responses_gateway.commands import Unusable
from responses_gateway.commands.gateway_offer import client_of, error_of
from responses_gateway.conformance.checker import check_stream, frames

_TOOL = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather in a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
_QUESTION = "What is the weather in Paris? Use the tool."
_LIMIT = 2048
_NEEDS_KEY = (401, 403)
# The fields of an error of the API. Servers that have no such endpoint say so in other words.
_ERROR_FIELDS = {"message", "type", "param", "code"}


class Step(NamedTuple):
    """A check with its outcome. `unclear`: the model gave no occasion for it, or a part is not set up."""

    name: str
    outcome: Literal["passed", "failed", "unclear"]
    detail: str


class _Failed(Exception):
    """A step has failed; the text says how."""


class _Unclear(Exception):
    """A step proved nothing; the text says why."""


def run_smoke_test(
    url: str, *, model: str | None, api_key: str | None, timeout: float, tell: Callable[[str], None]
) -> list[Step]:
    """Run every step; only the first if the gateway cannot be reached. `timeout` is in seconds, `tell` gets the name of each
    step before it is run."""
    base = url.rstrip("/").removesuffix("/responses").removesuffix("/v1") + "/v1"
    headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
    with client_of(base, headers=headers, timeout=timeout) as client:
        test = _SmokeTest(client, base, model)
        steps = [_run("models", test.models)]
        if steps[0].outcome == "failed":
            return steps
        for name, action in (
            ("stream of text", test.text),
            ("tool call", test.call),
            ("result of a tool", test.result),
            ("whole answer", test.whole),
            ("answer cut at its limit", test.limit),
            ("rejection of an invalid request", test.refusal),
            ("counting tokens", test.count),
        ):
            tell(name)
            steps.append(_run(name, action))
    return steps


def _run(name: str, action: Callable[[], str]) -> Step:
    try:
        return Step(name, "passed", action())
    except (_Failed, Unusable) as failure:
        return Step(name, "failed", str(failure))
    except _Unclear as reason:
        return Step(name, "unclear", str(reason))
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        place = f" from {error.request.url}" if isinstance(error, httpx.RequestError) else ""
        return Step(name, "failed", f"no answer{place}: {str(error) or type(error).__name__}")
    except (ValueError, RecursionError, LookupError, TypeError, AttributeError) as error:
        return Step(name, "failed", f"the answer has an unexpected shape ({type(error).__name__}: {error})")


@dataclass
class _SmokeTest:
    """The steps; each returns what it saw. Raises `_Failed` and `_Unclear`."""

    _client: httpx.Client
    _base: str
    _model: str | None
    _items: list[dict[str, Any]] = field(default_factory=list)

    def models(self) -> str:
        self._look_for_gateway()
        answer = self._client.get(f"{self._base}/models")
        if answer.status_code in _NEEDS_KEY:
            raise _Failed(f"HTTP {answer.status_code}: give its key with --api-key, or in the variable OPENAI_API_KEY")
        listed = [model["id"] for model in answer.json()["data"]] if answer.is_success else []
        self._model = self._model or next(iter(listed), None)
        if self._model is None:
            raise _Failed(f"{self._base}/models lists no model (HTTP {answer.status_code}); name one with --model")
        return f"{len(listed)} listed; asking {self._model}"

    def _look_for_gateway(self) -> None:
        """Raise `_Failed` if there is a server of another kind. No model is asked, because the request is invalid."""
        answer = self._post("/responses", {"model": self._model or "any", "input": 5})
        if answer.status_code in _NEEDS_KEY or error_of(answer).keys() >= _ERROR_FIELDS:
            return
        raise _Failed(f"there is no gateway: {self._base}/responses answers HTTP {answer.status_code}")

    def text(self) -> str:
        response, events = self._stream(input="Say hello in five words.")
        if response["status"] != "completed" or not _texts(response):
            raise _Failed(_ending(response))
        kinds = ", ".join(item["type"] for item in response["output"])
        return f"{events} events, valid: {kinds}"

    def call(self) -> str:
        response, events = self._stream(input=_QUESTION, tools=[_TOOL])
        if response["status"] != "completed":
            raise _Failed(_ending(response))
        self._items = response["output"]
        calls = [item for item in self._items if item["type"] == "function_call"]
        if not calls:
            raise _Unclear(
                "the model made no call: see whether the backend parses calls (responses-gateway doctor BACKEND-URL)"
            )
        json.loads(calls[0]["arguments"])
        return f"{events} events: {calls[0]['name']}({calls[0]['arguments']})"

    def result(self) -> str:
        calls = [item for item in self._items if item["type"] == "function_call"]
        if not calls:
            raise _Unclear("there was no call to give a result for")
        results = [{"type": "function_call_output", "call_id": call["call_id"], "output": "18 °C, sunny"} for call in calls]
        question = {"type": "message", "role": "user", "content": _QUESTION}
        response, events = self._stream(input=[question, *self._items, *results], tools=[_TOOL])
        if response["status"] != "completed":
            raise _Failed(_ending(response))
        return f"{events} events: {', '.join(item['type'] for item in response['output'])}"

    def whole(self) -> str:
        answer = self._post("/responses", {"model": self._model, "input": "Say hello.", "max_output_tokens": _LIMIT})
        response = answer.json()
        if not answer.is_success or response["status"] != "completed":
            raise _Failed(f"HTTP {answer.status_code}: {answer.text[:200]}")
        usage = response["usage"]
        return f"{usage['input_tokens']} tokens in, {usage['output_tokens']} out" if usage else "no usage"

    def limit(self) -> str:
        response, _ = self._stream(input="Count from 1 to 300, with commas.", max_output_tokens=16)
        if response["status"] != "incomplete":
            raise _Failed(f"status {response['status']}: max_output_tokens has no effect")
        return f"incomplete: {response['incomplete_details']['reason']}"

    def refusal(self) -> str:
        answer = self._post("/responses", {"model": self._model, "input": 5})
        error = answer.json()["error"]
        if answer.status_code != 400 or set(error) != _ERROR_FIELDS:
            raise _Failed(f"HTTP {answer.status_code}: {answer.text[:200]}")
        return f"HTTP 400: {error['message']}"

    def count(self) -> str:
        answer = self._post("/responses/input_tokens", {"model": self._model, "input": "Say hello."})
        if not answer.is_success:
            raise _Unclear(answer.json()["error"]["message"])
        return f"{answer.json()['input_tokens']} tokens"

    def _post(self, path: str, body: dict[str, Any]) -> httpx.Response:
        return self._client.post(self._base + path, json=body)

    def _stream(self, **fields: Any) -> tuple[dict[str, Any], int]:
        """Return the final response of a valid stream, and its number of events. Raises `_Failed`."""
        answer = self._post("/responses", {"model": self._model, "stream": True, "max_output_tokens": _LIMIT, **fields})
        if not answer.is_success:
            raise _Failed(f"HTTP {answer.status_code}: {answer.text[:200]}")
        violations = check_stream(answer.content)
        if violations:
            raise _Failed(f"the stream has {len(violations)} violations, first {violations[0].rule}: {violations[0].detail}")
        events = [json.loads(frame.data) for frame in frames(answer.content) if frame.data != "[DONE]"]
        return events[-1]["response"], len(events)


def _texts(response: dict[str, Any]) -> str:
    parts = (part for item in response["output"] if item["type"] == "message" for part in item["content"])
    return "".join(part.get("text", "") for part in parts)


def _ending(response: dict[str, Any]) -> str:
    error = response.get("error") or response.get("incomplete_details") or "without text"
    return f"{response['status']}: {error['message'] if isinstance(error, dict) and 'message' in error else error}"
