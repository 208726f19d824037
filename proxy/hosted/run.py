"""The hosted tools of one response, while it is made: which there are, and the bounds of what they may take."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from proxy.hosted.calls import HostedResult, HostedTool, Source, ToolFailure
from proxy.wire.tools import ToolTarget


class Limits(NamedTuple):
    """What the hosted calls of one response may take. `turns`: of the model; `call_seconds`: one call; `total_seconds`: all
    calls together; `result_bytes`: what the model is shown of one result."""

    turns: int = 16
    call_seconds: float = 60.0
    total_seconds: float = 600.0
    result_bytes: int = 64 * 1024


# Is told of each call: the kind of tool, how it ended, the seconds that it took.
Observe = Callable[[str, str, float], None]
# Is told of a defect of our own.
ReportDefect = Callable[[ToolTarget, Exception], None]

_any_object = msgspec.json.Decoder(dict[str, Any])


class SourceNumbers:
    """The numbers by which the model cites the sources of one response: the same source has the same number."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[str | None, str | None], int] = {}

    def number(self, source: Source) -> int:
        """Return the number of a source, from 1."""
        return self._numbers.setdefault((source.url, source.file_id), len(self._numbers) + 1)


@dataclass(slots=True)
class HostedRun:
    """The tools of one response. Results are cut to the limit of bytes."""

    tools: Mapping[ToolTarget, HostedTool]
    limits: Limits
    numbers: SourceNumbers
    observe: Observe
    report_defect: ReportDefect
    spent: float = 0.0  # seconds
    losses: list[str] = field(default_factory=list)

    async def run(self, target: ToolTarget, arguments: str) -> HostedResult:
        """Run one call; `arguments` is what the model wrote. Whatever goes wrong is a failed result."""
        began = time.monotonic()
        outcome = "failed"
        try:
            async with asyncio.timeout(min(self.limits.call_seconds, max(0.0, self.limits.total_seconds - self.spent))):
                result = await self._tool(target).run(read_arguments(target, arguments))
            outcome = "failed" if result.failed else "completed"
        except ToolFailure as failure:
            result = _failed(target, str(failure), failure.item)
        except TimeoutError:
            outcome = "timeout"
            result = _failed(target, "The tool did not answer in time.")
        except asyncio.CancelledError:
            outcome = "cancelled"
            raise
        except Exception as defect:  # a tool never ends a response
            outcome = "defect"
            self.report_defect(target, defect)
            result = _failed(target, "The tool failed.")
        finally:
            seconds = time.monotonic() - began
            self.spent += seconds
            self.observe(target.kind, outcome, seconds)
        self.losses += result.losses
        return self._cut(target, result)

    def _tool(self, target: ToolTarget) -> HostedTool:
        tool = self.tools.get(target._replace(needs_approval=False, expects_ciphertext=False))
        if tool is None:
            raise ToolFailure("There is no such tool.")
        return tool

    def _cut(self, target: ToolTarget, result: HostedResult) -> HostedResult:
        """Return the result without what is too much for the model."""
        data = result.text.encode("utf-8", "replace")
        if len(data) <= self.limits.result_bytes:
            return result
        self.losses.append(f"a result of {target.kind} was cut at {self.limits.result_bytes} bytes")
        shown = data[: self.limits.result_bytes].decode("utf-8", "ignore")
        text = f"{shown}\n[cut: the result has {len(data)} bytes]"
        item = {**result.item, "output": text} if result.item.get("output") == result.text else result.item
        return HostedResult(text, item, result.sources, result.failed, result.losses)


def read_arguments(target: ToolTarget, arguments: str) -> dict[str, Any]:
    """Return the arguments as an object. Code may stand there as it is: gpt-oss writes it so. Raise `ToolFailure`."""
    try:
        return _any_object.decode(arguments.encode("utf-8", "replace") or b"{}")
    except (msgspec.DecodeError, RecursionError):
        if target.kind == "code_interpreter":
            return {"code": arguments}
        raise ToolFailure("The arguments are not a JSON object. Call the tool again.") from None


def _failed(target: ToolTarget, message: str, item: Mapping[str, Any] | None = None) -> HostedResult:
    members: dict[str, Any] = dict(item or {})
    if target.kind == "mcp" and "error" not in members:
        members["error"] = {"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": message}]}
    return HostedResult(f"Error: {message}", members, failed=True)
