"""Asking the gateway and the server behind it, and keeping what was said as evidence."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import httpx

from responses_gateway.conformance.checker import check_stream, frames
from tests.real_servers.programs import Server
from tests.real_servers.settings import Setting

Item = dict[str, Any]
# Characters of each body that are kept as evidence.
_KEPT = 6000
_MARKUP = ("<think>", "</think>", "<tool_call>", "</tool_call>", "<function=", "<|im_end|>")


class Wrong(Exception):
    """A check failed; the text says in a few words what was seen. `broken`: the stream itself violates the rules."""

    def __init__(self, text: str, *, broken: bool = False) -> None:
        super().__init__(text)
        self.broken = broken


@dataclass(frozen=True)
class Answer:
    """A response that ended with an HTTP status of 200."""

    response: dict[str, Any]

    @property
    def items(self) -> list[Item]:
        """The output."""
        output: list[Item] = self.response["output"]
        return output

    def of(self, kind: str) -> list[Item]:
        """Return the items of a type."""
        return [item for item in self.items if item["type"] == kind]

    @property
    def text(self) -> str:
        """The text of all messages."""
        return "".join(part.get("text", "") for item in self.of("message") for part in item["content"])

    @property
    def thought(self) -> str:
        """The text of all reasoning."""
        return "".join(part.get("text", "") for item in self.of("reasoning") for part in item.get("content") or ())

    @property
    def calls(self) -> list[tuple[str, Any]]:
        """Name and parsed arguments of the function calls. Raise `Wrong` if the arguments are no JSON."""
        return [(item["name"], _parsed(item["arguments"])) for item in self.of("function_call")]

    @property
    def usage(self) -> dict[str, Any]:
        """The token counts. Raise `Wrong` if there are none."""
        usage = self.response.get("usage")
        if not isinstance(usage, dict):
            raise Wrong("no usage")
        return usage

    @property
    def markup(self) -> str:
        """The markers of thoughts and calls that are visible in the messages."""
        return " ".join(marker for marker in _MARKUP if marker in self.text)

    def shape(self) -> str:
        """Return the types of the items, for a footnote."""
        return ", ".join(item["type"] for item in self.items) or "nothing"


@dataclass(frozen=True)
class Refusal:
    """An HTTP error, or the error of a response that failed."""

    status: int
    error: dict[str, Any]

    def __str__(self) -> str:
        return f"HTTP {self.status} {self.error.get('code')}: {str(self.error.get('message'))[:160]}"


@dataclass
class Conversation:
    """Requests to one gateway in front of one server; `said` has everything since it was last cleared."""

    setting: Setting
    server: Server
    url: str
    client: httpx.Client
    said: list[str] = field(default_factory=list)

    def ask(self, given: Any, *, stream: bool = True, **fields: Any) -> Answer:
        """Return the response to an input. Raise `Wrong` if there is none, or if its stream breaks a rule."""
        answer = self.try_asking(given, stream=stream, **fields)
        if isinstance(answer, Refusal):
            raise Wrong(str(answer))
        return answer

    def try_asking(self, given: Any, *, stream: bool = True, **fields: Any) -> Answer | Refusal:
        """Return the response to an input, or the refusal."""
        reply = self.post("/v1/responses", self.body(given, stream=stream, **fields))
        if reply.status_code != 200:
            return refusal_of(reply)
        response = _final(reply.content) if stream else reply.json()
        if response.get("status") == "failed":
            return Refusal(200, response.get("error") or {})
        return Answer(response)

    def body(self, given: Any, **fields: Any) -> dict[str, Any]:
        """Return the request for an input: a text names a script of the model, other values are the input itself."""
        asked = scenario(given) if isinstance(given, str) else given
        return {"model": self.server.model, "input": asked, "temperature": 0, **fields}

    def post(self, path: str, body: dict[str, Any]) -> httpx.Response:
        """Send a request to the gateway."""
        return self._send(f"{self.url}{path}", body)

    def ask_server(self, given: str, **fields: Any) -> dict[str, Any]:
        """Return the server's own answer to the same question. Raise `Wrong` if it refuses."""
        messages = [{"role": "user", "content": scenario(given)}]
        body = {"model": self.server.model, "messages": messages, "temperature": 0, "max_tokens": 2000, **fields}
        reply = self._send(f"{self.server.url}/v1/chat/completions", body)
        if reply.status_code != 200:
            raise Wrong(f"the server itself answers HTTP {reply.status_code}")
        answer: dict[str, Any] = reply.json()
        return answer

    def metric(self, *names: str) -> float:
        """Return the sum of all samples of these metrics of the server."""
        assert self.server.metrics is not None
        return sum_of_samples(self.client.get(self.server.metrics).text, *names)

    def gateway_metric(self, text: str) -> float:
        """Return the sum of the gateway's samples whose line contains a text."""
        lines = self.client.get(f"{self.url}/metrics").text.splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if text in line and not line.startswith("#"))

    def _send(self, url: str, body: dict[str, Any]) -> httpx.Response:
        sent = json.dumps(body, ensure_ascii=False)
        self.said.append(f"POST {url}\n{sent[:_KEPT]}")
        try:
            reply = self.client.post(url, content=sent.encode(), headers={"Content-Type": "application/json"})
        except httpx.HTTPError as error:
            raise Wrong(f"no answer: {type(error).__name__}") from None
        self.said.append(f"HTTP {reply.status_code}\n{reply.text[-_KEPT:]}")
        return reply


def scenario(name: str) -> str:
    """Return the request for a script of the model."""
    return f"Please play scenario: {name}"


def sum_of_samples(text: str, *names: str) -> float:
    """Return the sum of all samples with one of these names, in Prometheus' text format."""
    lines = [line for line in text.splitlines() if line.partition("{")[0].partition(" ")[0] in names]
    return sum(float(line.rpartition(" ")[2]) for line in lines)


def _final(stream: bytes) -> dict[str, Any]:
    violations = check_stream(stream)
    if violations:
        raise Wrong(f"the stream violates {violations[0].rule}: {violations[0].detail[:120]}", broken=True)
    events = [json.loads(frame.data) for frame in frames(stream) if frame.data != "[DONE]"]
    response: dict[str, Any] = events[-1]["response"]
    return response


def refusal_of(reply: httpx.Response) -> Refusal:
    """Read an HTTP error of the gateway."""
    try:
        error = reply.json()["error"]
    except (ValueError, KeyError, TypeError):
        error = reply.text[:200]
    return Refusal(reply.status_code, error if isinstance(error, dict) else {"message": str(error)})


def _parsed(arguments: str) -> Any:
    try:
        return json.loads(arguments)
    except ValueError:
        raise Wrong(f"arguments that are no JSON: {arguments[:80]!r}") from None
