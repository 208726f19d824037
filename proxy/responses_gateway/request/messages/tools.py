"""Read the tools of a Messages body, and which of them the model may call, as those of a Responses request.

A tool with an `input_schema` is a function, whatever its type. Of the tools that Anthropic knows by type, those that clients
run are offered as functions with the inputs that Anthropic documents for each version, so that the client can run the calls,
and are described, because open models were not trained with them. The web's are run by the gateway, if so configured, and all
others, which only Anthropic's servers can run or nobody knows here yet, are left out with a loss: one of them must not end a
session."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable
from typing import NamedTuple

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
from responses_gateway.wire.errors import ApiError, invalid_request
from responses_gateway.wire.hosted_kinds import WEB_SEARCH, Schema, arguments, described

_DATED = re.compile(r"(.+?)_(\d{8})")
_NEWEST = 99999999  # a type without a date, or one of tomorrow, is read as the newest that is known
# Versions from which on a tool has another form.
_NO_UNDO = 20250429
_INSERT_TEXT = 20250728
_MOUSE_BUTTONS = 20250124
_ZOOM = 20251124
# Claude Code's stand-in for the tools that it has not fetched yet; nothing can be done with it.
_PLACEHOLDER = "DeferredToolPlaceholder"
# Tools of Anthropic's servers that the gateway's search takes the place of, by the beginning of their types.
_WEB = ("web_search", "web_fetch")
# Their options that have no meaning here, or that are read.
_WEB_OPTIONS = frozenset({
    "type", "name", "max_uses", "allowed_domains", "blocked_domains", "user_location", "cache_control", "allowed_callers",
    "defer_loading", "strict", "citations", "max_content_tokens",
})  # fmt: skip
# Other tools that only Anthropic's servers can run, by the beginning of their types.
SERVER_TOOLS = ("advisor", "code_execution", "tool_search")
_CHOICES = {"auto": "auto", "any": "required", "none": "none"}


class ClientTool(NamedTuple):
    """A tool as the model is told of it. `kind` is its name in the loss report."""

    kind: str
    description: str
    parameters: Schema


def client_tool(kind: str, tool: Object) -> ClientTool | None:
    """Return a tool of this type; None if clients run no such tool. `tool` has its options, which may be anything."""
    dated = _DATED.fullmatch(kind)
    family = kind if dated is None else dated[1]
    version = _NEWEST if dated is None else int(dated[2])
    tell = _FAMILIES.get(family)
    return None if tell is None else ClientTool(family, *tell(version, tool))


def _integers(count: int, description: str) -> Schema:
    return {"type": "array", "items": {"type": "integer"}, "minItems": count, "maxItems": count, "description": description}


def _chosen(description: str, choices: list[str]) -> Schema:
    return {"type": "string", "enum": choices, "description": description}


def _bash(_version: int, _tool: Object) -> tuple[str, Schema]:
    description = "Runs a command in a bash session on the user's machine, which keeps its state, and returns the output."
    properties = {
        "command": described("string", "The command to run. Required unless `restart` is true."),
        "restart": described("boolean", "True starts the session anew, instead of running a command."),
    }
    return description, {"type": "object", "properties": properties, "additionalProperties": False}


def _text_editor(version: int, _tool: Object) -> tuple[str, Schema]:
    commands = ["view", "create", "str_replace", "insert"]
    undoes = ""
    if version < _NO_UNDO:
        commands.append("undo_edit")
        undoes = "; `undo_edit` takes the last edit of a file back"
    inserted = "insert_text" if version >= _INSERT_TEXT else "new_str"
    description = (
        "Views, creates and edits text files on the user's machine. `view` shows a file with its numbered lines, or lists "
        "a directory; `create` writes `file_text` to a file; `str_replace` replaces `old_str`, which must stand in the file "
        f"exactly once, by `new_str`; `insert` puts `{inserted}` behind the line `insert_line`{undoes}."
    )
    return description, arguments(["command", "path"], {"command": _chosen("What to do.", commands), **_edits(inserted)})


def _edits(inserted: str) -> dict[str, Schema]:
    """Return what edits of a file have besides their command; `inserted` is the name of the text that `insert` takes."""
    properties = {
        "path": described("string", "The absolute path of the file or directory."),
        "view_range": _integers(2, "For `view`: the first and the last line to show; -1 is the end of the file."),
        "file_text": described("string", "For `create`: the text of the file."),
        "old_str": described("string", "For `str_replace`: the text to be replaced, with its white space."),
        "new_str": described("string", "For `str_replace`: the text in its place."),
        "insert_line": described(
            "integer", "For `insert`: the line behind which the text goes; 0 is the beginning of the file."
        ),
    }
    if inserted == "new_str":
        properties["new_str"] = described("string", "For `str_replace`: the text in its place. For `insert`: the new text.")
    else:
        properties[inserted] = described("string", "For `insert`: the new text.")
    return properties


def _memory(_version: int, _tool: Object) -> tuple[str, Schema]:
    description = (
        "Keeps files in the directory /memories, which outlast this conversation. View the directory before a task, and note "
        "what later conversations should know. `view` shows a file or lists a directory; `create` writes a file; `str_replace` "
        "and `insert` edit one; `delete` removes a file or directory; `rename` moves `old_path` to `new_path`."
    )
    commands = ["view", "create", "str_replace", "insert", "delete", "rename"]
    properties = {
        "command": _chosen("What to do.", commands),
        **_edits("insert_text"),
        "path": described("string", "The file or directory, for example /memories/notes.md. Required except for `rename`."),
        "old_path": described("string", "For `rename`: the present path."),
        "new_path": described("string", "For `rename`: the new path."),
    }
    return description, arguments(["command"], properties)


def _computer(version: int, tool: Object) -> tuple[str, Schema]:
    actions = ["screenshot", "left_click", "right_click", "middle_click", "double_click", "left_click_drag", "mouse_move"]
    actions += ["cursor_position", "type", "key"]
    if version >= _MOUSE_BUTTONS:
        actions += ["hold_key", "wait", "scroll", "triple_click", "left_mouse_down", "left_mouse_up"]
    zooms = version >= _ZOOM and tool.get("enable_zoom") is True
    sides = (tool.get("display_width_px"), tool.get("display_height_px"))
    size = " The screen has {} by {} pixels.".format(*sides) if all(isinstance(side, int) for side in sides) else ""
    description = (
        f"Uses the screen, the mouse and the keyboard of a computer.{size} Coordinates are pixels from the upper left corner. "
        "Take a screenshot before you click, and another one to see what came of it."
    )
    properties = {
        "action": _chosen("What to do.", [*actions, "zoom"] if zooms else actions),
        "coordinate": _integers(2, "x and y, for clicks, `scroll` and `mouse_move`, and the end of `left_click_drag`."),
        "text": described("string", "For `type`: the text. For `key` and `hold_key`: the keys, as in xdotool (`ctrl+s`)."),
    }
    if version >= _MOUSE_BUTTONS:
        properties["start_coordinate"] = _integers(2, "x and y of the beginning of `left_click_drag`.")
        properties["scroll_direction"] = _chosen("For `scroll`.", ["up", "down", "left", "right"])
        properties["scroll_amount"] = described("integer", "For `scroll`: the number of steps of the wheel.")
        properties["duration"] = described("number", "For `hold_key` and `wait`: seconds.")
    if zooms:
        corners = "For `zoom`: x and y of the upper left corner, and of the lower right one, of what is to be shown larger."
        properties["region"] = _integers(4, corners)
    return description, arguments(["action"], properties)


_FAMILIES: dict[str, Callable[[int, Object], tuple[str, Schema]]] = {
    "bash": _bash,
    "text_editor": _text_editor,
    "memory": _memory,
    "computer": _computer,
}
CLIENT_TOOLS = tuple(_FAMILIES)


class ToolReader:
    """Reads the tools of one request. `hosted` are the kinds of tools that the gateway runs."""

    def __init__(self, hosted: Container[str], places: Places, report: LossReport) -> None:
        self._hosted = hosted
        self._places = places.tools
        self._report = report
        self._declared: list[Object] = []
        self._deferred: dict[str, tuple[Object, str]] = {}
        self._names_deferred = True  # the client does, once the model has searched for them
        self._web: set[str] = set()  # names of the web tools
        self._left_out: dict[str, ApiError | None] = {}  # by name, with what is said of one without which nothing is left

    def read(
        self, tools: object, choice: Object | None, referenced: Iterable[str], defined: Iterable[tuple[Object, str]]
    ) -> Object:
        """Return the fields of a Responses request for the tools and the choice. `referenced` are the deferred tools that the
        conversation has named, `defined` those that it has declared, both in order. Raise `ApiError` 400."""
        listed = object_list(tools, "tools")
        self._names_deferred = not any(str(tool.get("type")).startswith("tool_search") for tool in listed)
        for index, tool in enumerate(listed):
            self._read(tool, f"tools[{index}]")
        for tool, path in defined:
            self._read(tool, path)
        if self._deferred:
            self._report.adapted("tool", "defer_loading", "offered once a tool_reference names it")
        elif not self._declared:
            self._refuse_alone()
        for name in referenced:  # last, so that the tools before them stay where they are
            if name in self._deferred:
                self._declare(*self._deferred.pop(name))
        value, parallel = self._choice(choice)
        if not self._declared:
            return {}
        fields = {"tools": self._declared, "tool_choice": value, "parallel_tool_calls": parallel}
        return {name: value for name, value in fields.items() if value is not None}

    def _read(self, tool: Object, path: str) -> None:
        kind = optional_text(tool, "type", path) or "custom"
        if kind == "custom" or isinstance(tool.get("input_schema"), dict):
            if tool.get("name") != _PLACEHOLDER:
                self._function(_function(tool, path), tool, path)
        elif (run_by_client := client_tool(kind, tool)) is not None:
            self._report.adapted("tool", run_by_client.kind, "offered as a function")
            self._function(_declaration(run_by_client, tool, path), tool, path)
        elif (web := next((name for name in _WEB if kind.startswith(name)), None)) is not None:
            self._web_tool(web, kind, tool, path)
        else:
            self._leave_out(kind, tool, path)

    def _declare(self, tool: Object, path: str) -> None:
        self._declared.append(tool)
        self._places.append(path)

    def _function(self, function: Object, tool: Object, path: str) -> None:
        """Offer a function at once, or once the conversation names it. Where the search for tools was left out, nobody else
        would ever find it."""
        if optional_flag(tool, "defer_loading", path) and self._names_deferred:
            self._deferred.setdefault(function["name"], (function, path))
        else:
            self._declare(function, path)

    def _leave_out(self, kind: str, tool: Object, path: str) -> None:
        name = next((name for name in SERVER_TOOLS if kind.startswith(name)), "unknown")
        reason = f"{quote(kind)} is not a tool that is run here, or a function"
        if name == "tool_search":
            reason = "all tools are offered at once"
        self._report.ignored("tool", name, reason, f"{path}.type", matters=name != "tool_search")
        self._left_out[optional_text(tool, "name", path) or kind] = None

    def _web_tool(self, name: str, kind: str, tool: Object, path: str) -> None:
        """Read one of the two kinds of web tools."""
        if "web_search" not in self._hosted:
            reason = f"it is run by the gateway only with the setting {WEB_SEARCH.setting}"
            error = f"{path}.type: the tool {quote(kind)} is not available: {reason}."
            self._left_out[optional_text(tool, "name", path) or kind] = invalid_request(
                error, f"{path}.type", "unsupported_value"
            )
            self._report.ignored("tool", name, reason, f"{path}.type")
            return
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

    def _refuse_alone(self) -> None:
        """Raise `ApiError` 400 if a search is all that the request has: without it the model would make up what it has found,
        and Claude Code shows the reason as the result of its own tool."""
        error = next(filter(None, self._left_out.values()), None)
        if error is not None:
            raise error

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
        if name in self._left_out:
            self._report.ignored("parameter", "tool_choice", f"the tool {quote(name)} is not run here", "tool_choice")
            return None, parallel
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


def _declaration(known: ClientTool, tool: Object, path: str) -> Object:
    """Return a tool that the client runs as a function, which has the client's name for it."""
    name = filled_text(tool, "name", path)
    return {"type": "function", "name": name, "description": known.description, "parameters": known.parameters}


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
