"""The turns of one response after the first one: those in which the gateway runs tools (run what the model called, and tell it
the results), those after calls of asynchronous tools, whose results may come in any later request, and after an early end."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from responses_gateway.ended_tasks import KeptTasks
from responses_gateway.hosted.interface import HostedLoss, HostedResult, Source, ToolFailure
from responses_gateway.hosted.tool_runner import ToolRunner, read_arguments
from responses_gateway.request import Loss, Policy
from responses_gateway.request.input.approvals import INTERRUPTED, Approval
from responses_gateway.request.tools.hosted_tools import HostedTools
from responses_gateway.request.turns import RunCall, with_approved, with_chat_name, with_nudge, with_turn
from responses_gateway.server.generation.parser_choice.choice import ParserChoice
from responses_gateway.stream.items.hosted import ApprovedCall, CallOutcome, ToolListing
from responses_gateway.stream.lifecycle.needs import AnotherTurn, CallToRun, RunCalls
from responses_gateway.stream.lifecycle.turn import Turn
from responses_gateway.stream.translator import Translator
from responses_gateway.wire.errors import invalid_request, server_error
from responses_gateway.wire.hosted import CitedSource, KeptResult, MadeCall
from responses_gateway.wire.hosted_kinds import HOSTED, HOSTED_CALLS
from responses_gateway.wire.tools import ToolTable, ToolTarget, chat_name

Item = dict[str, Any]
Emit = Callable[[bytes], None]
# Uses up approvals for a response: see `UsedApprovals.use`.
UseApprovals = Callable[[Sequence[str], str], Awaitable[Mapping[str, str]]]

_DROPPED = "\n\n(Calls that were not run, because only {} are permitted at a time: {}. Make them again if they are needed.)"


@dataclass(frozen=True, slots=True)
class OpenedTools:
    """The hosted tools that were opened for one request. `use_approvals` uses up what its client has approved. `listings` are
    the tools of its MCP servers, as items show them; `losses` tell what of their declarations cannot be honoured."""

    tools: HostedTools
    run: ToolRunner
    use_approvals: UseApprovals
    listings: Sequence[ToolListing]
    losses: Sequence[HostedLoss]

    def reported_losses(self, *, strict: bool) -> list[Loss]:
        """Return the losses as the response reports them. `strict`: raise `ApiError` 400 for the first one."""
        for tool, reason in self.losses:
            if strict:
                raise invalid_request(f"'{tool}' cannot be honoured: {reason}.", "tools", "unsupported_value")
        return [Loss("tool", tool, "ignored", reason) for tool, reason in self.losses]

    def new_listings(self, items: Sequence[Item]) -> list[ToolListing]:
        """Return those that the items of the conversation do not show yet."""
        if not self.listings:
            return []
        labels = [item.get("server_label") for item in items if item.get("type") == "mcp_list_tools"]
        return [listing for listing in self.listings if listing.label not in labels]


class HostedTurns:
    """The hosted tools of one response, and what the backend has to know of their calls.

    `listings` are the tools of MCP servers, to be shown before the first turn; `approved` the calls that the client has
    approved, to be run before it. `ran`: a call was begun, so that the client must not repeat its request."""

    def __init__(
        self,
        opened: OpenedTools,
        policy: Policy,
        response_id: str,
        listings: Sequence[ToolListing],
        approved: Sequence[Approval],
        most_calls: int | None,
    ) -> None:
        """`most_calls` is the client's limit."""
        self.listings = listings
        self.approved = approved
        self.ran = False
        self._run = opened.run
        if most_calls is not None:
            self._run.limits = self._run.limits._replace(calls=min(most_calls, self._run.limits.calls))
        self._use_approvals = opened.use_approvals
        self._policy = policy
        self._response_id = response_id
        self._made: dict[str, tuple[CallToRun, HostedResult]] = {}  # in this turn, by the ids of their items
        self.results: dict[str, bytes] = {}  # to be kept, by the ids of their items
        self._approved: list[tuple[Approval, asyncio.Future[HostedResult]]] = []  # begun, and not shown yet
        self._started: deque[asyncio.Task[HostedResult]] = deque()  # calls whose outcome the stream has not got
        self._running: KeptTasks[HostedResult] = KeptTasks()

    @property
    def losses(self) -> Sequence[HostedLoss]:
        """What of the calls so far could not be honoured."""
        return self._run.losses

    @property
    def calls(self) -> Sequence[MadeCall]:
        """The calls made so far, in order."""
        return self._run.calls

    @property
    def out_of_calls(self) -> bool:
        """Whether no further call is permitted."""
        return len(self._run.calls) >= self._run.limits.calls

    def close(self) -> None:
        """Stop what runs."""
        self._running.cancel()

    async def run_approved(self, body: Mapping[str, Any], tools: ToolTable) -> Item:
        """Run the calls that the client has approved, unless their approvals were used before. Return the chat request with
        their results. Raise `ApiError`."""
        most = self._run.limits.calls
        taken = await self._take(self.approved[:most])
        self._approved = [(call, self._start(_target(call), call.arguments)) for call in taken]
        self._approved += [(call, _finished(self._run.refusal(_target(call)))) for call in self.approved[most:]]
        begun = dict(self._approved)
        if begun:
            await asyncio.wait(begun.values())
        for call, run in begun.items():
            if not run.cancelled() and (call_item := run.result().call) is not None:
                call_item.id = call.request_id
        names = {target._replace(needs_approval=False): name for name, target in tools.items()}
        results = [
            RunCall(
                call.request_id, names.get(_target(call), call.name), call.arguments or "{}", _approved_text(begun.get(call))
            )
            for call in self.approved
        ]
        self.approved = ()
        return with_approved(body, results, self._policy, may_call=not self.out_of_calls)

    async def _take(self, approved: Sequence[Approval]) -> Sequence[Approval]:
        """Use up approvals; return those that were not used before. Raise `ApiError` if the request itself gives another one,
        and has no message behind it: a client that keeps its history itself sends the approval for ever."""
        while used := await self._use_approvals([call.request_id for call in approved], self._response_id):
            for call in approved:
                if call.request_id in used and call.path.startswith("input") and not call.followed:
                    message = (
                        f"The approval of '{call.request_id[:100]}' was used already, by the response {used[call.request_id]}. "
                        "An approval runs its call once: continue from that response, or have the model ask again."
                    )
                    raise invalid_request(message, f"{call.path}.approval_request_id", "approval_already_used")
            approved = [call for call in approved if call.request_id not in used]
        return approved

    def approved_calls(self) -> list[ApprovedCall]:
        """Return the approved calls that were begun, once; those that still run are interrupted."""
        begun = self._approved
        self._approved = []
        calls = []
        for call, run in begun:
            outcome = self._outcome(run.result()) if run.done() and not run.cancelled() else None
            calls.append(ApprovedCall(call.request_id, call.server_label, call.name, call.arguments, outcome))
        return calls

    async def run_calls(self, translator: Translator, emit: Emit) -> None:
        """Run the calls that the stream waits for, all at once, and give it the outcomes in order."""
        while isinstance(needs := translator.needs, RunCalls):
            calls = needs.calls
            for call in calls[len(self._started) :]:
                self._started.append(self._start(call.target, call.arguments))
            task = self._started.popleft()
            await asyncio.wait({task})
            if translator.ended:  # a time limit, a cancel or the end of the gateway
                return
            result = task.result()
            done = translator.writer.done
            began = len(done)
            outcome = self._outcome(result)
            hosted = translator.options.hosted
            if hosted is not None and hosted.shows_results:
                sources = zip(outcome.sources, result.sources, strict=True)
                excerpts = tuple(msgspec.structs.replace(cited, excerpt=source.excerpt) for cited, source in sources)
                outcome = msgspec.structs.replace(outcome, text=result.text, sources=excerpts)
            events = translator.finish_call(outcome)
            if len(done) > began:  # the item of this call; others may have been closed after it
                self._keep(msgspec.json.decode(done[began]), calls[0], result)
            emit(events)

    def _keep(self, item: Item, call: CallToRun, result: HostedResult) -> None:
        self._made[item["id"]] = (call, result)
        if result.call is not None:
            result.call.id = item["id"]
        if item.get("output") != result.text:  # else the item of an MCP call has it all
            sources = tuple(self._cited(source) for source in result.sources)
            self.results[item["id"]] = KeptResult(_arguments(call), result.text, sources).encode()

    def with_results(self, items: Sequence[Item], translator: Translator) -> list[Item | RunCall]:
        """Return what the model said in its turn, with the results of the calls that were run."""
        parts: list[Item | RunCall] = []
        for item in items:
            if item["type"] in HOSTED_CALLS:
                call, result = self._made[item["id"]]
                name = chat_name(translator.options.tools, call.target, call.name)
                extra = json.loads(call.extra) if call.extra else None
                parts.append(RunCall(item["id"], name, _arguments(call), result.text, extra))
            else:
                parts.append(item)
        self._made = {}
        _tell_dropped(parts, translator.lifecycle.turn)
        return parts

    def _start(self, target: ToolTarget, arguments: str) -> asyncio.Task[HostedResult]:
        self.ran = True
        return self._running.begin(self._run.run(target, arguments))

    def _outcome(self, result: HostedResult) -> CallOutcome:
        sources = tuple(self._cited(source) for source in result.sources)
        return CallOutcome(dict(result.item), result.failed, sources, images=result.images)

    def _cited(self, source: Source) -> CitedSource:
        return CitedSource(self._run.numbers.number(source), source.title, source.url, source.file_id)


