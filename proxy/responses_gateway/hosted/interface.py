"""The interface of hosted tools: a call of the model goes in, a result comes out.

A tool never ends a response. Whatever goes wrong is a `ToolFailure`, whose message the model reads and may act on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from responses_gateway.wire.hosted import ImageUsage, MadeCall, McpSession


class Source(NamedTuple):
    """Something that a result is taken from and that the model may cite: a web page (`url`), or a file (`file_id`). `title` is
    the page's title or the file's name. `excerpt`: how what the model read of it begins."""

    title: str
    url: str | None = None
    file_id: str | None = None
    excerpt: str = ""


@dataclass(frozen=True, slots=True)
class HostedResult:
    """The result of a call.

    `text`: what the model reads. `item`: the members that the result adds to the item of the call (`output` and `error` of an
    `mcp_call`, `action` of a `web_search_call`, `results` of a `file_search_call`, `outputs` of a `code_interpreter_call`).
    `sources`: what the model may cite. `failed`: the call failed, and `text` says why. `losses`: what could not be honoured, in
    words for the log. `session`: the session with the MCP server that answered. `call`: the call that it is the result of, once
    it was run. `images`: the tokens that images have cost, if the server told."""

    text: str
    item: Mapping[str, Any] = field(default_factory=dict)
    sources: Sequence[Source] = ()
    failed: bool = False
    losses: Sequence[str] = ()
    session: McpSession | None = None
    images: ImageUsage | None = None
    call: MadeCall | None = field(default=None, compare=False)


class HostedLoss(NamedTuple):
    """What of a request a hosted tool could not honour: the kind of tool, and why."""

    tool: str
    reason: str


class ToolFailure(Exception):
    """A call failed. The message is for the model: it says what to do differently. It contains no secrets, addresses of the
    operator's network or stack traces. `item` are members for the item of the call (an `error`)."""

    def __init__(self, message: str, item: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.item = item or {}


class HostedTool(Protocol):
    """One tool of one request. It may be called several times at once."""

    async def run(self, arguments: Mapping[str, Any]) -> HostedResult:
        """Run one call. Raise `ToolFailure`. Cancelling stops what runs; time limits are the caller's."""


@dataclass(frozen=True, slots=True)
class UnavailableTool:
    """A tool that cannot be called, and why."""

    failure: ToolFailure

    async def run(self, _arguments: Mapping[str, Any]) -> HostedResult:
        """Raise `ToolFailure`."""
        raise ToolFailure(str(self.failure), self.failure.item)
