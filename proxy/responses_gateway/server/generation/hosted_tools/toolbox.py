"""The hosted tools of a gateway: opened for each request that declares some of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from responses_gateway.hosted.code.container import OUTPUT_BYTES
from responses_gateway.hosted.code.given_files import read_files, sent_files
from responses_gateway.hosted.code.runner import CodeRunner, McpRunner
from responses_gateway.hosted.code.tool import CodeInterpreter, read_container
from responses_gateway.hosted.files.search import FileSearch, searchable
from responses_gateway.hosted.images.generation import Generate, ImageGeneration
from responses_gateway.hosted.interface import HostedLoss, HostedTool, ToolFailure, UnavailableTool
from responses_gateway.hosted.mcp.servers import McpServers, McpTool
from responses_gateway.hosted.search.web import SearchOptions, Web, search_options
from responses_gateway.hosted.search.web_search import WebSearch
from responses_gateway.hosted.tool_runner import HostedLimits, SourceNumbers, ToolRunner
from responses_gateway.request.input.content import SandboxFiles
from responses_gateway.request.tools.declarations import hosted_name
from responses_gateway.request.tools.file_search import read_file_search
from responses_gateway.request.tools.hosted_tools import (
    FILE_SEARCH,
    FUNCTIONS,
    GENERATE_IMAGE,
    PYTHON,
    WEB_TOOLS,
    HostedTools,
    OfferedTool,
    check_web_search,
    read_image_generation,
)
from responses_gateway.request.tools.mcp import McpAccess, read_mcp_tools
from responses_gateway.server.generation.hosted_tools.turns import Item, OpenedTools
from responses_gateway.state import Store, StoreUnavailable
from responses_gateway.state.hosted_calls import approval_digest
from responses_gateway.stream.items.hosted import ToolListing
from responses_gateway.telemetry import logs
from responses_gateway.telemetry.instruments import DURATION_BUCKETS, Counter, Histogram
from responses_gateway.telemetry.metrics import Metrics
from responses_gateway.wire.errors import server_error
from responses_gateway.wire.hosted import CitedSource, decode_result
from responses_gateway.wire.mcp import ListedTool, McpServer, McpToolset
from responses_gateway.wire.requests import ResponsesRequest
from responses_gateway.wire.tools import ToolTarget, any_tool_of

# A declared tool of a request, with its path.
Declared = tuple[str, dict[str, Any]]
# Without a store, so many approvals are remembered.
_REMEMBERED = 100_000
HOSTED_CALLS = Counter(
    "hosted_calls_total", "Calls of tools that the gateway runs itself, by kind and outcome.", ("tool", "outcome")
)
HOSTED_DURATION = Histogram("hosted_call_duration_seconds", "How long calls of hosted tools took.", DURATION_BUCKETS, ("tool",))


@dataclass(frozen=True, slots=True)
class Toolbox:
    """What the settings turn on. `code_tool` is the MCP tool that runs code, as `LABEL/TOOL`, in place of the sandbox.
    `images` asks for images of `image_model`."""

    limits: HostedLimits
    metrics: Metrics
    approvals: UsedApprovals
    web: Web | None = None
    servers: McpServers | None = None
    access: McpAccess = field(default_factory=McpAccess)
    file_search_tools: Mapping[str, str] = field(default_factory=dict)
    sandbox: CodeRunner | None = None
    code_tool: str | None = None
    images: Generate | None = None
    image_model: str = ""

    @property
    def kinds(self) -> list[str]:
        """The types of tools that are turned on."""
        on = {
            "web_search": self.web is not None,
            "mcp": self.servers is not None and self.access.enabled,
            "file_search": self.servers is not None and bool(self.file_search_tools),
            "code_interpreter": self.sandbox is not None or self.code_tool is not None,
            "image_generation": self.images is not None,
        }
        return [kind for kind, is_on in on.items() if is_on]

    async def open(
        self,
        request: ResponsesRequest,
        items: Sequence[Item],
        results: Mapping[str, bytes],
        tenant: str,
        *,
        separate_web_tools: bool = False,
    ) -> OpenedTools | None:
        """Return the tools of a request; None if it declares none that can be run. `items` are its history and its input,
        `results` the results of earlier hosted calls among them; `separate_web_tools` as in `Policy`. Raise `ApiError` 400."""
        declared = self._declared(request)
        if separate_web_tools and self.web is not None:
            declared |= _web_tools(request)
        if not declared:
            return None
        opening = _Opening(self, tenant, items, results)
        if separate_web_tools:
            opening.web_tools({kind: declared[kind][0] for kind in WEB_TOOLS if kind in declared})
        elif "web_search" in declared:
            opening.web_search(*declared["web_search"][0])
        if "file_search" in declared:
            opening.file_search(*declared["file_search"][0])
        if "code_interpreter" in declared:
            await opening.code_interpreter(*declared["code_interpreter"][0])
        if "image_generation" in declared:
            opening.image_generation(*declared["image_generation"][0])
        if "mcp" in declared:
            await opening.mcp(declared["mcp"])
        return opening.opened()

    def _declared(self, request: ResponsesRequest) -> dict[str, list[Declared]]:
        """Return the declarations of the tools that are turned on, by kind."""
        found: dict[str, list[Declared]] = {}
        on = self.kinds
        for index, tool in enumerate(request.tools or ()):
            kind = tool.get("type") if isinstance(tool, dict) else None
            name = hosted_name(kind) if isinstance(kind, str) else None
            if name is not None and name in on:
                found.setdefault(name, []).append((f"tools[{index}]", tool))
        return found


class _Opening:
    """The tools of one request, while they are opened."""

    def __init__(self, box: Toolbox, tenant: str, items: Sequence[Item], results: Mapping[str, bytes]) -> None:
        self._box = box
        self._tenant = tenant
        self._items = items
        self._numbers = SourceNumbers(_earlier_sources(results))
        self._tools: dict[ToolTarget, HostedTool] = {}
        self._kinds: set[str] = set()
        self._mcp: dict[str, Sequence[OfferedTool]] = {}
        self._listings: list[ToolListing] = []
        self._container_id: str | None = None
        self._file_paths: SandboxFiles = {}
        self._losses: list[HostedLoss] = []

    def opened(self) -> OpenedTools | None:
        if not self._kinds and not self._mcp:
            return None
        metrics = self._box.metrics
        run = ToolRunner(self._tools, self._box.limits, self._numbers, partial(_observe, metrics), _report_defect)
        tools = HostedTools(frozenset(self._kinds), self._mcp, self._container_id, self._file_paths)
        use_approvals = partial(self._box.approvals.use, self._tenant)
        return OpenedTools(tools, run, use_approvals, self._listings, self._losses)

    def web_search(self, path: str, tool: dict[str, Any]) -> None:
        check_web_search(tool, path)
        self._search_web(search_options(tool), FUNCTIONS["web_search"])

    def web_tools(self, declared: Mapping[str, Declared]) -> None:
        """Open the tools of the web that are declared one by one, each with its own domains and limit."""
        for path, tool in declared.values():
            check_web_search(tool, path)
        if declared:
            _, search = declared.get("web_search", ("", {}))
            _, fetch = declared.get("web_fetch", ("", {}))
            options = replace(
                search_options(search),
                page_domains=search_options(fetch).domains,
                most_queries=search.get("max_uses"),
                most_pages=fetch.get("max_uses"),
            )
            self._search_web(options, [target for kind in declared for target in WEB_TOOLS[kind]])

    def _search_web(self, options: SearchOptions, targets: Iterable[ToolTarget]) -> None:
        assert self._box.web is not None
        urls = {number: source.url for number, source in self._numbers.known.items() if source.url}
        search = WebSearch(self._box.web, options, self._numbers.number, self._tenant, urls)
        self._tools.update(dict.fromkeys(targets, search))
        self._kinds.add("web_search")

    def file_search(self, path: str, tool: dict[str, Any]) -> None:
        box = self._box
        assert box.servers is not None
        asked = read_file_search(tool, path)
        found = searchable(asked.stores, box.file_search_tools)
        unknown = set(asked.stores).difference(*found.values())
        reason = "the vector store {} is not mapped by file_search_tools"
        self._losses += [HostedLoss("file_search", reason.format(store)) for store in sorted(unknown)]
        if found:
            numbers = self._numbers.number
            search = FileSearch(asked, box.file_search_tools, box.servers, self._tenant, numbers, box.limits.result_bytes)
            self._tools[FILE_SEARCH] = search
            self._kinds.add("file_search")

    def image_generation(self, path: str, tool: dict[str, Any]) -> None:
        assert self._box.images is not None
        asked = read_image_generation(tool, path)
        self._losses += [HostedLoss("image_generation", loss) for loss in asked.losses]
        self._tools[GENERATE_IMAGE] = ImageGeneration(self._box.images, self._box.image_model, asked.sent)
        self._kinds.add("image_generation")

    async def code_interpreter(self, path: str, tool: dict[str, Any]) -> None:
        runner = await self._code_runner()
        if runner is None:
            return
        container = await read_container(tool, self._tenant, runner, path, _earlier_container(self._items))
        losses = container.losses.items()
        self._losses += [HostedLoss("code_interpreter", f"{param}: {reason}") for param, reason in losses]
        self._container_id = container.key.id
        files = await self._files()
        self._tools[PYTHON] = CodeInterpreter(runner, container.key, files)
        self._kinds.add("code_interpreter")

    async def _files(self) -> Mapping[str, bytes]:
        """Return the files of the conversation for its code; an MCP tool takes none."""
        sent = [] if self._box.code_tool is not None else list(sent_files(self._items))
        if not sent:
            return {}
        given = await asyncio.to_thread(read_files, sent)
        self._losses += [HostedLoss("code_interpreter", reason) for reason in given.losses]
        self._file_paths = given.paths
        return given.contents

    async def _code_runner(self) -> CodeRunner | None:
        """Return what runs code; None where its MCP server cannot be asked for its tools."""
        box = self._box
        if box.code_tool is None:
            return box.sandbox
        assert box.servers is not None
        label, _, name = box.code_tool.partition("/")
        try:
            listed = await box.servers.list_tools(self._tenant, McpServer(label))
        except ToolFailure as failure:
            self._losses.append(HostedLoss("code_interpreter", str(failure)))
            return None
        schema = next((tool.input_schema for tool in listed if tool.name == name), {})
        return McpRunner(box.servers.caller(self._tenant, box.code_tool), schema, OUTPUT_BYTES)

    async def mcp(self, declared: Sequence[Declared]) -> None:
        toolsets = read_mcp_tools(declared, self._box.access)
        listed = await asyncio.gather(*(self._list(toolset) for toolset in toolsets))
        for (path, _tool), toolset, tools in zip(declared, toolsets, listed, strict=True):
            label = toolset.server.label
            if isinstance(tools, ToolFailure):
                self._listings.append(ToolListing(label, error=str(tools)))
                self._mcp[path] = []
                self._tools[any_tool_of(label)[1]] = UnavailableTool(tools)
                continue
            self._listings.append(ToolListing(label, [tool.as_item() for tool in tools]))
            self._mcp[path] = [_described(toolset, tool) for tool in tools]
            for tool in tools:
                self._tools[ToolTarget("mcp", tool.name, label)] = self._served(toolset, tool)

    async def _list(self, toolset: McpToolset) -> list[ListedTool] | ToolFailure:
        """Return the tools that the model may call, or why there are none."""
        assert self._box.servers is not None
        try:
            listed = await self._box.servers.list_tools(self._tenant, toolset.server)
        except ToolFailure as failure:
            return failure
        return [tool for tool in listed if toolset.offers(tool)]

    def _served(self, toolset: McpToolset, tool: ListedTool) -> HostedTool:
        assert self._box.servers is not None
        return McpTool(self._box.servers, self._tenant, toolset.server, tool, self._box.limits.result_bytes)


def _web_tools(request: ResponsesRequest) -> dict[str, list[Declared]]:
    found: dict[str, list[Declared]] = {}
    for index, tool in enumerate(request.tools or ()):
        if tool["type"] in WEB_TOOLS:
            found.setdefault(tool["type"], []).append((f"tools[{index}]", tool))
    return found


def _described(toolset: McpToolset, tool: ListedTool) -> OfferedTool:
    description = "\n\n".join(filter(None, [tool.description, toolset.description]))
    return OfferedTool(tool.name, description, dict(tool.input_schema), toolset.needs_approval(tool))


def _earlier_sources(results: Mapping[str, bytes]) -> list[CitedSource]:
    """Return the sources that earlier results have shown to the model."""
    return [source for result in results.values() for source in decode_result(result).sources]


def _earlier_container(items: Sequence[Item]) -> str | None:
    """Return the container of the last code that was run in the conversation."""
    for item in reversed(items):
        if item.get("type") == "code_interpreter_call" and isinstance(item.get("container_id"), str):
            return str(item["container_id"])
    return None


def _observe(metrics: Metrics, kind: str, outcome: str, seconds: float) -> None:
    metrics.count(HOSTED_CALLS, kind, outcome)
    metrics.observe(HOSTED_DURATION, seconds, kind)


def _report_defect(target: ToolTarget, defect: Exception) -> None:
    logs.logger().error("a hosted tool failed", exc_info=defect, extra=logs.fields(tool=target.kind))


class UsedApprovals:
    """The approvals that were used. An approval runs its call once, however often a client sends it: SDKs repeat requests by
    themselves. They are in the store, which processes share; without one in the memory of this process."""

    def __init__(self, store: Store | None = None) -> None:
        self._store = store
        self._remembered: dict[bytes, str] = {}

    async def use(self, tenant: str, request_ids: Sequence[str], response_id: str) -> dict[str, str]:
        """Use up approvals for a response, by the ids of their requests: all of them, or none if some were used by others.
        Return those, with the ids of the responses that used them. Raise `ApiError`."""
        digests = {approval_digest(tenant, request_id): request_id for request_id in request_ids}
        if self._store is None:
            used = self._use_here(list(digests), response_id)
        else:
            try:
                used = await self._store.use_approvals(list(digests), response_id)
            except StoreUnavailable as error:
                logs.logger().error("store", extra=logs.fields(error=str(error)))
                raise server_error(error.for_clients, 503) from None
        return {digests[known_by]: used_by for known_by, used_by in used.items()}

    def _use_here(self, digests: Sequence[bytes], response_id: str) -> dict[bytes, str]:
        remembered = self._remembered
        used = {known_by: remembered[known_by] for known_by in digests if known_by in remembered}
        if not used:
            remembered.update(dict.fromkeys(digests, response_id))
            while len(remembered) > _REMEMBERED:
                del remembered[next(iter(remembered))]
        return used