def _arguments(call: CallToRun) -> str:
    """Return the arguments as a chat server takes them: gpt-oss writes code as it is."""
    if not HOSTED[call.target.kind].item.text_argument:
        return call.arguments or "{}"
    try:
        return json.dumps(read_arguments(call.target, call.arguments), ensure_ascii=False)
    except ToolFailure:  # code whose end is missing
        return "{}"


def _target(call: Approval) -> ToolTarget:
    return ToolTarget("mcp", call.name, call.server_label)


def _tell_dropped(parts: list[Item | RunCall], turn: Turn) -> None:
    """Add to the result of the last call of a turn that further ones were dropped, if so."""
    calls = [(place, part) for place, part in enumerate(parts) if isinstance(part, RunCall)]
    if turn.dropped_calls and calls:
        place, last = calls[-1]
        parts[place] = last._replace(result=last.result + _DROPPED.format(len(turn.hosted_numbers), turn.dropped_calls))


def _finished(result: HostedResult) -> asyncio.Future[HostedResult]:
    future = asyncio.get_running_loop().create_future()
    future.set_result(result)
    return future


def _approved_text(run: asyncio.Future[HostedResult] | None) -> str:
    """Return the result of an approved call for the model; None is one that was run for an earlier request."""
    return INTERRUPTED if run is None or run.cancelled() else run.result().text


