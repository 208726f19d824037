"""The connections of all tenants to all MCP servers, and the lists of their tools.

No two tenants share anything, nor do two credentials: whatever is kept belongs to a tenant, a server and its headers."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

import msgspec
from mcp import ClientSession, MCPError
from mcp.types import CallToolRequest, CallToolRequestParams, CallToolResult, PaginatedRequestParams, TextContent, Tool
from mcp_types import HEADER_MISMATCH, INVALID_PARAMS, METHOD_NOT_FOUND

from responses_gateway.ended_tasks import KeptTasks
from responses_gateway.hosted.interface import ToolFailure
from responses_gateway.hosted.mcp.connection import Log, ServerConnection
from responses_gateway.hosted.mcp.failures import ConnectionLost, lost, protocol_failure, timed_out
from responses_gateway.hosted.mcp.http import Resolve, tls_context
from responses_gateway.hosted.mcp.servers import Endpoint, HttpEndpoint, McpLimits, StdioEndpoint, ToolCaller, ToolResult
from responses_gateway.hosted.name_lookups import NameLookups
from responses_gateway.hosted.result_text import untrusted_text
from responses_gateway.wire.hosted import McpSession
from responses_gateway.wire.hosts.allowed_hosts import AllowedHosts
from responses_gateway.wire.hosts.mcp_servers import may_be_private
from responses_gateway.wire.mcp import ListedTool, McpServer

T = TypeVar("T")

_MOST_ENTRIES = 200  # so many servers of tenants are remembered at most
# Seconds that a program may not be started again after its second crash; they double with each further one.
_FIRST_PAUSE = 1.0
_LONGEST_PAUSE = 60.0
_STEADY = 60.0  # a program that ran for so many seconds is started again at once
# Errors of a server that does not know the tool, or wants other arguments than it said.
_STALE = frozenset({INVALID_PARAMS, METHOD_NOT_FOUND, HEADER_MISMATCH})


class _Key(NamedTuple):
    tenant: str
    server: McpServer


class _KnownServer:
    """What is kept of a server for a tenant."""

    def __init__(self) -> None:
        self.connection: ServerConnection | None = None
        self.listing: Listing | None = None
        self.listed_at = 0.0
        self.lock = asyncio.Lock()
        self.crashes = 0  # of its program, one after the other
        self.next_start = 0.0  # before which its program is not started again


class McpConnections:
    """Opens connections when they are needed, and keeps them for a while. `open`: those that have not ended."""

    def __init__(
        self,
        servers: Mapping[str, Endpoint],
        hosts: AllowedHosts,
        limits: McpLimits,
        log: Log,
        *,
        clock: Callable[[], float] = time.monotonic,
        find: Resolve | None = None,
    ) -> None:
        """`servers` are those of the operator, by label; `hosts` those to which requests may connect, whose addresses
        are what `find` returns."""
        self._servers = servers
        self._hosts = hosts
        self._limits = limits
        self._log = log
        self._clock = clock
        self._find = find or partial(_addresses, NameLookups())
        self._entries: OrderedDict[_Key, _KnownServer] = OrderedDict()
        self.open: set[ServerConnection] = set()
        self._closed = False
        self._closing: KeptTasks[None] = KeptTasks()

    async def list_tools(self, tenant: str, server: McpServer) -> Sequence[ListedTool]:
        """Return the tools of a server, in its order; for a while from memory. Raises `ToolFailure`."""
        key = _Key(tenant, server)
        entry = self._entry(key)
        async with entry.lock:
            listing = entry.listing
            if listing is None or self._clock() - entry.listed_at > self._limits.list_age:
                listing = await self._read_listing(key)
                entry.listing = listing
                entry.listed_at = self._clock()
        return listing.tools

    async def call_tool(self, tenant: str, server: McpServer, name: str, arguments: Mapping[str, Any]) -> ToolResult:
        """Call a tool that the server lists. Raises `ToolFailure`. Cancelling tells the server."""
        key = _Key(tenant, server)
        if all(tool.name != name for tool in await self.list_tools(tenant, server)):
            raise protocol_failure(f"The MCP server '{server.label}' lists no tool '{name}'.", METHOD_NOT_FOUND)
        request = CallToolRequest(params=CallToolRequestParams(name=name, arguments=dict(arguments)))
        seconds = self._limits.call_timeout

        async def send(session: ClientSession) -> CallToolResult:
            try:
                return await session.send_request(request, CallToolResult, seconds)
            except MCPError as error:
                if error.code in _STALE:
                    self._entry(key).listing = None
                raise

        answer, session = await self._ask(key, send, seconds, repeatable=False)
        return read_result(answer)._replace(session=session)

    def caller(self, tenant: str, name: str) -> ToolCaller:
        """Return what calls the tool `label/name` of one of the operator's servers. Raises `ValueError` if there is none."""
        label, _, tool = name.partition("/")
        if label not in self._servers or not tool:
            raise ValueError(f"'{name}' is no tool of a configured MCP server (label/tool)")

        async def call(arguments: Mapping[str, Any]) -> tuple[str, Any]:
            result = await self.call_tool(tenant, McpServer(label), tool, arguments)
            if result.failed:
                raise ToolFailure(result.text or f"The tool '{tool}' failed.")
            return result.text, result.structured

        return call

    async def close(self) -> None:
        """Close all connections."""
        self._closed = True
        self._entries.clear()
        closing = asyncio.gather(*(connection.close() for connection in self.open), *self._closing)
        await asyncio.shield(closing)  # cancelled before they begin, it would leave their programs running

    async def _read_listing(self, key: _Key) -> Listing:
        seconds = self._limits.connect_timeout

        async def send(session: ClientSession) -> Listing:
            try:
                async with asyncio.timeout(seconds):
                    return await read_listing(session, self._limits)
            except TimeoutError:
                raise timed_out(key.server.label, seconds) from None

        if isinstance(self._endpoint(key.server), HttpEndpoint):
            await asyncio.to_thread(tls_context)  # before the first connection
        listing, _ = await self._ask(key, send, seconds, repeatable=True)
        if listing.left_out:
            self._log(key.server.label, f"tools left out of its list: {listing.left_out}")
        return listing

    async def _ask(
        self, key: _Key, send: Callable[[ClientSession], Awaitable[T]], seconds: float, *, repeatable: bool, again: bool = False
    ) -> tuple[T, McpSession]:
        """Send a request; return the answer, and the session that it came over. If the connection turns out to be lost,
        send it `again` over another one, unless the server may have seen it and it is not `repeatable`."""
        connection = self._connection(key)
        try:
            return await connection.request(send, seconds), connection.described
        except ConnectionLost as loss:
            if again or (loss.sent and not repeatable):
                raise (loss.failure or lost(key.server.label)) from loss
        return await self._ask(key, send, seconds, repeatable=repeatable, again=True)

    def _connection(self, key: _Key) -> ServerConnection:
        entry = self._entry(key)
        if entry.connection is None or not entry.connection.usable:
            if self._closed:
                raise lost(key.server.label)
            endpoint = self._endpoint(key.server)
            if isinstance(endpoint, StdioEndpoint) and self._clock() < entry.next_start:
                message = f"The MCP server '{key.server.label}' ended unexpectedly; it will be started again a little later."
                raise protocol_failure(message)
            self._make_room(key)
            entry.connection = self._opened(key, endpoint)
        return entry.connection

    def _entry(self, key: _Key) -> _KnownServer:
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = _KnownServer()
        self._entries.move_to_end(key)
        if len(self._entries) > _MOST_ENTRIES:
            idle = (name for name, other in self._entries.items() if other.connection is None or not other.connection.usable)
            self._entries.pop(next(idle, key), None)
        return entry

    def _endpoint(self, server: McpServer) -> Endpoint:
        if server.url is not None:
            public_only = not may_be_private(server.url, self._hosts)
            return HttpEndpoint(server.url, server.headers, public_only=public_only)
        endpoint = self._servers.get(server.label)
        if endpoint is None:
            raise protocol_failure(f"There is no MCP server '{server.label}'.")
        if isinstance(endpoint, HttpEndpoint) and server.headers:
            kept = {name: value for name, value in endpoint.headers if name.lower() not in dict(server.headers)}
            headers = (*kept.items(), *server.headers)
            return HttpEndpoint(endpoint.url, headers, endpoint.transport, endpoint.public_only)
        return endpoint

    def _opened(self, key: _Key, endpoint: Endpoint) -> ServerConnection:
        label = key.server.label
        started = self._clock()

        def crashed() -> None:
            if isinstance(endpoint, StdioEndpoint):
                self._count_crash(self._entry(key), self._clock() - started)

        def tools_changed() -> None:
            self._entry(key).listing = None

        connection = ServerConnection(label, endpoint, self._limits, self._log, self._find, crashed, tools_changed)
        self.open.add(connection)
        connection.task.add_done_callback(lambda _: self.open.discard(connection))
        return connection

    def _count_crash(self, entry: _KnownServer, lived: float) -> None:
        entry.crashes = 1 if lived > _STEADY else entry.crashes + 1
        pause = 0.0 if entry.crashes == 1 else min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** (entry.crashes - 2))
        entry.next_start = self._clock() + pause

    def _make_room(self, key: _Key) -> None:
        """Close the connection that was not used for the longest time, if there are as many as there may be."""
        open_ones = [
            (other.tenant, entry) for other, entry in self._entries.items() if entry.connection and entry.connection.usable
        ]
        own = [entry for tenant, entry in open_ones if tenant == key.tenant]
        own_is_full = len(own) >= self._limits.tenant_connections
        if not own_is_full and len(self.open) < self._limits.connections:
            return
        for entry in own if own_is_full else [entry for _, entry in open_ones]:
            if entry.connection is not None and entry.connection.calls == 0:
                self._closing.begin(entry.connection.close())
                entry.connection = None
                return
        raise protocol_failure("Too many MCP servers are in use at the moment.")


