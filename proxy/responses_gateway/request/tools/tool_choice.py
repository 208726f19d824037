"""Translate `tool_choice`: the value for the backend, and the calls that the gateway passes on."""

from __future__ import annotations

from typing import NamedTuple

from responses_gateway.request.fields import Object, missing, object_list, optional_text, quote, text
from responses_gateway.request.loss_report import LossReport
from responses_gateway.request.tools.builtin_tools import BUILTIN_TOOLS
from responses_gateway.request.tools.catalog import Catalog
from responses_gateway.request.tools.declarations import hosted_name
from responses_gateway.request.tools.hosted_tools import OPEN_PAGE, SEARCH
from responses_gateway.wire.errors import ApiError, invalid_request

MODES = ("auto", "none", "required")
MAX_ALLOWED_TOOLS = 128
# Types of tools that a choice names; of all others there is only one.
_NAMED = frozenset({"function", "custom"})


class ToolChoice(NamedTuple):
    """The translated choice.

    `value`: the chat request's `tool_choice`, None to omit it. `allowed`: chat names that may be called, None for any.
    `offered`: chat names of the tools to send, None for all."""

    value: str | Object | None = None
    allowed: frozenset[str] | None = None
    offered: frozenset[str] | None = None


ANY_TOOL = ToolChoice()


class ToolChoiceReader:
    """Reads `tool_choice`, which refers to the declared tools."""

    def __init__(self, catalog: Catalog, report: LossReport, *, separate_web_tools: bool) -> None:
        """`separate_web_tools`: as in `Policy`."""
        self._catalog = catalog
        self._separate_web_tools = separate_web_tools
        self._hosted = {hosted_name(kind) or kind for kind in catalog.hosted}
        self._report = report

    def read(self, choice: str | Object) -> ToolChoice:
        """Translate a choice. Raises `ApiError` 400 if it is malformed or names a tool that is not declared."""
        if isinstance(choice, str):
            return self._mode(choice, "tool_choice", None)
        if text(choice, "type", "tool_choice") == "allowed_tools":
            return self._allowed_tools(choice)
        hosted = self._hosted_tools(choice, "tool_choice")
        if len(hosted) > 1:
            return ToolChoice("required", hosted, hosted)
        name = next(iter(hosted), None) or self._tool(choice, "tool_choice")
        if name is None:
            return ANY_TOOL
        return ToolChoice({"type": "function", "function": {"name": name}}, frozenset((name,)))

    def _mode(self, mode: str, param: str, offered: frozenset[str] | None) -> ToolChoice:
        if mode not in MODES:
            choices = ", ".join(f"'{known}'" for known in MODES)
            raise invalid_request(f"Invalid value: {quote(mode)}. Supported values are: {choices}.", param, "invalid_value")
        if mode == "none":
            return ToolChoice(mode, frozenset(), offered)
        callable_tools = self._catalog.functions if offered is None else offered
        if mode == "required" and not callable_tools:
            self._report.ignored("parameter", "tool_choice", "there are no tools to call", param)
        return ToolChoice(mode, offered, offered)

    def _allowed_tools(self, choice: Object) -> ToolChoice:
        references = object_list(choice.get("tools"), "tool_choice.tools")
        if not references:
            raise missing("tool_choice.tools")
        if len(references) > MAX_ALLOWED_TOOLS:
            message = f"At most {MAX_ALLOWED_TOOLS} allowed tools can be named."
            raise invalid_request(message, "tool_choice.tools", "invalid_value")
        names = (self._tools(reference, f"tool_choice.tools[{index}]") for index, reference in enumerate(references))
        offered = frozenset[str]().union(*names)
        return self._mode(optional_text(choice, "mode", "tool_choice") or "auto", "tool_choice.mode", offered)

    def _tools(self, reference: Object, param: str) -> frozenset[str]:
        """Return the chat names of the tools that are referred to: one, all of a namespace, or none (a hosted tool)."""
        if text(reference, "type", param) == "namespace":
            namespace = text(reference, "name", param)
            names = self._catalog.names_in(namespace)
            if not names:
                raise _undeclared(namespace, f"{param}.name")
            return names
        hosted = self._hosted_tools(reference, param)
        if hosted:
            return hosted
        name = self._tool(reference, param)
        return frozenset() if name is None else frozenset((name,))

    def _hosted_tools(self, reference: Object, param: str) -> frozenset[str]:
        """Return the chat names of the hosted tools that are referred to; none if it is no hosted tool that can be run. A
        search is meant where a choice says `web_search`, if it is offered: the model opens pages that it has found."""
        declared = text(reference, "type", param)
        if self._separate_web_tools and declared == "web_fetch":
            return self._catalog.names_of("web_search", name=OPEN_PAGE.name)
        kind = hosted_name(declared)
        if kind == "mcp":
            label = optional_text(reference, "server_label", param)
            return self._catalog.names_of("mcp", label, optional_text(reference, "name", param))
        if kind == "web_search" and param == "tool_choice":
            return self._catalog.names_of("web_search", name=SEARCH.name) or self._catalog.names_of("web_search")
        return frozenset() if kind is None else self._catalog.names_of(kind)

    def _tool(self, reference: Object, param: str) -> str | None:
        """Return the chat name of the tool that is referred to, or None for a hosted tool, which is reported."""
        kind = text(reference, "type", param)
        if kind in _NAMED:
            name = text(reference, "name", param)
            chat_name = self._catalog.find(kind, name, optional_text(reference, "namespace", param))
            if chat_name is None:
                raise _undeclared(name, f"{param}.name")
            return chat_name
        if kind in BUILTIN_TOOLS and (chat_name := self._catalog.find(kind, kind, None)) is not None:
            return chat_name
        hosted = hosted_name(kind) or kind
        if hosted in self._hosted:
            self._report.ignored("parameter", "tool_choice", "hosted tools are not run here", param)
            return None
        raise _undeclared(kind, f"{param}.type")


def _undeclared(name: str, param: str) -> ApiError:
    return invalid_request(f"Tool choice {quote(name)} not found in 'tools'.", param, "invalid_value")
