"""A crowd of clients: many streams at once, each judged when it ends.

Every client asks, reads its stream to the end and asks again, until its time is up. While a stream runs, its bytes are only
kept and their times noted (this program shares the machine with what it loads); what they say is looked at afterwards:
the final text of each against the text that was due, and of a part of them every event against the laws of a stream.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from responses_gateway.conformance.checker import check_stream
from responses_gateway.simulator.chat_request import ChatRequest
from responses_gateway.simulator.scenarios import long
from responses_gateway.simulator.script import Say

#: `refused`: an HTTP error. `failed`: a stream that ends with `response.failed` or `response.incomplete` and says so.
#: `unreachable`: no connection. The other three must never be: a stream without an end, with a wrong text, or against the laws.
Verdict = Literal["completed", "failed", "refused", "unreachable", "cut", "wrong", "unlawful"]
NEVER: tuple[Verdict, ...] = ("cut", "wrong", "unlawful")
#: Honest ends without an answer. Of a stream that had shown nothing, another backend could have given it.
_IN_VAIN: tuple[Verdict, ...] = ("failed", "refused", "unreachable")

_END = b"\r\n0\r\n\r\n"
_TERMINALS = ("response.completed", "response.incomplete", "response.failed")
#: Seconds that a client waits before it tries again what was refused.
_BACKOFF = 0.5
#: Lengths of answers, as parts of the usual one: what is as long as everything else moves in step with it.
_LENGTHS = (0.6, 0.8, 1.0, 1.2, 1.4)


@dataclass(frozen=True)
class Ask:
    """What the clients ask for: answers of about `tokens` tokens. A part `judged` of the streams is held against the laws of
    a stream, all against their text."""

    host: str
    port: int
    tokens: int
    judged: float = 0.1

    def length(self, number: int) -> int:
        """Tokens of the answer for the request of this number."""
        return max(2, round(self.tokens * _LENGTHS[number % len(_LENGTHS)]))

    def request(self, number: int) -> bytes:
        """The HTTP request, whole."""
        question = f"scenario: long tokens: {self.length(number)}"
        body = json.dumps({"model": "simulator", "input": question, "stream": True, "store": False}).encode()
        head = (
            f"POST /v1/responses HTTP/1.1\r\nHost: {self.host}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
        )
        return head.encode() + b"\r\n\r\n" + body

    def is_judged(self, number: int) -> bool:
        """Whether the request of this number is one of those whose every event is looked at."""
        return int((number + 1) * self.judged) > int(number * self.judged)


@dataclass
class Answer:
    """One that is over. Times are seconds of the event loop's clock; `gap` is the longest silence after the first token."""

    verdict: Verdict
    asked: float
    first: float | None
    last: float
    tokens: int = 0
    gap: float = 0.0
    detail: str = ""

    @property
    def needless(self) -> bool:
        """It came to nothing though the client had seen no token of it: another backend could have answered."""
        return self.first is None and self.verdict in _IN_VAIN

    def pace(self, due: float) -> float:
        """Its tokens per second as a part of those due; 1.0 is real time."""
        taken = self.last - (self.first or self.last)
        return min(1.0, self.tokens / due / taken) if taken > 0 else 1.0  # the token that ends an answer takes its turn, too


@dataclass
class Crowd:
    """What all clients saw."""

    answers: list[Answer] = field(default_factory=list)
    #: Tokens that each client got.
    tokens: list[int] = field(default_factory=list)
    open: int = 0
    # The loop's time from which nothing more is asked.
    end: float = 0.0

    def verdicts(self, since: float = 0.0) -> Counter[str]:
        """How the answers ended that ended since then."""
        return Counter(answer.verdict for answer in self.answers if answer.last >= since)


