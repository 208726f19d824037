"""A fuzzer of faults, over real sockets: exchanges begin, go on and break in any order and at any byte.

A *case* is one exchange. `FAULT_CASES=10000 pytest tests/chaos/test_fault_machine.py` runs more of them, and
`--hypothesis-seed=N` makes the same choices again; a failure prints the steps that lead to it."""

from __future__ import annotations

import asyncio
import json
import os
import re
from contextlib import AsyncExitStack

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    MultipleResults,
    RuleBasedStateMachine,
    consumes,
    initialize,
    multiple,
    rule,
    run_state_machine_as_test,
)

from tests.server.running_gateway import RawClient, Served, ask, assert_error, body_of, final_of, gateway, until
from tests.server.scripted_backend import CLOSED_HEAD, HEAD, SECRETS, Backend, Connection, backend, call, chat_stream, chunk

CASES = int(os.environ.get("FAULT_CASES", "500"))
_CASES_OF_A_RUN = 5
_MARK = re.compile(rb"exchange (\d+)\.")
# Chunks as servers send them, in no sensible order, and things that no server should send.
_PAYLOADS: tuple[bytes, ...] = (
    *chat_stream()[:-1],
    chunk({"content": " \n"}),
    chunk({"content": "<think>"}),
    chunk({"content": "half \ud83d of a pair"}),
    chunk(call("{", id="call-2", type="function")),
    chunk({"tool_calls": [{"index": 1, "id": "other", "function": {"name": "get_weather", "arguments": '{"a":1}'}}]}),
    chunk({"tool_calls": [{"index": 7, "id": 5, "function": {"arguments": "}"}}]}),
    chunk({"refusal": "No."}),
    chunk({}, "length"),
    chunk({}, "content_filter"),
    chunk({"content": "x"}, "stop", usage={"prompt_tokens": "many"}),
    b": a comment\n\n",
    b"data: {not json}\n\n",
    b"data: []\n\n",
    b"event: ping\ndata: {}\n\n",
    b'data: {"error": {"message": "EngineCore encountered an issue.", "code": 500}}\n\n',
    b"data: [DONE]\n\n",
)
_GARBAGE = st.sampled_from([b"\x00\xff", b"\r\n\r\n", b"5\r\nabc", b"HTTP/1.1 200 OK\r\n\r\n", b"zz\r\n", b"0\r\n\r\n"])
_BAD_BODIES = st.sampled_from([b"", b"{", b"[]", b'{"model": 5}', b'{"model": "m", "input": 5}', b"\xff" * 50, b"[" * 9000])
_REFUSALS = st.sampled_from([400, 401, 404, 413, 422, 429, 500, 503])


class Exchange:
    """One request: its client, and the connection on which the backend answers it."""

    def __init__(self, client: RawClient, *, streamed: bool) -> None:
        self.client = client
        self.streamed = streamed
        self.connection: Connection | None = None
        self.begun = False  # the backend has sent a head
        self.chunked = False  # with this framing
        self.left = False
        self.reading: asyncio.Task[bytes] | None = None

    @property
    def open(self) -> bool:
        """The backend may send more."""
        return self.connection is not None and not self.connection.lost.done()


