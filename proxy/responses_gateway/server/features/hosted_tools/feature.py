"""The hosted tools of the settings: web search, MCP servers, file search, the sandbox, images."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from functools import partial

from responses_gateway.ended_tasks import end_tasks
from responses_gateway.hosted.mcp.servers import McpServers
from responses_gateway.hosted.search.providers import CallerFor
from responses_gateway.server.features.feature import Core, Feature, Opened
from responses_gateway.server.features.hosted_tools import opening
from responses_gateway.server.features.hosted_tools.codex_search import Search
from responses_gateway.server.features.hosted_tools.mcp import failing_programs, mcp_access, open_mcp_servers
from responses_gateway.server.features.hosted_tools.openers import (
    Opener,
    open_code_elsewhere,
    open_file_search,
    open_images,
    open_mcp_tools,
    open_sandboxed_code,
    open_web_tools,
)
from responses_gateway.server.features.hosted_tools.toolbox import HOSTED_CALLS, HOSTED_DURATION, Toolbox, UsedApprovals
from responses_gateway.server.http.routes import HttpRoute
from responses_gateway.settings import Settings
from responses_gateway.settings.hosted import Hosted
from responses_gateway.telemetry import logs
from responses_gateway.wire.hosted_kinds import CODE_INTERPRETER, FILE_SEARCH, IMAGE_GENERATION, MCP, WEB_SEARCH


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
        if core.share.number == 0 and not core.trial:
            # Beside the start, because a program may be downloaded first; and of all workers by one.
            stack.push_async_callback(end_tasks, asyncio.create_task(_warn_of_failing_programs(settings)))
    web = opening.open_web(settings, _caller_for(servers, settings.searches_with or ""))
    if web is not None:
        stack.push_async_callback(web.close)
        await opening.try_page_reader()
    stores = settings.file_search_tools
    model = settings.image_generation_model
    most = settings.hosted_result_bytes
    # In the order in which they are opened: MCP servers are asked last, because a request may be refused before.
    openers: dict[str, Opener | None] = {
        WEB_SEARCH.name: None if web is None else partial(open_web_tools, web),
        FILE_SEARCH.name: partial(open_file_search, servers, stores, most) if servers is not None and stores else None,
        CODE_INTERPRETER.name: await _code_opener(core, stack, servers),
        IMAGE_GENERATION.name: partial(open_images, opening.image_server(core.responses.pool, model), model) if model else None,
        MCP.name: None if servers is None else partial(open_mcp_tools, servers, mcp_access(settings), most),
    }
    store = core.responses.store
    approvals = UsedApprovals(None if store is None else store.hosted_calls)
    opened = {kind: opener for kind, opener in openers.items() if opener is not None}
    return Toolbox(lambda: opening.hosted_limits(core.responses.live.current.settings), core.metrics, approvals, opened, web)


async def _warn_of_failing_programs(settings: Settings) -> None:
    for problem in await failing_programs(settings):
        logs.logger().warning("MCP server cannot be used", extra=logs.fields(error=problem))


async def _code_opener(core: Core, stack: AsyncExitStack, servers: McpServers | None) -> Opener | None:
    code = core.settings.code_interpreter
    sandbox = await opening.open_sandbox(core.settings, core.workers_folder)
    if sandbox is not None:
        stack.push_async_callback(sandbox.close)
        return partial(open_sandboxed_code, sandbox)
    if not code.startswith("mcp:"):
        return None
    if servers is None:
        raise ValueError(f"code_interpreter: there is no MCP server for {code}")
    return partial(open_code_elsewhere, servers, code.removeprefix("mcp:"))


def _caller_for(servers: McpServers | None, search: str) -> CallerFor | None:
    """Return what calls the MCP tool that searches, for a tenant, if one does. Raise `ValueError` for an unknown server."""
    if servers is None or not search.startswith("mcp:"):
        return None
    name = search.removeprefix("mcp:")
    servers.caller("", name)
    return lambda tenant: servers.caller(tenant, name)


HOSTED_TOOLS = Feature("hosted_tools", Hosted, _open, (HOSTED_CALLS, HOSTED_DURATION), failing_programs)