class Listing(NamedTuple):
    """The tools of a server, in its order. `left_out`: how many it lists that are not offered to the model."""

    tools: Sequence[ListedTool]
    left_out: int


async def read_listing(session: ClientSession, limits: McpLimits) -> Listing:
    """Ask a server for its tools. Pages beyond the limit are not read."""
    tools: list[Tool] = []
    cursor: str | None = None
    for _ in range(limits.pages):
        page = await session.list_tools(params=PaginatedRequestParams(cursor=cursor))
        tools.extend(page.tools)
        cursor = page.next_cursor
        if cursor is None or len(tools) > limits.tools:
            break
    return bounded(tools, limits)


def bounded(tools: Iterable[Tool], limits: McpLimits) -> Listing:
    """Leave out tools whose name occurred before, and what exceeds the limits of a list."""
    listed: dict[str, ListedTool] = {}
    left_out = 0
    room = limits.list_bytes
    for tool in tools:
        size = len(tool.description or "") + len(msgspec.json.encode(tool.input_schema))
        if tool.name in listed or len(listed) == limits.tools or size > room:
            left_out += 1
            continue
        room -= size
        annotations = tool.annotations.model_dump(by_alias=True, exclude_none=True) if tool.annotations is not None else None
        listed[tool.name] = ListedTool(tool.name, tool.description, tool.input_schema, annotations or None)
    return Listing(tuple(listed.values()), left_out)


def read_result(result: CallToolResult) -> ToolResult:
    """Return the text of a result, which `MessageReader` has made of its contents, and its structured content."""
    text = "\n".join(block.text for block in result.content if isinstance(block, TextContent))
    return ToolResult(untrusted_text(text), result.structured_content, result.is_error)


async def _addresses(lookups: NameLookups, host: str, port: int) -> list[str]:
    return list(dict.fromkeys(address["host"] for address in await lookups.resolve(host, port)))
