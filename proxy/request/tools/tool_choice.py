"""`tool_choice`: what the backend is told, and which calls the gateway lets through."""

from __future__ import annotations

from typing import Any, NamedTuple

from proxy.request.fields import Object, missing, object_list, optional_text, shown, text
from proxy.request.loss_report import Ledger
from proxy.request.tools.catalog import Catalog
from proxy.request.tools.declarations import hosted_name
from proxy.wire.errors import ApiError, invalid_request
from proxy.wire.tools import ToolKind

MODES = ("auto", "none", "required")
MAX_ALLOWED_TOOLS = 128
#: Types of a choice that need no name: there is one such tool.
_BY_TYPE: dict[str, ToolKind] = {
    "local_shell": "local_shell",
    "shell": "shell",
    "apply_patch": "apply_patch",
    "tool_search": "tool_search",
}
_BY_NAME: dict[str, ToolKind] = {"function": "function", "custom": "custom"}


class Choice(NamedTuple):
    """`value`: the chat request's `tool_choice`, None to leave it out. `allowed`: chat names that may be called, None
    for no limit. `offered`: chat names of the tools to send, None for all."""

    value: str | Object | None = None
    allowed: frozenset[str] | None = None
    offered: frozenset[str] | None = None


class ChoiceReader:
    """Reads `tool_choice` against the tools that were declared; `hosted` are the types of the tools that were not kept."""

    def __init__(self, catalog: Catalog, hosted: set[str], ledger: Ledger) -> None:
        self._catalog = catalog
        self._hosted = {hosted_name(kind) or kind for kind in hosted}
        self._ledger = ledger

    def read(self, choice: str | Object | None) -> Choice:
        """Raises `ApiError` 400 for a malformed choice, or one that names a tool that is not declared."""
        if choice is None:
            return Choice()
        if isinstance(choice, str):
            return self._mode(choice, "tool_choice", None)
        if text(choice, "type", "tool_choice") == "allowed_tools":
            return self._allowed_tools(choice)
        name = self._tool(choice, "tool_choice")
        if name is None:
            return Choice()
        only = frozenset((name,))
        return Choice({"type": "function", "function": {"name": name}}, only)

    def _mode(self, mode: str, param: str, offered: frozenset[str] | None) -> Choice:
        if mode not in MODES:
            raise _unknown_value(mode, param)
        if mode == "none":
            return Choice(mode, frozenset(), offered)
        callable_tools = self._catalog.functions if offered is None else offered
        if mode == "required" and not callable_tools:
            self._ledger.ignored("parameter", "tool_choice", "there are no tools to call", param)
        return Choice(mode, offered, offered)

    def _allowed_tools(self, choice: Object) -> Choice:
        pointers = object_list(choice.get("tools"), "tool_choice.tools")
        if not pointers:
            raise missing("tool_choice.tools")
        if len(pointers) > MAX_ALLOWED_TOOLS:
            raise invalid_request(f"At most {MAX_ALLOWED_TOOLS} allowed tools.", "tool_choice.tools", "invalid_value")
        found = (self._tools(pointer, f"tool_choice.tools[{index}]") for index, pointer in enumerate(pointers))
        offered = frozenset[str]().union(*found)
        mode = optional_text(choice, "mode", "tool_choice") or "auto"
        return self._mode(mode, "tool_choice.mode", offered)

    def _tools(self, pointer: Object, param: str) -> frozenset[str]:
        """The chat names of the tools that are pointed at: one, all of a namespace, or none (a hosted tool)."""
        if text(pointer, "type", param) == "namespace":
            namespace = text(pointer, "name", param)
            names = self._catalog.names_in(namespace)
            if not names:
                raise _undeclared(namespace, f"{param}.name")
            return names
        name = self._tool(pointer, param)
        return frozenset() if name is None else frozenset((name,))

    def _tool(self, pointer: Object, param: str) -> str | None:
        """The chat name of the tool that is pointed at; None if it is a hosted tool (put on record)."""
        kind = text(pointer, "type", param)
        if kind in _BY_NAME:
            name = text(pointer, "name", param)
            found = self._catalog.find(_BY_NAME[kind], name, optional_text(pointer, "namespace", param))
            if found is None:
                raise _undeclared(name, f"{param}.name")
            return found
        if kind in _BY_TYPE and (found := self._catalog.find(_BY_TYPE[kind], kind, None)) is not None:
            return found
        hosted = hosted_name(kind) or kind
        if hosted in self._hosted:
            self._ledger.ignored("parameter", "tool_choice", "hosted tools are not run here", param)
            return None
        raise _undeclared(kind, f"{param}.type")


def _unknown_value(value: Any, param: str) -> ApiError:
    choices = ", ".join(f"'{mode}'" for mode in MODES)
    return invalid_request(f"Invalid value: {shown(value)}. Supported values are: {choices}.", param, "invalid_value")


def _undeclared(name: str, param: str) -> ApiError:
    return invalid_request(f"Tool choice {shown(name)} not found in 'tools'.", param, "invalid_value")
