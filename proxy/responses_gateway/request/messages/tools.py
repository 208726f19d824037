"""Read the tools of a Messages body, and which of them the model may call, as those of a Responses request."""

from __future__ import annotations

from collections.abc import Container, Iterable

from responses_gateway.request.fields import (
    Object,
    filled_text,
    object_list,
    optional_flag,
    optional_object,
    optional_text,
    quote,
    required_object,
    text,
)
from responses_gateway.request.loss_report import LossReport
from responses_gateway.request.messages.places import Places
from responses_gateway.wire.errors import invalid_request
from responses_gateway.wire.hosted_kinds import WEB_SEARCH

# Claude Code's stand-in for the tools that it has not fetched yet; nothing can be done with it.
_PLACEHOLDER = "DeferredToolPlaceholder"
# Tools of Anthropic's servers that the gateway's search takes the place of, by the beginning of their types.
_WEB = ("web_search", "web_fetch")
# Their options that have no meaning here, or that are read.
_WEB_OPTIONS = frozenset({
    "type", "name", "max_uses", "allowed_domains", "blocked_domains", "user_location", "cache_control", "allowed_callers",
    "defer_loading", "strict", "citations", "max_content_tokens",
})  # fmt: skip
_CHOICES = {"auto": "auto", "any": "required", "none": "none"}


class ToolReader:
    """Reads the tools of one request. `hosted` are the kinds of tools that the gateway runs."""

    def __init__(self, hosted: Container[str], places: Places, report: LossReport) -> None:
        self._hosted = hosted
        self._places = places.tools
        self._report = report
        self._declared: list[Object] = []
        self._deferred: dict[str, tuple[Object, str]] = {}
        self._web: set[str] = set()  # names of the web tools

    def read(self, tools: object, choice: Object | None, referenced: Iterable[str]) -> Object:
        """Return the fields of a Responses request for the tools and the choice. `referenced` are the deferred tools that the
        conversation has named, in order. Raise `ApiError` 400."""
        for index, tool in enumerate(object_list(tools, "tools")):
            path = f"tools[{index}]"
            kind = optional_text(tool, "type", path) or "custom"
            if kind != "custom":
                self._web_tool(kind, tool, path)
            elif tool.get("name") != _PLACEHOLDER:
                self._custom(tool, path)
        if self._deferred:
            self._report.adapted("tool", "defer_loading", "offered once a tool_reference names it")
        for name in referenced:  # last, so that the tools before them stay where they are
            if name in self._deferred:
                self._declare(*self._deferred.pop(name))
        value, parallel = self._choice(choice)
        if not self._declared:
            return {}
        return {"tools": self._declared, "tool_choice": value, "parallel_tool_calls": parallel}

    def _declare(self, tool: Object, path: str) -> None:
        self._declared.append(tool)
        self._places.append(path)

    def _custom(self, tool: Object, path: str) -> None:
        function = _function(tool, path)
        if optional_flag(tool, "defer_loading", path):
            self._deferred.setdefault(function["name"], (function, path))
        else:
            self._declare(function, path)

    def _web_tool(self, kind: str, tool: Object, path: str) -> None:
        """Read one of Anthropic's web tools. Raise `ApiError` 400 for a tool that is not run here."""
        name = next((name for name in _WEB if kind.startswith(name)), None)
        if name is None or "web_search" not in self._hosted:
            reason = f"it is run by the gateway only with the setting {WEB_SEARCH.setting}"
            if name is None:
                reason = "tools of Anthropic's servers are not run here; tools of your own have an input_schema"
            error = f"{path}.type: the tool {quote(kind)} is not available: {reason}."
            raise invalid_request(error, f"{path}.type", "unsupported_value")
        if name == "web_fetch":
            self._report.adapted("tool", "web_fetch", "offered as functions that open a page and find text in it")
        unknown = [option for option in tool if option not in _WEB_OPTIONS]
        if unknown:
            self._report.ignored("tool", "options", f"not known: {', '.join(unknown)[:100]}", f"{path}.{unknown[0]}")
        declared = _web_declaration(name, tool, path)
        if name in self._web:
            self._report.ignored("tool", "declared_again", "a tool of this name was declared before", path)
        else:
            self._declare(declared, path)
            self._web.add(name)

    def _choice(self, choice: Object | None) -> tuple[str | Object | None, bool | None]:
        """Return which tools may be called, and whether several at once."""
        if choice is None:
            return None, None
        kind = text(choice, "type", "tool_choice")
        if kind not in _CHOICES and kind != "tool":
            supported = "'auto', 'any', 'tool', 'none'"
            error = f"tool_choice.type: invalid value {quote(kind)}. Supported values are: {supported}."
            raise invalid_request(error, "tool_choice.type", "invalid_value")
        parallel = False if optional_flag(choice, "disable_parallel_tool_use", "tool_choice") else None
        if not self._declared:
            if kind in ("any", "tool"):
                self._report.ignored("parameter", "tool_choice", "there are no tools", "tool_choice")
            return None, None
        if kind != "tool":
            return _CHOICES[kind], parallel
        name = filled_text(choice, "name", "tool_choice")
        if any(tool.get("name") == name for tool in self._declared):
            return {"type": "function", "name": name}, parallel
        if name in self._web:
            return {"type": name}, parallel
        error = f"tool_choice.name: the tool {quote(name)} is not in `tools`."
        raise invalid_request(error, "tool_choice.name", "invalid_value")


def _function(tool: Object, path: str) -> Object:
    schema = required_object(tool, "input_schema", path)
    function: Object = {
        "type": "function",
        "name": filled_text(tool, "name", path),
        "parameters": {name: value for name, value in schema.items() if name != "$schema"},
    }
    description = optional_text(tool, "description", path)
    if description:
        function["description"] = description
    if optional_flag(tool, "strict", path):
        function["strict"] = True
    return function


def _web_declaration(name: str, tool: Object, path: str) -> Object:
    """Return a tool of the web as a Responses request has it (`Policy.separate_web_tools`)."""
    declared: Object = {"type": name}
    filters = {name: tool[name] for name in ("allowed_domains", "blocked_domains") if tool.get(name) is not None}
    if filters:
        declared["filters"] = filters
    location = optional_object(tool, "user_location", path)
    if location is not None:
        declared["user_location"] = location
    uses = tool.get("max_uses")
    if uses is not None:
        if not isinstance(uses, int) or isinstance(uses, bool) or uses < 1:
            raise invalid_request(
                f"{path}.max_uses: a number of uses is expected, at least 1.", f"{path}.max_uses", "invalid_value"
            )
        declared["max_uses"] = uses
    return declared
