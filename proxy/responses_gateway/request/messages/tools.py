"""Read the tools of a Messages body, and which of them the model may call, as those of a Responses request."""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping
from typing import Any, NamedTuple

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
    wrong_type,
)
from responses_gateway.request.loss_report import LossReport
from responses_gateway.request.messages.places import Places
from responses_gateway.request.tools.hosted_tools import HOSTED_SETTINGS
from responses_gateway.wire.errors import ApiError, invalid_request

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


class Tools(NamedTuple):
    """The tools of a Responses request: `declared`, the `choice`, and whether several may be called at once. `most_calls`: how
    many calls the gateway may run."""

    declared: list[Object]
    choice: str | Object | None
    parallel: bool | None
    most_calls: int | None


def read_tools(
    tools: object,
    choice: Object | None,
    referenced: Mapping[str, None],
    hosted: Container[str],
    places: Places,
    report: LossReport,
) -> Tools:
    """Read the tools. `referenced` are the deferred ones that the conversation has named, in order; `hosted` are the kinds of
    tools that the gateway runs. Raise `ApiError` 400."""
    declared: list[Object] = []
    later: dict[str, tuple[Object, str]] = {}
    searches: dict[str, Object] = {}
    most_calls: int | None = 0
    for index, tool in enumerate(object_list(tools, "tools")):
        path = f"tools[{index}]"
        kind = optional_text(tool, "type", path) or "custom"
        if kind == "custom":
            if tool.get("name") == _PLACEHOLDER:
                continue
            function = _function(tool, path)
            most_calls = None
            if optional_flag(tool, "defer_loading", path):
                later.setdefault(function["name"], (function, path))
            else:
                declared.append(function)
                places.tools.append(path)
        else:
            name = _web_tool(kind, path, hosted)
            search = _search(tool, path, report)
            if name == "web_fetch":
                report.adapted("tool", "web_fetch", "offered together with the search")
            uses = tool.get("max_uses")
            if most_calls is not None:
                most_calls = most_calls + uses if isinstance(uses, int) and uses > 0 else None
            if not searches:
                declared.append(search)
                places.tools.append(path)
            searches.setdefault(name, search)
    if later:
        report.adapted("tool", "defer_loading", "offered once a tool_reference names it")
    for name in referenced:  # last, so that the tools before them stay where they are
        if name in later:
            function, path = later[name]
            declared.append(function)
            places.tools.append(path)
    if most_calls is None and any(isinstance(tool.get("max_uses"), int) for tool in object_list(tools, "tools")):
        report.ignored("tool", "max_uses", "the gateway's own limits apply", "tools", matters=False)
    value, parallel = _choice(choice, declared, searches, report)
    return Tools(declared, value, parallel, most_calls or None)


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


def _web_tool(kind: str, path: str, hosted: Container[str]) -> str:
    """Return which of Anthropic's web tools this is. Raise `ApiError` 400 for a tool that is not run here."""
    name = next((name for name in _WEB if kind.startswith(name)), None)
    if name is not None and "web_search" in hosted:
        return name
    if name is None:
        reason = "tools of Anthropic's servers are not run here; declare tools of your own with an input_schema"
    else:
        reason = f"it is run by the gateway only with the setting {HOSTED_SETTINGS['web_search']}"
    raise invalid_request(
        f"{path}.type: the tool {quote(kind)} is not available: {reason}.", f"{path}.type", "unsupported_value"
    )


def _search(tool: Object, path: str, report: LossReport) -> Object:
    """Return the `web_search` tool of a Responses request."""
    search: Object = {"type": "web_search"}
    filters = {name: tool[name] for name in ("allowed_domains", "blocked_domains") if tool.get(name) is not None}
    if filters:
        search["filters"] = filters
    location = optional_object(tool, "user_location", path)
    if location is not None:
        search["user_location"] = location
    unknown = [name for name in tool if name not in _WEB_OPTIONS]
    if unknown:
        report.ignored("tool", "options", f"not known: {', '.join(unknown)[:100]}", f"{path}.{unknown[0]}")
    return search


def _choice(
    choice: Object | None, declared: Collection[Object], searches: Container[str], report: LossReport
) -> tuple[str | Object | None, bool | None]:
    if choice is None:
        return None, None
    kind = text(choice, "type", "tool_choice")
    parallel = False if optional_flag(choice, "disable_parallel_tool_use", "tool_choice") else None
    if kind not in _CHOICES and kind != "tool":
        supported = "'auto', 'any', 'tool', 'none'"
        error = f"tool_choice.type: invalid value {quote(kind)}. Supported values are: {supported}."
        raise invalid_request(error, "tool_choice.type", "invalid_value")
    if not declared:
        if kind in ("any", "tool"):
            report.ignored("parameter", "tool_choice", "there are no tools", "tool_choice")
        return None, None
    if kind != "tool":
        return _CHOICES[kind], parallel
    name = filled_text(choice, "name", "tool_choice")
    if name in searches and not any(tool.get("name") == name for tool in declared):
        return {"type": "web_search"}, parallel
    if not any(tool.get("name") == name for tool in declared):
        raise _undeclared(name)
    return {"type": "function", "name": name}, parallel


def _undeclared(name: str) -> ApiError:
    return invalid_request(f"tool_choice.name: the tool {quote(name)} is not in `tools`.", "tool_choice.name", "invalid_value")


def check_object(value: Any, path: str) -> Object:
    """Return an object. Raise `ApiError` 400."""
    if not isinstance(value, dict):
        raise wrong_type(path, "an object")
    return value
