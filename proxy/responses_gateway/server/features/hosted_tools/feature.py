"""The hosted tools of the settings: web search, MCP servers, file search, the sandbox, images."""

from __future__ import annotations

from contextlib import AsyncExitStack

from responses_gateway.hosted.mcp.servers import McpServers
from responses_gateway.hosted.search.mcp_provider import CallerFor
from responses_gateway.server.features.feature import Core, Feature, Opened
from responses_gateway.server.features.hosted_tools.codex_search import Search
from responses_gateway.server.features.hosted_tools.mcp import mcp_access, open_mcp_servers
from responses_gateway.server.features.hosted_tools.openers import ImageOpener, openers_of
from responses_gateway.server.features.hosted_tools.opening import hosted_limits, image_server, open_sandbox, open_web
from responses_gateway.server.features.hosted_tools.toolbox import HOSTED_CALLS, HOSTED_DURATION, Toolbox, UsedApprovals
from responses_gateway.server.http.routes import HttpRoute
from responses_gateway.settings.hosted import Hosted


async def _open(core: Core, stack: AsyncExitStack) -> Opened | None:
    toolbox = await _open_toolbox(core, stack)
    search = Search(toolbox.web, core.responses.live, core.metrics)
    # Without a search, too, because Codex is to be told which setting turns it on.
    routes = [HttpRoute("POST", "/v1/alpha/search", search.search)]
    return Opened(toolboxes=[toolbox] if toolbox.kinds else [], routes=routes)


async def _open_toolbox(core: Core, stack: AsyncExitStack) -> Toolbox:
    """Open what the settings turn on; the stack closes it. Raise `ValueError`."""
    settings = core.settings
    servers = open_mcp_servers(settings)
    if servers is not None:
        stack.push_async_callback(servers.close)
    search = settings.searches_with or ""
    by_tool = servers is not None and search.startswith("mcp:")
    web = open_web(settings, _caller_for(servers, search.removeprefix("mcp:")) if servers is not None and by_tool else None)
    if web is not None:
        stack.push_async_callback(web.close)
    sandbox = await open_sandbox(settings, core.workers_folder)
    if sandbox is not None:
        stack.push_async_callback(sandbox.close)
    code = settings.code_interpreter
    if code.startswith("mcp:") and servers is None:
        raise ValueError(f"code_interpreter: there is no MCP server for {code}")
    model = settings.image_generation_model
    images = ImageOpener(image_server(core.responses.pool, model), model) if model else None
    openers = openers_of(settings, web, servers, mcp_access(settings), sandbox, images)
    store = core.responses.store
    approvals = UsedApprovals(None if store is None else store.hosted_calls)
    return Toolbox(hosted_limits(settings), core.metrics, approvals, openers, web)


def _caller_for(servers: McpServers, name: str) -> CallerFor:
    """Return what calls an MCP tool for a tenant. Raise `ValueError` for one of an unknown server."""
    servers.caller("", name)
    return lambda tenant: servers.caller(tenant, name)


HOSTED_TOOLS = Feature("hosted_tools", Hosted, _open, (HOSTED_CALLS, HOSTED_DURATION))
