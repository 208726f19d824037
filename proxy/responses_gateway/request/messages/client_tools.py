"""The tools of Anthropic's API that clients run, as functions: their inputs are those that Anthropic documents for each
version, so that the client can run the calls. Open models were not trained with them, which is why they are described."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from responses_gateway.request.fields import Object
from responses_gateway.wire.hosted_kinds import Schema, arguments, described

_DATED = re.compile(r"(.+?)_(\d{8})")
# A type without a date, or one of tomorrow, is read as the newest that is known.
_NEWEST = 99999999
# Versions from which on a tool has another form.
_NO_UNDO = 20250429
_INSERT_TEXT = 20250728
_MOUSE_BUTTONS = 20250124
_ZOOM = 20251124


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
