"""The hosted tools of a gateway: opened for each request that declares some of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from responses_gateway.bounded_memory import BoundedDict
from responses_gateway.hosted.interface import HostedLoss
from responses_gateway.hosted.search.web import Web
from responses_gateway.hosted.tool_runner import HostedLimits, SourceNumbers, ToolRunner
from responses_gateway.request.tools.declarations import hosted_name
from responses_gateway.request.tools.hosted_tools import WEB_TOOLS, HostedTools
from responses_gateway.server.features.hosted_tools.openers import Declared, OpenedKind, Opener, ToolContext
from responses_gateway.server.generation.hosted_tools.turns import Item, OpenedTools
from responses_gateway.state import StoreUnavailable
from responses_gateway.state.hosted_calls import HostedCallTable, approval_digest
from responses_gateway.telemetry import logs
from responses_gateway.telemetry.instruments import DURATION_BUCKETS, Counter, Histogram
from responses_gateway.telemetry.metrics import Metrics
from responses_gateway.wire.errors import server_error
from responses_gateway.wire.hosted import decode_result
from responses_gateway.wire.hosted_kinds import HOSTED, MCP, WEB_SEARCH
from responses_gateway.wire.requests import ResponsesRequest
from responses_gateway.wire.search_results import shown_sources
from responses_gateway.wire.tools import ToolTarget

# Without a store, so many approvals are remembered.
_REMEMBERED = 100_000
HOSTED_CALLS = Counter(
    "hosted_calls_total", "Calls of tools that the gateway runs itself, by kind and outcome.", ("tool", "outcome")
)
HOSTED_DURATION = Histogram("hosted_call_duration_seconds", "How long calls of hosted tools took.", DURATION_BUCKETS, ("tool",))


@dataclass(frozen=True, slots=True)
class Toolbox:
    """What the settings turn on: what opens each kind of tool, by its name, and the access to the web, where there is one."""

    limits: Callable[[], HostedLimits]
    metrics: Metrics
    approvals: UsedApprovals
    openers: Mapping[str, Opener]
    web: Web | None

    @property
    def kinds(self) -> list[str]:
        """The types of tools that are turned on."""
        return [kind for kind in HOSTED if kind in self.openers]

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
        declared = _declared(request, separate_web_tools=separate_web_tools)
        kinds = [kind for kind in self.openers if kind in declared]
        if not kinds:
            return None
        earlier = [source for result in results.values() for source in decode_result(result).sources]
        context = ToolContext(tenant, items, SourceNumbers([*earlier, *shown_sources(items)]), separate_web_tools)
        opened = {kind: await self.openers[kind](declared[kind], context) for kind in kinds}
        return self._opened(opened, context)

    def _opened(self, opened: Mapping[str, OpenedKind], context: ToolContext) -> OpenedTools | None:
        kinds = frozenset(kind for kind, part in opened.items() if part.tools and kind != MCP.name)
        parts = opened.values()
        offered = {path: tools for part in parts for path, tools in part.offered.items()}
        if not kinds and not offered:
            return None
        container_id = next((part.container_id for part in parts if part.container_id is not None), None)
        files = {sent: path for part in parts for sent, path in part.files.items()}
        tools = {target: tool for part in parts for target, tool in part.tools.items()}
        return OpenedTools(
            HostedTools(kinds, offered, container_id, files),
            ToolRunner(tools, self.limits(), context.numbers, partial(_observe, self.metrics), _report_defect),
            partial(self.approvals.use, context.tenant),
            [listing for part in parts for listing in part.listings],
            [HostedLoss(kind, reason) for kind, part in opened.items() for reason in part.losses],
        )


def _declared(request: ResponsesRequest, *, separate_web_tools: bool) -> dict[str, list[Declared]]:
    """Return the declarations of hosted tools, by kind."""
    declarations: dict[str, list[Declared]] = {}
    for index, tool in enumerate(request.tools or ()):
        kind = tool.get("type") if isinstance(tool, dict) else None
        if isinstance(kind, str):
            name = WEB_SEARCH.name if separate_web_tools and kind in WEB_TOOLS else hosted_name(kind)
            if name is not None:
                declarations.setdefault(name, []).append((f"tools[{index}]", tool))
    return declarations


def _observe(metrics: Metrics, kind: str, outcome: str, seconds: float) -> None:
    metrics.count(HOSTED_CALLS, kind, outcome)
    metrics.observe(HOSTED_DURATION, seconds, kind)


def _report_defect(target: ToolTarget, defect: Exception) -> None:
    logs.logger().error("a hosted tool failed", exc_info=defect, extra=logs.fields(tool=target.kind))


class UsedApprovals:
    """The approvals that were used. An approval runs its call once, however often a client sends it: SDKs repeat requests by
    themselves. They are in the store, which processes share; without one in the memory of this process."""

    def __init__(self, table: HostedCallTable | None) -> None:
        self._table = table
        self._remembered: BoundedDict[bytes, str] = BoundedDict(_REMEMBERED)

    async def use(self, tenant: str, request_ids: Sequence[str], response_id: str) -> dict[str, str]:
        """Use up approvals for a response, by the ids of their requests: all of them, or none if some were used by others.
        Return those, with the ids of the responses that used them. Raise `ApiError`."""
        digests = {approval_digest(tenant, request_id): request_id for request_id in request_ids}
        if self._table is None:
            used = self._use_here(list(digests), response_id)
        else:
            try:
                used = await self._table.use_approvals(list(digests), response_id)
            except StoreUnavailable as error:
                logs.logger().error("the store fails", extra=logs.fields(error=str(error)))
                raise server_error(error.for_clients, 503) from None
        return {digests[known_by]: used_by for known_by, used_by in used.items()}

    def _use_here(self, digests: Sequence[bytes], response_id: str) -> dict[bytes, str]:
        remembered = self._remembered
        used = {known_by: remembered[known_by] for known_by in digests if known_by in remembered}
        if not used:
            remembered.update(dict.fromkeys(digests, response_id))
        return used
