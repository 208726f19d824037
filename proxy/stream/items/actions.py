"""Function arguments become the action object of a typed call item (`local_shell_call`, `shell_call`, ...)."""

from __future__ import annotations

import json
from typing import Any

from proxy.stream.writer import json_text
from proxy.wire.tools import ToolTarget


def action_json(target: ToolTarget, arguments: str) -> str | None:
    """Return the JSON members that carry the action in an item of the tool's type; None if the arguments do not fit."""
    try:
        value: Any = json.loads(arguments)
        members = _members(target, value) if isinstance(value, dict) else None
        if members is not None:
            members.encode()
    except (ValueError, RecursionError):  # not JSON, or half a surrogate pair, which cannot be sent
        return None
    return members


def _members(target: ToolTarget, value: dict[str, Any]) -> str | None:
    match target.kind:
        case "local_shell":
            return _local_shell(value)
        case "shell":
            return _shell(value)
        case "apply_patch":
            return _apply_patch(value)
        case _:
            return f'"execution":"client","arguments":{json_text(value)}'


def _local_shell(value: dict[str, Any]) -> str | None:
    command = value.get("command")
    if not _is_strings(command):
        return None
    action: dict[str, Any] = {
        "type": "exec",
        "command": command,
        "env": value.get("env") if isinstance(value.get("env"), dict) else {},
    }
    for name in ("timeout_ms", "user", "working_directory"):
        if value.get(name) is not None:
            action[name] = value[name]
    return f'"action":{json_text(action)}'


def _shell(value: dict[str, Any]) -> str | None:
    commands = value.get("commands")
    if not _is_strings(commands):
        return None
    action = {
        "commands": commands,
        "timeout_ms": value.get("timeout_ms"),
        "max_output_length": value.get("max_output_length"),
    }
    return f'"action":{json_text(action)}'


def _apply_patch(value: dict[str, Any]) -> str | None:
    operation = value.get("operation", value)
    if not isinstance(operation, dict) or not isinstance(operation.get("path"), str):
        return None
    kind = operation.get("type")
    diff = operation.get("diff")
    if kind == "delete_file":
        return f'"operation":{json_text({"type": kind, "path": operation["path"]})}'
    if kind not in {"create_file", "update_file"} or not isinstance(diff, str):
        return None
    return f'"operation":{json_text({"type": kind, "path": operation["path"], "diff": diff})}'


def _is_strings(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(entry, str) for entry in value)
