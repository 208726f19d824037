"""Runs the hosted tools of one response, within limits of time and size."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import msgspec

from responses_gateway.hosted.interface import HostedLoss, HostedResult, HostedTool, Source, ToolFailure
from responses_gateway.hosted.result_text import truncate
from responses_gateway.wire.hosted import CitedSource, MadeCall, citable
from responses_gateway.wire.hosted_kinds import HOSTED
from responses_gateway.wire.json_text import CustomInput, read_object
from responses_gateway.wire.tools import ToolTarget, any_tool_of


class HostedLimits(NamedTuple):
    """Limits of the hosted calls of one response. `calls`: of all turns together; `call_seconds`: one call, `code_seconds`: one
    run of code; `total_seconds`: all calls together; `calls_at_once`: others wait; `result_bytes`: what the model is shown of
    one result."""

    calls: int = 128
    call_seconds: float = 60.0
    code_seconds: float = 60.0
    total_seconds: float = 600.0
    calls_at_once: int = 16
    result_bytes: int = 64 * 1024


# Called after each call with the kind of tool, the outcome, and the seconds that it took.
Observe = Callable[[str, str, float], None]
# Called with each defect of the gateway.
ReportDefect = Callable[[ToolTarget, Exception], None]

_NO_TIME = "The time for the tools of this response is used up. Answer without calling any."
_NO_CALLS = "This call was not run: the limit of tool calls in this response ({}) is reached. Answer without calling any."
_LATE = "The tool did not answer in time."
# The code of a request that was not answered in time, in MCP.
_TIMED_OUT = -32001
_NO_OBJECT = "The arguments are not a JSON object. Call the tool again."


class SourceNumbers:
    """The numbers by which the model cites the sources of one response: the same source has the same number. Those of earlier
    responses that the model still sees keep theirs, and no other source gets one of them."""

    def __init__(self, earlier: Sequence[CitedSource] = ()) -> None:
        self.known = citable(earlier)
        self._numbers = {(source.url, source.file_id): number for number, source in self.known.items()}
        self._last = max((source.number for source in earlier), default=0)

    def number(self, source: Source) -> int:
        """Return the number of a source, from 1."""
        key = (source.url, source.file_id)
        if key not in self._numbers:
            self._last += 1
            self._numbers[key] = self._last
        return self._numbers[key]


@dataclass(slots=True)
class ToolRunner:
    """The tools of one response. Results are cut to the limit of bytes. `calls` are those made so far, in order."""

    tools: Mapping[ToolTarget, HostedTool]
    limits: HostedLimits
    numbers: SourceNumbers
    observe: Observe
    report_defect: ReportDefect
    spent: float = 0.0  # seconds
    losses: list[HostedLoss] = field(default_factory=list)
    calls: list[MadeCall] = field(default_factory=list)
    _places: asyncio.Semaphore = field(init=False)

    def __post_init__(self) -> None:
        self._places = asyncio.Semaphore(self.limits.calls_at_once)

    async def run(self, target: ToolTarget, arguments: str) -> HostedResult:
        """Run one call, once fewer are running than may run at once; `arguments` is what the model wrote. Whatever goes wrong
        is a failed result."""
        async with self._places:
            return await self._run(target, arguments)

    def refusal(self, target: ToolTarget) -> HostedResult:
        """Return the result of a call that is one too many."""
        return _failed(target, _NO_CALLS.format(self.limits.calls))

    async def _run(self, target: ToolTarget, arguments: str) -> HostedResult:
        made = MadeCall(target, time.monotonic())
        self.calls.append(made)
        outcome = "failed"
        try:
            seconds = self._seconds(target)
            if len(self.calls) > self.limits.calls:
                return self.refusal(target)
            if target.needs_approval:  # which is not asked for where the arguments cannot be read
                raise ToolFailure(_NO_OBJECT)
            async with asyncio.timeout(seconds):
                result = await self._tool(target).run(read_arguments(target, arguments))
            outcome = "failed" if result.failed else "completed"
            made.tool_failed = result.failed
            made.session = result.session
        except ToolFailure as failure:
            result = _failed(target, str(failure), failure.item)
        except TimeoutError:
            outcome = "timeout"
            result = _failed(target, _LATE, _late_item(target))
        except asyncio.CancelledError:
            outcome = "cancelled"
            raise
        except Exception as defect:  # a tool never ends a response
            outcome = "defect"
            self.report_defect(target, defect)
            result = _failed(target, "The tool failed.")
        finally:
            made.seconds = time.monotonic() - made.began
            made.outcome = outcome
            self.spent += made.seconds
            self.observe(target.kind, outcome, made.seconds)
        self.losses += [HostedLoss(target.kind, reason) for reason in result.losses]
        return replace(self._cut(target, _encodable(result)), call=made)

    def _seconds(self, target: ToolTarget) -> float:
        """Return how long a call may take. Raise `ToolFailure` if no time is left."""
        most = self.limits.code_seconds if target.kind == "code_interpreter" else self.limits.call_seconds
        left = self.limits.total_seconds - self.spent
        if left <= 0:
            raise ToolFailure(_NO_TIME)
        return min(most, left)

    def _tool(self, target: ToolTarget) -> HostedTool:
        tool = self.tools.get(target._replace(needs_approval=False, expects_ciphertext=False))
        if tool is None and target.namespace is not None:
            tool = self.tools.get(any_tool_of(target.namespace)[1])
        if tool is None:
            raise ToolFailure("There is no such tool.")
        return tool

    def _cut(self, target: ToolTarget, result: HostedResult) -> HostedResult:
        """Return the result without what is too much for the model."""
        text, was_cut = truncate(result.text, self.limits.result_bytes)
        if was_cut:
            self.losses.append(HostedLoss(target.kind, f"a result was cut at {self.limits.result_bytes} bytes"))
        return replace(result, text=text)


def read_arguments(target: ToolTarget, arguments: str) -> dict[str, Any]:
    """Return the arguments as an object. Raise `ToolFailure`."""
    if member := HOSTED[target.kind].item.text_argument:
        return _read_text(member, arguments)
    members = {} if arguments.strip() in ("", "null") else read_object(arguments)
    if members is None:
        raise ToolFailure(_NO_OBJECT)
    return members


def _read_text(member: str, arguments: str) -> dict[str, Any]:
    """Return the arguments with the text that the item of the call shows, so that nothing else is run. gpt-oss writes code
    without JSON. Raise `ToolFailure` for a text whose end is missing."""
    reader = CustomInput(member=member)
    text = reader.feed(arguments) + reader.finish(arguments)
    if reader.expected and not reader.closed:
        raise ToolFailure(_NO_OBJECT)
    members = None if reader.expected else read_object(arguments)
    if members is not None and text in ("", arguments):  # an object without it: the tool reports that
        return members
    return {member: text}


def _encodable(result: HostedResult) -> HostedResult:
    """Return a result without half surrogate pairs, which no JSON for a client, a backend or the store may contain."""
    parts = (result.text, result.item, result.sources)
    try:
        msgspec.json.encode(parts)
    except UnicodeEncodeError:
        text, item, sources = json.loads(json.dumps(parts, ensure_ascii=False).encode("utf-8", "replace"))
        return replace(result, text=text, item=item, sources=[Source(*source) for source in sources])
    return result


def _late_item(target: ToolTarget) -> dict[str, Any]:
    """Return the members of a call whose tool did not answer in time, as the tool would report it itself."""
    if target.kind != "mcp":
        return {}
    return {"error": {"type": "mcp_protocol_error", "code": _TIMED_OUT, "message": _LATE}}


def _failed(target: ToolTarget, message: str, item: Mapping[str, Any] | None = None) -> HostedResult:
    members: dict[str, Any] = dict(item or {})
    if target.kind == "mcp" and "error" not in members:
        members["error"] = {"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": message}]}
    return HostedResult(f"Error: {message}", members, failed=True)