class Faults(RuleBasedStateMachine):
    """A gateway, its backend, and the exchanges between them."""

    exchanges = Bundle("exchanges")

    def __init__(self) -> None:
        super().__init__()
        self._runner = asyncio.Runner()
        self._stack = AsyncExitStack()
        self._all: list[Exchange] = []
        self._plays = 0
        self._behind: Backend
        self._served: Served

    @initialize(
        target=exchanges,
        grace=st.sampled_from([0, 5]),
        store=st.sampled_from(["none", "memory"]),
        clients=st.lists(st.tuples(st.booleans(), st.booleans()), min_size=3, max_size=6),
    )
    def start(self, grace: float, store: str, clients: list[tuple[bool, bool]]) -> MultipleResults[Exchange]:
        """Start both servers, and some exchanges. `grace`: how long the client waits for the backend's head."""
        self._runner.run(self._start(grace, store))
        return multiple(*(self.begin_one(streamed, reads) for streamed, reads in clients))

    async def _start(self, grace: float, store: str) -> None:
        self._behind = await self._stack.enter_async_context(backend(self._play))
        serving = gateway(self._behind.url, header_grace=grace, store=store, adapt=False, invariant_sampling=1.0)
        self._served = await self._stack.enter_async_context(serving)

    async def _play(self, connection: Connection) -> None:
        """Give a request of the gateway, the first one or a repetition, to the exchange that it belongs to."""
        mark = _MARK.search(self._behind.requests[self._plays])
        self._plays += 1
        if mark is not None:
            exchange = self._all[int(mark[1])]
            exchange.connection = connection
            exchange.begun = False

    # ---- steps -------------------------------------------------------------------------------------------------------

    @rule(target=exchanges, streamed=st.booleans(), reads=st.booleans())
    def begin(self, streamed: bool, reads: bool) -> Exchange:
        """Send a request, and wait until the backend has it. Some clients read only at the end."""
        return self.begin_one(streamed, reads)

    def begin_one(self, streamed: bool, reads: bool) -> Exchange:
        """Return a new exchange."""
        return self._runner.run(self._begin(streamed, reads))

    async def _begin(self, streamed: bool, reads: bool) -> Exchange:
        exchange = Exchange(await RawClient.connect(self._served), streamed=streamed)
        self._all.append(exchange)
        tool = {"type": "function", "name": "get_weather", "parameters": {"type": "object", "properties": {}}}
        body = {"input": f"exchange {len(self._all) - 1}.", "tools": [tool], "stream": streamed}
        await exchange.client.post(body, version="1.0")
        await until(lambda: exchange.connection is not None, "the backend has the request")
        if reads:
            exchange.reading = asyncio.create_task(exchange.client.read_all())
        return exchange

    @rule(
        exchange=exchanges,
        payloads=st.lists(st.sampled_from(_PAYLOADS), max_size=6),
        cuts=st.lists(st.floats(0, 1), max_size=4),
        closed=st.booleans(),
    )
    def say(self, exchange: Exchange, payloads: list[bytes], cuts: list[float], closed: bool) -> None:
        """Send some chunks, cut anywhere; the first ones behind a head, whose body has chunks or ends with the connection."""
        if not exchange.begun:
            exchange.begun = True
            exchange.chunked = not closed
            self._send(exchange, CLOSED_HEAD if closed else HEAD)
        whole = b"".join(payloads)
        places = sorted(int(cut * len(whole)) for cut in cuts)
        for start, end in zip([0, *places], [*places, len(whole)], strict=True):
            if start < end:
                piece = whole[start:end]
                self._send(exchange, b"%x\r\n%b\r\n" % (len(piece), piece) if exchange.chunked else piece)

    @rule(exchange=exchanges)
    def answer_well(self, exchange: Exchange) -> None:
        """Send a whole answer, or what is missing of one."""
        self.say(exchange, chat_stream(), [], closed=False)
        self.stop(exchange, "end" if exchange.chunked else "close")

    @rule(exchange=exchanges, garbage=_GARBAGE)
    def babble(self, exchange: Exchange, garbage: bytes) -> None:
        """Send bytes that are out of place wherever they come."""
        if exchange.open:
            self._send(exchange, garbage)

    @rule(exchange=exchanges, status=_REFUSALS)
    def refuse(self, exchange: Exchange, status: int) -> None:
        """Answer with an error."""
        if exchange.open and not exchange.begun:
            body = b'{"error": {"message": "no", "code": %d}}' % status
            self._send(exchange, b"HTTP/1.1 %d No\r\nContent-Length: %d\r\n\r\n%b" % (status, len(body), body))
            exchange.begun = True
            exchange.chunked = False

    @rule(exchange=exchanges, how=st.sampled_from(["close", "reset", "end"]))
    def stop(self, exchange: Exchange, how: str) -> None:
        """End the answer, or break its connection."""
        if exchange.open:
            assert exchange.connection is not None
            getattr(exchange.connection, how)()
            self._turn()

    @rule(exchange=consumes(exchanges), reset=st.booleans())
    def leave(self, exchange: Exchange, reset: bool) -> None:
        """Close the client's connection."""
        if exchange.reading is not None:
            exchange.reading.cancel()
            self._turn()
        exchange.left = True
        if reset:
            exchange.client.reset()
        else:
            exchange.client.close()
        self._turn()

    @rule(body=st.none() | _BAD_BODIES)
    def ask_something_else(self, body: bytes | None) -> None:
        """Expect a refusal of the right shape for a bad body, and the gateway to be well."""
        headers = {"Content-Type": "application/json"}
        if body is None:
            assert self._runner.run(ask(self._served, "GET", "/health")).status == 200
        else:
            assert_error(self._runner.run(ask(self._served, "POST", "/v1/responses", data=body, headers=headers)), 400)

    def _send(self, exchange: Exchange, data: bytes) -> None:
        if exchange.open:
            assert exchange.connection is not None
            exchange.connection.write(data)
            self._turn()

    def _turn(self) -> None:
        """Let the gateway work on what has come."""
        self._runner.run(asyncio.sleep(0))

    # ---- the end -----------------------------------------------------------------------------------------------------

    def teardown(self) -> None:
        """Break what is still open, and judge every answer. The gateway fails the test for what it leaves behind."""
        try:
            if hasattr(self, "_served"):
                self._runner.run(self._finish())
        finally:
            self._runner.close()

    async def _finish(self) -> None:
        try:
            for exchange in self._all:
                if not exchange.left:
                    self._judge(exchange, await self._whole_answer(exchange))
            await until(lambda: not self._served.parts.in_flight.activities, "all exchanges are over")
        finally:
            await self._stack.aclose()

    async def _whole_answer(self, exchange: Exchange) -> bytes:
        reading = exchange.reading or asyncio.create_task(exchange.client.read_all())
        while not reading.done():
            if exchange.open:
                assert exchange.connection is not None
                exchange.connection.close()
            await asyncio.wait({reading}, timeout=0.002)
        exchange.client.close()
        return reading.result()

    def _judge(self, exchange: Exchange, answer: bytes) -> None:
        head, _, _ = answer.partition(b"\r\n\r\n")
        status = int(head.split(b" ", 2)[1])
        body = body_of(answer)
        assert not [secret for secret in SECRETS if secret in answer]
        if status != 200:
            assert status in (400, 401, 403, 404, 429, 502, 503, 504), answer
            assert json.loads(body)["error"]["message"]
        elif exchange.streamed:
            final_of(body)
        else:
            assert json.loads(body)["status"] in ("completed", "incomplete", "failed")


def test_whatever_happens_each_exchange_has_one_true_end() -> None:
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        Faults,
        settings=settings(
            max_examples=max(1, CASES // _CASES_OF_A_RUN),
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
