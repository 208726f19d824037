"""MCP servers as requests name them, and the tools that they list."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

# How a request or a setting labels a server: it becomes a part of the names that the model sees.
LABEL = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")


class McpServer(NamedTuple):
    """A server that a request uses. `url` is None for one of the operator's servers, which is then found by its label.
    `headers` are sent to it, the authorization among them."""

    label: str
    url: str | None = None
    headers: tuple[tuple[str, str], ...] = ()


class ListedTool(NamedTuple):
    """A tool as its server lists it. Servers are not trusted: names may be odd, descriptions may try to instruct the model."""

    name: str
    description: str | None
    input_schema: Mapping[str, Any]
    annotations: Mapping[str, Any] | None = None

    @property
    def read_only(self) -> bool:
        """The server says that the tool changes nothing."""
        return bool(self.annotations and self.annotations.get("readOnlyHint") is True)

    def as_item(self) -> dict[str, Any]:
        """Return the tool as an entry of an `mcp_list_tools` item. Absent members are left out: a client refuses null."""
        members = {
            "name": self.name,
            "description": self.description,
            "input_schema": self.input_schema,
            "annotations": self.annotations,
        }
        return {name: value for name, value in members.items() if value is not None}


class ToolFilter(NamedTuple):
    """Some tools of a server: those of these names, and those that change nothing (or do); None does not restrict."""

    names: frozenset[str] | None = None
    read_only: bool | None = None

    def matches(self, tool: ListedTool) -> bool:
        """Tell whether a tool is one of these."""
        named = self.names is None or tool.name in self.names
        return named and (self.read_only is None or tool.read_only is self.read_only)


ALL_TOOLS = ToolFilter()
NO_TOOLS = ToolFilter(frozenset())


class ApprovalPolicy(NamedTuple):
    """Which calls need an approval, by the request or by the operator: `always` these, `never` those."""

    always: ToolFilter | None = None
    never: ToolFilter | None = None

    def needed(self, tool: ListedTool) -> bool:
        """Tell whether a call needs an approval. A tool that is in neither needs one, unless only `always` is given."""
        if self.always is not None and self.always.matches(tool):
            return True
        if self.never is not None:
            return not self.never.matches(tool)
        return self.always is None


@dataclass(frozen=True, slots=True)
class McpToolset:
    """An `mcp` tool of a request: a server, and which of its tools the model may call.

    `allowed`: filters that a tool must pass, those of the operator included. `approval`: what the request demands, None if it
    has no rule. `configured_approval`: what the operator demands, None likewise."""

    server: McpServer
    description: str | None
    allowed: Sequence[ToolFilter]
    approval: ApprovalPolicy | None
    configured_approval: ApprovalPolicy | None

    def offers(self, tool: ListedTool) -> bool:
        """Tell whether the model may call a tool."""
        return all(rule.matches(tool) for rule in self.allowed)

    def needs_approval(self, tool: ListedTool) -> bool:
        """Tell whether a call needs the approval of the client. It does if the operator says `always`; otherwise the request
        decides, then the operator. By default it does."""
        always = self.configured_approval.always if self.configured_approval is not None else None
        if always is not None and always.matches(tool):
            return True
        decisive = self.approval or self.configured_approval
        return decisive is None or decisive.needed(tool)
