"""The MCP servers of the settings: how they are reached, and what requests may do with them."""

from __future__ import annotations

import asyncio
import os
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from pydantic import SecretStr

from responses_gateway.extras import how_to_install
from responses_gateway.hosted.mcp.servers import Endpoint, HttpEndpoint, McpLimits, McpServers, StdioEndpoint
from responses_gateway.request.tools.mcp import ConfiguredServer, McpAccess, read_allowed_tools, read_approval
from responses_gateway.settings import Settings
from responses_gateway.settings.mcp_servers import McpServerDetails
from responses_gateway.telemetry import logs
from responses_gateway.wire.hosts.allowed_hosts import AllowedHosts
from responses_gateway.wire.mcp import McpServer

_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
# What programs get of the gateway's own environment; anything else the settings have to name.
_INHERITED = ("PATH", "HOME")
# Characters of a result that are read at least, because what a search has found is read before the model is shown some of it.
_LEAST_RESULT = 512 * 1024


def open_mcp_servers(settings: Settings, environ: Mapping[str, str] = os.environ) -> McpServers | None:
    """Return the MCP servers that the settings allow; None if there are none. Nothing is connected to before it is used. Raises
    `ValueError` for settings that cannot be used."""
    if not settings.mcp_servers and not settings.mcp_allowed_hosts:
        if settings.file_search_tools:
            raise ValueError("file_search_tools needs mcp_servers, whose tools it names")
        return None
    connect = _connections()
    limits = McpLimits(
        call_timeout=settings.hosted_call_timeout, result_characters=max(_LEAST_RESULT, settings.hosted_result_bytes)
    )
    servers = connect(mcp_endpoints(settings, environ), _allowed_hosts(settings), limits, _log)
    for store, tool in settings.file_search_tools.items():
        try:
            servers.caller("", tool)
        except ValueError as error:
            raise ValueError(f"file_search_tools: {store}: {error}") from None
    return servers


def _connections() -> Callable[..., McpServers]:
    try:
        from responses_gateway.hosted.mcp.connections import McpConnections  # noqa: PLC0415  (the library is an extra)
    except ImportError as error:
        raise ValueError(f"MCP servers need an extra: {how_to_install('mcp')}") from error
    return McpConnections


def mcp_endpoints(settings: Settings, environ: Mapping[str, str] = os.environ) -> dict[str, Endpoint]:
    """Return how the operator's servers are reached, by their labels. Raises `ValueError`."""
    return {label: _endpoint(label, details, environ) for label, details in settings.mcp_servers.items()}


async def failing_programs(settings: Settings) -> list[str]:
    """Start each MCP server that is a program once, all of them together, and return what is wrong with those that
    fail. Raises `ValueError`."""
    if not settings.mcp_servers:
        return []
    connect = _connections()
    endpoints = mcp_endpoints(settings)
    programs = {label: endpoint for label, endpoint in endpoints.items() if isinstance(endpoint, StdioEndpoint)}
    lines: defaultdict[str, list[str]] = defaultdict(list)
    limits = McpLimits(connections=len(programs), tenant_connections=len(programs))
    servers = connect(programs, AllowedHosts.read(()), limits, lambda label, line: lines[label].append(line))
    try:
        listing = (servers.list_tools("", McpServer(label)) for label in programs)
        failures = await asyncio.gather(*listing, return_exceptions=True)
    finally:
        await servers.close()
    from responses_gateway.hosted.mcp.failures import obstacle_of  # noqa: PLC0415  (it imports the library, too)

    return [
        f"mcp_servers: {label}: {obstacle_of(failure) or _defect(programs[label], failure, lines[label])}"
        for label, failure in zip(programs, failures, strict=True)
        if isinstance(failure, BaseException)
    ]


def _defect(program: StdioEndpoint, failure: BaseException, lines: Sequence[str]) -> str:
    """Say what is wrong with a program that starts."""
    reason = str(failure) or type(failure).__name__
    # Its last lines name a missing library, say; that the connection failed is not one of them.
    last = [line for line in lines if not line.startswith("connection failed: ")][-2:]
    written = f" The last that it wrote: {' '.join(last)}" if last else ""
    return f"the program {program.command} starts, but its tools cannot be listed. {reason}{written}"


def mcp_access(settings: Settings) -> McpAccess:
    """Return which servers requests may use."""
    servers: dict[str, ConfiguredServer] = {}
    for label, details in settings.mcp_servers.items():
        rules = details.model_dump(include={"allowed_tools", "require_approval"})
        allowed = read_allowed_tools(rules, label)
        approval = read_approval(rules, label)
        servers[label] = ConfiguredServer(details.description, allowed, approval, details.forward_authorization)
    return McpAccess(servers, _allowed_hosts(settings))


def _allowed_hosts(settings: Settings) -> AllowedHosts:
    try:
        return AllowedHosts.read(settings.mcp_allowed_hosts)
    except ValueError as error:
        raise ValueError(f"mcp_allowed_hosts: {error}") from None


def _endpoint(label: str, details: McpServerDetails, environ: Mapping[str, str]) -> Endpoint:
    place = f"mcp_servers: {label}"
    if details.url is not None:
        filled = _filled(details.headers, f"{place}: headers", environ)
        headers = tuple((name, value.strip()) for name, value in filled.items())  # files of secrets often end with a line break
        transport = details.transport if details.transport != "stdio" else "auto"
        return HttpEndpoint(details.url, headers, transport, public_only=False)
    env = {name: environ[name] for name in _INHERITED if name in environ} | _filled(details.env, f"{place}: env", environ)
    return StdioEndpoint(details.command or "", tuple(details.args), env, details.cwd)


def _filled(values: Mapping[str, SecretStr], place: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Replace the references to environment variables. Raises `ValueError` for one that is not set."""

    def value_of(reference: re.Match[str]) -> str:
        name = reference[1]
        if name not in environ:
            raise ValueError(f"{place}: the environment variable {name} is not set")
        return environ[name]

    return {name: _REFERENCE.sub(value_of, value.get_secret_value()) for name, value in values.items()}


def _log(label: str, message: str) -> None:
    logs.logger().info("MCP server", extra=logs.fields(server=label, said=message))