class FurtherTurns:
    """The turns after the first one of a response that may have several. `hosted` runs the tools of the gateway; None where
    the request declares none."""

    __slots__ = ("_most", "_parsers", "_policy", "hosted", "may_go_on")

    def __init__(self, parsers: ParserChoice, policy: Policy, most: int, hosted: HostedTurns | None) -> None:
        """`parsers` choose how their answers are read. `most` is the number of turns of a response, with the first one.
        `may_go_on`, if set, is asked before each turn after an early end."""
        self._parsers = parsers
        self._policy = policy
        self._most = most
        self.hosted = hosted
        self.may_go_on: Callable[[], bool] | None = None

    async def begin(self, body: Mapping[str, Any], translator: Translator) -> dict[str, Any]:
        """Begin the next turn of a translator that wants one. Return its chat request, given that of the last one. Raise
        `ApiError` if the model may not go on from an early end."""
        lifecycle = translator.lifecycle
        again = translator.needs == AnotherTurn(again=True)
        if again and self.may_go_on is not None and not self.may_go_on():
            raise server_error("The model was asked to go on as often as it may be in one turn of its user.")
        items = [msgspec.json.decode(text) for text in translator.writer.done[lifecycle.turn.first_item :]]
        items = [with_chat_name(item, translator.options.tools) for item in items]
        parts: list[dict[str, Any] | RunCall] = items
        may_call = len(lifecycle.turns) + 1 < self._most and not lifecycle.out_of_calls
        if self.hosted is not None:
            parts = self.hosted.with_results(items, translator)
            may_call = may_call and not self.hosted.out_of_calls
        policy = self._policy
        following = with_nudge(body, parts, policy) if again else with_turn(body, parts, policy, may_call=may_call)
        start = await self._parsers.start(following)
        markup = self._parsers.markup(following, start)
        translator.next_turn(markup, may_call=may_call, start=start)
        return following
