"""What opens the hosted tools of a request: a function for each kind that the settings turn on, given its parts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeAlias

from responses_gateway.hosted.code.container import OUTPUT_BYTES
from responses_gateway.hosted.code.given_files import GivenFiles, read_files, sent_files
from responses_gateway.hosted.code.runner import CodeRunner, McpRunner
from responses_gateway.hosted.code.tool import CodeInterpreter, read_container
from responses_gateway.hosted.files.search import FileSearch, searchable
from responses_gateway.hosted.images.generation import Generate, ImageGeneration
from responses_gateway.hosted.interface import HostedTool, ToolFailure, UnavailableTool
from responses_gateway.hosted.mcp.servers import McpServers, McpTool
from responses_gateway.hosted.search.web import Web, search_options
from responses_gateway.hosted.search.web_search import WebSearch
from responses_gateway.hosted.tool_runner import SourceNumbers
from responses_gateway.request.tools.file_search import read_file_search
from responses_gateway.request.tools.hosted_tools import WEB_TOOLS, OfferedTool, check_web_search, read_image_generation
from responses_gateway.request.tools.mcp import McpAccess, read_mcp_tools
from responses_gateway.server.generation.hosted_tools.turns import Item
from responses_gateway.stream.items.hosted import ToolListing
from responses_gateway.wire.hosted import SandboxFiles
from responses_gateway.wire.hosted_kinds import CODE_INTERPRETER, FILE_SEARCH, IMAGE_GENERATION, HostedKind
from responses_gateway.wire.mcp import ListedTool, McpServer, McpToolset
from responses_gateway.wire.tools import ToolTarget, any_tool_of

# A declared tool of a request, with its path.
Declared = tuple[str, dict[str, Any]]


class ToolContext(NamedTuple):
    """What a request's tools are opened for: its tenant, its items (the history and the input), and the numbers of the sources
    that the model has seen in it. `separate_web_tools` is as in `Policy`."""

    tenant: str
    items: Sequence[Item]
    numbers: SourceNumbers
    separate_web_tools: bool


@dataclass(frozen=True, slots=True)
class OpenedKind:
    """The tools of one kind that were opened for a request: `tools` run the calls, `losses` tell what of the declarations
    cannot be honoured. Of MCP servers: `offered` are their tools by the path of the declaration, `listings` the same as items
    show them. Of code: its container, and the files that it was given."""

    tools: Mapping[ToolTarget, HostedTool] = field(default_factory=dict)
    losses: Sequence[str] = ()
    offered: Mapping[str, Sequence[OfferedTool]] = field(default_factory=dict)
    listings: Sequence[ToolListing] = ()
    container_id: str | None = None
    files: SandboxFiles = field(default_factory=dict)


# Opens the tools of one kind that were declared, at least one. Of several the first one counts, unless each is a tool of its
# own. It raises `ApiError` 400.
Opener: TypeAlias = Callable[[Sequence[Declared], ToolContext], Awaitable[OpenedKind]]


async def open_web_tools(web: Web, declared: Sequence[Declared], context: ToolContext) -> OpenedKind:
    """Open `web_search`. Where the tools of the web are declared one by one, each has its own domains and limit."""
    kinds: Iterable[str] = WEB_TOOLS
    if context.separate_web_tools:
        first = {tool["type"]: tool for _, tool in reversed(declared)}
        for path, tool in declared:
            check_web_search(tool, path)
        search = first.get("web_search", {})
        fetch = first.get("web_fetch", {})
        options = replace(
            search_options(search),
            page_domains=search_options(fetch).domains,
            most_queries=search.get("max_uses"),
            most_pages=fetch.get("max_uses"),
        )
        kinds = first
    else:
        path, tool = declared[0]
        check_web_search(tool, path)
        options = search_options(tool)
    numbers = context.numbers
    urls = {number: source.url for number, source in numbers.known.items() if source.url}
    run = WebSearch(web, options, numbers.number, context.tenant, urls)
    return OpenedKind({target: run for kind in kinds for target in WEB_TOOLS[kind]})


async def open_file_search(
    servers: McpServers, tools: Mapping[str, str], result_bytes: int, declared: Sequence[Declared], context: ToolContext
) -> OpenedKind:
    """Open the vector stores of `file_search` for which there is a tool. `tools` are those of the settings, by vector store."""
    path, tool = declared[0]
    request = read_file_search(tool, path)
    stores = searchable(request.stores, tools)
    unknown = sorted(set(request.stores).difference(*stores.values()))
    losses = [f"the vector store {store} is not mapped by file_search_tools" for store in unknown]
    if not stores:
        return OpenedKind(losses=losses)
    search = FileSearch(request, tools, servers, context.tenant, context.numbers.number, result_bytes)
    return OpenedKind(_only_tool(FILE_SEARCH, search), losses)


async def open_images(generate: Generate, model: str, declared: Sequence[Declared], _context: ToolContext) -> OpenedKind:
    """Open `image_generation`, which asks for images of the model, with the options that servers of images support."""
    path, tool = declared[0]
    options = read_image_generation(tool, path)
    return OpenedKind(_only_tool(IMAGE_GENERATION, ImageGeneration(generate, model, options.sent)), options.losses)


async def open_sandboxed_code(sandbox: CodeRunner, declared: Sequence[Declared], context: ToolContext) -> OpenedKind:
    """Open a container of the sandbox for `code_interpreter`, with the files of the conversation."""
    sent = list(sent_files(context.items))
    files = await asyncio.to_thread(read_files, sent) if sent else GivenFiles()
    return await _open_container(sandbox, declared[0], context, files)


async def open_code_elsewhere(servers: McpServers, tool: str, declared: Sequence[Declared], context: ToolContext) -> OpenedKind:
    """Open a session of a tool of an MCP server, `LABEL/TOOL`, for `code_interpreter`, if the server can be asked for its
    tools. It takes no files."""
    label, _, name = tool.partition("/")
    try:
        listed = await servers.list_tools(context.tenant, McpServer(label))
    except ToolFailure as failure:
        return OpenedKind(losses=[str(failure)])
    schema = next((one.input_schema for one in listed if one.name == name), {})
    runner = McpRunner(servers.caller(context.tenant, tool), schema, OUTPUT_BYTES)
    return await _open_container(runner, declared[0], context, GivenFiles())


async def _open_container(runner: CodeRunner, declared: Declared, context: ToolContext, files: GivenFiles) -> OpenedKind:
    path, tool = declared
    container = await read_container(tool, context.tenant, runner, path, _earlier_container(context.items))
    losses = [f"{param}: {reason}" for param, reason in container.losses.items()]
    code = CodeInterpreter(runner, container.key, files.contents)
    tools = _only_tool(CODE_INTERPRETER, code)
    return OpenedKind(tools, [*losses, *files.losses], container_id=container.key.id, files=files.paths)


async def open_mcp_tools(
    servers: McpServers, access: McpAccess, result_bytes: int, declared: Sequence[Declared], context: ToolContext
) -> OpenedKind:
    """Open the tools of MCP servers that the model may call. The servers are asked for their lists at the same time; one
    without a list has a tool that fails, whatever is called."""
    toolsets = read_mcp_tools(declared, access)
    lists = await asyncio.gather(*(_offered(servers, context.tenant, toolset) for toolset in toolsets))
    tools: dict[ToolTarget, HostedTool] = {}
    offered: dict[str, list[OfferedTool]] = {}
    listings: list[ToolListing] = []
    for (path, _), toolset, listed in zip(declared, toolsets, lists, strict=True):
        server = toolset.server
        if isinstance(listed, ToolFailure):
            listings.append(ToolListing(server.label, error=str(listed)))
            offered[path] = []
            tools[any_tool_of(server.label)[1]] = UnavailableTool(listed)
            continue
        listings.append(ToolListing(server.label, [tool.as_item() for tool in listed]))
        offered[path] = [_described(toolset, tool) for tool in listed]
        for tool in listed:
            run = McpTool(servers, context.tenant, server, tool, result_bytes)
            tools[ToolTarget("mcp", tool.name, server.label)] = run
    return OpenedKind(tools, offered=offered, listings=listings)


async def _offered(servers: McpServers, tenant: str, toolset: McpToolset) -> list[ListedTool] | ToolFailure:
    """Return the tools that the model may call, or why there are none."""
    try:
        listed = await servers.list_tools(tenant, toolset.server)
    except ToolFailure as failure:
        return failure
    return [tool for tool in listed if toolset.offers(tool)]


def _only_tool(kind: HostedKind, tool: HostedTool) -> dict[ToolTarget, HostedTool]:
    """Return what runs the calls of all functions of a kind."""
    return {ToolTarget(kind.name, function.name): tool for function in kind.functions}


def _described(toolset: McpToolset, tool: ListedTool) -> OfferedTool:
    description = "\n\n".join(filter(None, [tool.description, toolset.description]))
    return OfferedTool(tool.name, description, dict(tool.input_schema), toolset.needs_approval(tool))


def _earlier_container(items: Sequence[Item]) -> str | None:
    """Return the container of the last code that was run in the conversation."""
    for item in reversed(items):
        if item.get("type") == CODE_INTERPRETER.item.type and isinstance(item.get("container_id"), str):
            return str(item["container_id"])
    return None
