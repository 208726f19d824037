"""The tools that the Responses API knows by type, as functions a model can call.

The arguments carry the field names of the item they become (`local_shell_call.action`, `shell_call.action`,
`apply_patch_call.operation`, `tool_search_call.arguments`), so the way back is a copy."""

from __future__ import annotations

from responses_gateway.wire.hosted_kinds import Schema, arguments, described


def _strings(description: str) -> Schema:
    return {"type": "array", "items": {"type": "string"}, "description": description}


_LOCAL_SHELL_DESCRIPTION = "Runs one command on the user's machine and returns its output."
_LOCAL_SHELL = arguments(
    ["command"],
    {
        "command": _strings('The program and its arguments, for example ["bash", "-lc", "ls"].'),
        "env": {
            "type": "object",
            "additionalProperties": {"type": "string"},
            "description": "Environment variables to set for the command.",
        },
        "timeout_ms": described("integer", "Stop the command after this many milliseconds."),
        "user": described("string", "The user to run the command as."),
        "working_directory": described("string", "The directory to run the command in."),
    },
)

_SHELL_DESCRIPTION = "Runs shell commands and returns the output and exit code of each."
_SHELL = arguments(
    ["commands"],
    {
        "commands": _strings("The shell commands to run, each a whole command line."),
        "timeout_ms": described("integer", "Stop the commands after this many milliseconds."),
        "max_output_length": described("integer", "Return at most this many characters of output for each command."),
    },
)

_APPLY_PATCH_DESCRIPTION = (
    "Creates, updates or deletes one file. `diff` is in the V4A format without file headers: for a new file every line "
    "starts with '+'; for an update, '@@' lines name the place, and lines starting with ' ', '-' and '+' are context, "
    "removed and added lines."
)
_APPLY_PATCH = arguments(
    ["type", "path"],
    {
        "type": {"type": "string", "enum": ["create_file", "update_file", "delete_file"]},
        "path": described("string", "The file, relative to the workspace."),
        "diff": described("string", "The change; needed to create or update a file."),
    },
)

_TOOL_SEARCH_DESCRIPTION = "Searches for further tools. The tools that are found can be called from then on."
_TOOL_SEARCH = arguments(
    ["query"],
    {
        "query": described("string", "What the tool should be able to do."),
        "limit": described("integer", "The highest number of tools to return."),
    },
)

# The type of a tool, which is its name, too -> the description and the parameters of the function.
BUILTIN_TOOLS: dict[str, tuple[str, Schema]] = {
    "local_shell": (_LOCAL_SHELL_DESCRIPTION, _LOCAL_SHELL),
    "shell": (_SHELL_DESCRIPTION, _SHELL),
    "apply_patch": (_APPLY_PATCH_DESCRIPTION, _APPLY_PATCH),
    "tool_search": (_TOOL_SEARCH_DESCRIPTION, _TOOL_SEARCH),
}
