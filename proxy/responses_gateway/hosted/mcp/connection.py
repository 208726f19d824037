"""One connection to an MCP server.

The library's sessions have to be closed by the task that opened them, so each connection has a task of its own. Requests are
sent from the tasks of those who ask."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any, TypeVar, cast

import anyio
from mcp import Client, ClientSession, MCPError
from mcp.client import Transport
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from mcp.types import EmptyResult, PingRequest, ToolListChangedNotification
from mcp_types import (
    CONNECTION_CLOSED,
    INTERNAL_ERROR,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    REQUEST_TIMEOUT,
    Implementation,
    JSONRPCError,
)
from pydantic import ValidationError

from responses_gateway.ended_tasks import end_tasks, wait_at_most
from responses_gateway.hosted.interface import ToolFailure
from responses_gateway.hosted.mcp import failures
from responses_gateway.hosted.mcp.http import GuardedTransport, Resolve
from responses_gateway.hosted.mcp.messages import MessageReader
from responses_gateway.hosted.mcp.servers import Endpoint, HttpEndpoint, McpLimits, StdioEndpoint
from responses_gateway.hosted.mcp.stdio import stdio_transport
from responses_gateway.hosted.mcp.watched_stream import WatchedStream, answer_of, mark_answered
from responses_gateway.wire.hosted import McpSession

T = TypeVar("T")
Log = Callable[[str, str], None]
"""Takes the label of a server and a line for the log."""

_CLIENT = Implementation(name="responses-gateway", version="1")
_CLOSING = 8.0  # seconds in which a connection closes by itself
STOP_TIMEOUT = 5.0  # seconds in which a server has to stop what was cancelled
# Statuses by which a server refuses a request as a whole, for example because it has forgotten the session.
_UNKNOWN_SESSION = frozenset({400, 404})
_UNKNOWN_SESSION_CODES = frozenset({CONNECTION_CLOSED, INVALID_REQUEST, INTERNAL_ERROR, METHOD_NOT_FOUND})


class ServerConnection:
    """A connection, which begins to open at once and closes when it was not used for a while. `usable`: it takes requests."""

    def __init__(
        self,
        label: str,
        endpoint: Endpoint,
        limits: McpLimits,
        log: Log,
        find: Resolve,
        crashed: Callable[[], None],
        tools_changed: Callable[[], None],
    ) -> None:
        """`crashed` is called when the connection ends by itself, `tools_changed` when the server announces other tools."""
        self.usable = True
        self.calls = 0
        self._crashed = crashed
        self._tools_changed = tools_changed
        self._label = label
        self._endpoint = endpoint
        self._limits = limits
        self._log = log
        self._reader = MessageReader(limits, lambda line: log(label, line))
        self._http: GuardedTransport | None = None
        if isinstance(endpoint, HttpEndpoint):
            self._http = GuardedTransport(endpoint, self._reader, find)
        self._loop = asyncio.get_running_loop()
        self._last_use = self._loop.time()
        self._session: ClientSession | None = None
        self._failure: ToolFailure | None = None
        self._check: asyncio.Task[None] | None = None
        self._settled = asyncio.Event()
        self._end = asyncio.Event()
        self.task = asyncio.create_task(self._run())

    @property
    def described(self) -> McpSession:
        """The session, for traces."""
        protocol = None if self._session is None else self._session.protocol_version
        if self._http is None:
            return McpSession(protocol, None, "pipe")
        return McpSession(protocol, self._http.session_id, "tcp")

    @property
    def pending(self) -> int:
        """The number of requests over HTTP that the server has not answered yet, also those whose answer nobody waits for."""
        return 0 if self._http is None else len(self._http.pending)

    @property
    def checking(self) -> bool:
        """Whether a program whose answer nobody waits for any more is asked for a sign of life."""
        return self._check is not None and not self._check.done()

    async def request(self, send: Callable[[ClientSession], Awaitable[T]], seconds: float) -> T:
        """Send a request as soon as the connection is open. `seconds` are those after which `send` gives up. Raises
        `ToolFailure`, and `ConnectionLost` if the connection ended before an answer came."""
        self.calls += 1
        try:
            await self._settled.wait()
            if self._failure is not None:
                raise ToolFailure(str(self._failure), self._failure.item) from self._failure.__cause__
            if self._session is None or self._end.is_set():
                raise failures.ConnectionLost(sent=False)
            return await self._answer(self._session, send, seconds)
        finally:
            self.calls -= 1
            self._last_use = self._loop.time()
            if not self.usable and self.calls == 0:
                self._end.set()

    async def _answer(self, session: ClientSession, send: Callable[[ClientSession], Awaitable[T]], seconds: float) -> T:
        http = self._http
        if http is not None:
            http.begin()
        deadline = self._loop.time() + seconds
        try:
            return await send(session)
        except (anyio.ClosedResourceError, anyio.BrokenResourceError) as error:
            self.retire()
            raise failures.ConnectionLost(sent=True) from error
        except (ValidationError, RuntimeError) as error:
            self._log(self._label, f"answer refused: {failures.describe(error)}")
            raise failures.no_message(self._label) from error
        except asyncio.CancelledError:
            self._given_up(session, deadline)
            raise
        except MCPError as error:
            if error.code == REQUEST_TIMEOUT and answer_of(error) is None:
                if http is not None:  # the server works on it until the connection closes
                    self.retire()
                else:
                    self._given_up(session, deadline)
                raise failures.timed_out(self._label, seconds) from error
            raise self._failed(error) from error

    def _failed(self, error: MCPError) -> Exception:
        http = self._http
        answer = answer_of(error)
        problem = answer.refused if answer is not None else None
        if http is not None and problem is None:
            problem = http.problem
        if problem is not None:
            return failures.refused_answer(self._label, problem)
        if error.code == PARSE_ERROR:
            return failures.no_message(self._label)
        status = answer.http.status if answer is not None and answer.http is not None else None
        if status in _UNKNOWN_SESSION and error.code in _UNKNOWN_SESSION_CODES:
            self.retire()
            return failures.ConnectionLost(sent=False, failure=failures.server_failure(self._label, error))
        if error.code == CONNECTION_CLOSED and (self._end.is_set() or answer is None):
            self.retire()
            return failures.ConnectionLost(sent=error.data is not False)
        return failures.server_failure(self._label, error)

    def _given_up(self, session: ClientSession, deadline: float) -> None:
        """Look after a server that was asked something, until the deadline, whose answer nobody waits for any more."""
        if self._http is not None:
            self._loop.call_later(STOP_TIMEOUT, self._retire_if_not_stopped)
        elif not self.checking:
            seconds = max(STOP_TIMEOUT, deadline - self._loop.time())
            self._check = asyncio.create_task(self._retire_if_silent(session, seconds))

    async def _retire_if_silent(self, session: ClientSession, seconds: float) -> None:
        """Take no more requests if a program does not answer at all: all later calls would wait in vain, too."""
        try:
            await session.send_request(PingRequest(), EmptyResult, seconds)
        except MCPError as error:  # any other error is an answer
            if error.code == REQUEST_TIMEOUT and answer_of(error) is None and self.usable:
                self._log(self._label, "does not answer any more, and is replaced")
                self.retire()
        except (ValidationError, RuntimeError, anyio.ClosedResourceError, anyio.BrokenResourceError):
            pass  # it has answered, or ended

    def _retire_if_not_stopped(self) -> None:
        """Take no more requests if the server still works on one that was cancelled: over HTTP it would work until the
        connection closes."""
        if self.pending > self.calls:
            self.retire()

    def retire(self) -> None:
        """Take no more requests, and close when the last one is done."""
        self.usable = False
        if self.calls == 0:
            self._end.set()

    async def close(self) -> None:
        """Close the connection. What waits for an answer gets none."""
        self.usable = False
        self._end.set()
        if self._settled.is_set():
            await asyncio.wait((self.task,), timeout=_CLOSING)
        await end_tasks(self.task)

    async def _run(self) -> None:
        try:
            await self._serve()
        except (Exception, BaseExceptionGroup) as error:  # whatever a server brings about ends its connection and nothing else
            self._ended_by_server()
            if self._session is None:
                self._failure = self._connect_failure(error)
                self._failure.__cause__ = error
            self._log(self._label, f"connection failed: {failures.describe(error)}")
        finally:
            self.usable = False
            self._end.set()
            self._settled.set()
            if self._check is not None:
                self._check.cancel()
            if self._http is not None:
                await self._http.aclose()

    async def _serve(self) -> None:
        """Open a session, and hold it until the end. A server without streamable HTTP is tried with the older transport."""
        deadline = self._loop.time() + self._limits.connect_timeout
        endpoint = self._endpoint
        http = self._http
        if isinstance(endpoint, StdioEndpoint):
            await self._hold(stdio_transport(endpoint, self._reader, lambda line: self._log(self._label, line)), deadline)
            return
        assert http is not None
        headers = dict(endpoint.headers)
        if endpoint.transport != "sse":
            client = http.client(headers)
            try:
                await self._hold(
                    streamable_http_client(endpoint.url, http_client=client, max_sse_event_size=self._limits.message_bytes),
                    deadline,
                )
                return
            except Exception:
                if self._session is not None or endpoint.transport == "http" or not _is_unknown_transport(http.status):
                    raise
        await self._hold(sse_client(endpoint.url, headers, httpx_client_factory=http.client), deadline)

    async def _hold(self, transport: AbstractAsyncContextManager[Any], deadline: float) -> None:
        client = Client(
            cast(Transport, self._watched(transport)),
            read_timeout_seconds=self._limits.connect_timeout,
            client_info=_CLIENT,
            message_handler=self._notified,
            cache=None,
        )
        async with AsyncExitStack() as stack:
            async with asyncio.timeout_at(deadline):
                await stack.enter_async_context(client)
            self._session = client.session
            self._settled.set()
            await self._until_the_end()

    async def _until_the_end(self) -> None:
        """Wait until the connection is closed, has ended, or was not used for some time."""
        while not self._end.is_set():
            left = self._limits.idle_timeout
            if self.calls == 0:
                left -= self._loop.time() - self._last_use
            if left <= 0:
                break
            await wait_at_most(self._end, left)
        self.usable = False

    @asynccontextmanager
    async def _watched(self, transport: AbstractAsyncContextManager[Any]) -> AsyncIterator[Any]:
        """Open a transport, and notice when the server ends it."""
        async with transport as (messages, requests):
            yield WatchedStream(messages, self._ended_by_server, self._mark), requests

    def _mark(self, item: SessionMessage) -> None:
        """Mark errors that came as an answer; while connecting, the library reads their data."""
        message = item.message
        if isinstance(message, JSONRPCError) and message.id is not None and self._session is not None:
            http = self._http
            if http is not None and message.id in http.lost:
                http.lost.discard(message.id)
            else:
                status = http.errors.pop(message.id, None) if http is not None else None
                mark_answered(message, status, self._reader.refused.pop(message.id, None))

    def _ended_by_server(self) -> None:
        self.usable = False
        if not self._end.is_set():
            self._end.set()
            self._crashed()

    async def _notified(self, message: object) -> None:
        if isinstance(message, ToolListChangedNotification):
            self._tools_changed()

    def _connect_failure(self, error: BaseException) -> ToolFailure:
        if isinstance(error, TimeoutError):
            return failures.timed_out(self._label, self._limits.connect_timeout)
        http = self._http
        return failures.connect_failure(self._label, error, http.status if http else None, http.problem if http else None)


def _is_unknown_transport(status: int | None) -> bool:
    """Tell whether a server that answers with this status may have the older transport."""
    return status is not None and 400 <= status < 500 and status not in (401, 403, 429)