class _Connection(asyncio.Protocol):
    """A connection for one request after the other; `received` are the bytes of the answer that runs."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.received: list[bytes] = []
        self.first: float | None = None
        self.last = self.gap = 0.0
        self.lost = False
        self.over: asyncio.Future[None] = self._loop.create_future()
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def ask(self, request: bytes) -> asyncio.Future[None]:
        """Send a request; the future is done when its answer is over."""
        self.received, self.first, self.gap = [], None, 0.0
        self.over = self._loop.create_future()
        if self.lost:
            self.over.set_result(None)
        else:
            self._transport.write(request)
        return self.over

    def data_received(self, data: bytes) -> None:
        now = self._loop.time()
        if self.first is not None:
            self.gap = max(self.gap, now - self.last)
        elif b"output_text.delta" in data:
            self.first = now
        self.last = now
        self.received.append(data)
        tail = data if len(data) >= len(_END) else b"".join(self.received[-len(_END) :])
        if (tail.endswith(_END) or self._is_whole_error()) and not self.over.done():
            self.over.set_result(None)

    def connection_lost(self, _exc: Exception | None) -> None:
        self.lost = True
        self.last = self._loop.time()
        if not self.over.done():
            self.over.set_result(None)

    def close(self) -> None:
        self._transport.close()

    def _is_whole_error(self) -> bool:
        """Errors are not in chunks: they are over when as many bytes are there as were announced."""
        if not self.received[0].startswith(b"HTTP/1.1 ") or self.received[0].startswith(b"HTTP/1.1 200"):
            return False
        head, found, body = b"".join(self.received).partition(b"\r\n\r\n")
        length = next((int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), 0)
        return bool(found) and len(body) >= length


async def gather(ask: Ask, clients: int, seconds: float, ramp: float, crowd: Crowd) -> None:
    """Let so many clients ask for so long; they come within `ramp` seconds. Returns when the last answer is over."""
    crowd.end = asyncio.get_running_loop().time() + seconds
    crowd.tokens = [0] * clients
    await asyncio.gather(*(_client(ask, number, clients, ramp * number / clients, crowd) for number in range(clients)))


async def _client(ask: Ask, number: int, clients: int, delay: float, crowd: Crowd) -> None:
    loop = asyncio.get_running_loop()
    await asyncio.sleep(delay)
    connection: _Connection | None = None
    turn = 0
    while loop.time() < crowd.end:
        asked = loop.time()
        if connection is None or connection.lost:
            try:
                _, connection = await loop.create_connection(_Connection, ask.host, ask.port)
            except OSError as error:
                crowd.answers.append(Answer("unreachable", asked, None, loop.time(), detail=str(error)))
                await asyncio.sleep(_BACKOFF)
                continue
        request = number + turn * clients
        turn += 1
        crowd.open += 1
        await connection.ask(ask.request(request))
        crowd.open -= 1
        answer = judge(b"".join(connection.received), ask.length(request), ask.is_judged(request))
        answer.asked, answer.first, answer.last, answer.gap = asked, connection.first, connection.last, connection.gap
        crowd.answers.append(answer)
        crowd.tokens[number] += answer.tokens
        if answer.verdict in ("refused", "cut"):
            connection.close()
            connection = None
            await asyncio.sleep(_BACKOFF)
    if connection is not None:
        connection.close()


def due_text(tokens: int) -> str:
    """What the simulator says when it is asked for a long answer."""
    (step,) = long(ChatRequest({"messages": []}), tokens).steps
    assert isinstance(step, Say)
    return step.text


def judge(received: bytes, tokens: int, every_event: bool) -> Answer:
    """The verdict on a whole HTTP answer that should bring the long text of so many tokens. Its times are left at zero."""
    head, _, rest = received.partition(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200"):
        return _answer("refused" if head.startswith(b"HTTP/1.1 ") else "cut", detail=received[-300:].decode(errors="replace"))
    body = _body(rest)
    if body is None:
        return _answer("cut", detail=received[-300:].decode(errors="replace"))
    kind, response = _terminal(body)
    if response is None:
        return _answer("cut", detail=body[-300:].decode(errors="replace"))
    text = "".join(part["text"] for item in response["output"] for part in item.get("content", []))
    due = due_text(tokens)
    said = len(text.split())
    if not due.startswith(text) or (kind == "response.completed" and text != due):
        return _answer("wrong", said, f"…{text[-100:]!r} in the place of …{due[-100:]!r}")
    if every_event and (broken := check_stream(body)):
        return _answer("unlawful", said, str(broken[0]))
    if kind != "response.completed":
        return _answer("failed", said, str(response.get("error") or response.get("incomplete_details")))
    return _answer("completed", tokens)


def _answer(verdict: Verdict, tokens: int = 0, detail: str = "") -> Answer:
    return Answer(verdict, 0.0, None, 0.0, tokens, detail=detail)


def _body(chunks: bytes) -> bytes | None:
    """The body out of its HTTP chunks; None if the last is missing."""
    pieces: list[bytes] = []
    at = 0
    while True:
        line_end = chunks.find(b"\r\n", at)
        if line_end < 0:
            return None
        size = int(chunks[at:line_end], 16)
        if size == 0:
            return b"".join(pieces)
        pieces.append(chunks[line_end + 2 : line_end + 2 + size])
        at = line_end + 2 + size + 2


def _terminal(body: bytes) -> tuple[str, dict[str, Any] | None]:
    """Type and response of the last event, if it ends the stream as it should."""
    frames = body.rsplit(b"\n\n", 3)  # the terminal event, [DONE], and nothing
    if len(frames) < 3 or frames[-2:] != [b"data: [DONE]", b""]:
        return "", None
    event = json.loads(frames[-3].partition(b"data: ")[2])
    if event.get("type") not in _TERMINALS:
        return "", None
    return event["type"], event["response"]
