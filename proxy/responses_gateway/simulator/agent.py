"""Scenarios of a coding agent: small tasks in several steps, with whatever tools the client offers.

The next step follows from the request (the number of tool results since the last user message), so a scenario needs no memory.
The tools of the Codex CLI are known (`exec_command`, the freeform `apply_patch`, the JavaScript `exec` of its code mode), and
those of Claude Code (`Write`, `Read`, `Edit`, `Bash`); any other tool that takes a command will do."""

from __future__ import annotations

import json
from typing import Any

from responses_gateway.simulator.chat_request import ChatRequest, Tool
from responses_gateway.simulator.schema import example
from responses_gateway.simulator.script import CallTool, Say, Script, Think, call, script

SHELL_TOOLS = ("exec_command", "shell_command", "shell", "local_shell", "bash", "run_command", "exec")

_FILE = "greeting.py"
_WRITE = f"cat > {_FILE} <<'EOF'\ndef greet(name):\n    return 'Hello ' + name\n\n\nprint(greet('world'))\nEOF"
_PATCH = (
    f"*** Begin Patch\n*** Update File: {_FILE}\n@@\n def greet(name):\n-    return 'Hello ' + name\n"
    "+    return f'Hello, {name}!'\n*** End Patch"
)
_ADDITION = "*** Begin Patch\n*** Add File: hello.txt\n+Hello from the simulator.\n*** End Patch"
_SED = f"sed -i \"s/return 'Hello ' + name/return f'Hello, {{name}}!'/\" {_FILE}"
_READ = f"cat {_FILE} && python3 {_FILE}"
# The tools of Claude Code for files, in the order in which they are used, and their arguments beside the path.
_FILE_TOOLS: dict[str, dict[str, str]] = {
    "Write": {"content": "def greet(name):\n    return 'Hello ' + name\n\n\nprint(greet('world'))\n"},
    "Read": {},
    "Edit": {"old_string": "return 'Hello ' + name", "new_string": "return f'Hello, {name}!'"},
}


def agent(request: ChatRequest) -> Script:
    """Write a file, edit it, run it and report; say so if no tool can run a command."""
    if all(request.tool(name) for name in (*_FILE_TOOLS, "Bash")):
        return _with_file_tools(request)
    shell = request.tool(*SHELL_TOOLS)
    if shell is None:
        return script(Think("The task needs a shell."), Say("I cannot run commands here: no such tool was offered."))
    step = len(request.tool_results)
    if step == 0:
        return script(
            Think("**Planning the work**\n\nA small file is enough: write it, improve it, run it."),
            Say(f"I'll start with `{_FILE}`."),
            shell_call(shell, _WRITE),
        )
    if step == 1:
        return script(Think("The greeting should use an f-string and punctuation."), _edit(request, shell))
    if step == 2:
        return script(
            Think("Now look at the file and run it."), Say("Edited. Let me check the result."), shell_call(shell, _READ)
        )
    return script(Think("Everything works; report."), final_text(request, _report(request)))


def _with_file_tools(request: ChatRequest) -> Script:
    step = len(request.tool_results)
    if step < len(_FILE_TOOLS):
        name, arguments = list(_FILE_TOOLS.items())[step]
        return script(Think(f"Now {name}."), call(name, {"file_path": _FILE, **arguments}))
    if step == len(_FILE_TOOLS):
        return script(Say("Edited. Let me run it."), call("Bash", {"command": _READ, "description": "Run the file"}))
    return script(Think("Everything works; report."), final_text(request, _report(request)))


def patch(request: ChatRequest) -> Script:
    """Add a file by `apply_patch` (or by a shell that understands it), then report."""
    edit = _addition(request)
    if request.tool_results or edit is None:
        return script(final_text(request, _report(request)))
    return script(Think("A patch that adds one file."), Say("Adding `hello.txt`."), edit)


def wrong_patch(request: ChatRequest) -> Script:
    """Send a patch whose last line is missing, and the complete patch when the gateway asks for a correction."""
    tool = request.tool("apply_patch")
    if tool is None:
        is_question = request.question.startswith("The input of a call of the tool")
        return script(Say(_ADDITION if is_question else "There is no tool for patches."))
    if request.tool_results:
        return script(final_text(request, _report(request)))
    return script(Think("A patch, written in a hurry."), patch_call(tool, _ADDITION.rpartition("\n")[0]))


def shell_call(tool: Tool, command: str) -> CallTool:
    """Call a shell-like tool: the command goes where its schema expects one, as text or as argv."""
    properties = tool.properties
    for name in ("cmd", "command", "script", "code"):
        if name in properties:
            is_list = properties[name].get("type") == "array"
            return call(tool.name, {name: ["bash", "-lc", command] if is_list else command})
    if set(properties) == {"input"}:  # code mode: JavaScript that calls the tool
        code = f"const r = await tools.exec_command({{cmd: {json.dumps(command)}}}); text(r.output ?? JSON.stringify(r));"
        return call(tool.name, {"input": code})
    return call(tool.name, {**example(tool.parameters), "cmd": command})


def patch_call(tool: Tool, text: str) -> CallTool:
    """Call a freeform tool: the text goes into the function's only argument."""
    return call(tool.name, {next(iter(tool.properties), "input"): text})


def final_text(request: ChatRequest, text: str) -> Say:
    """Return the text that ends a task: `text`, or JSON if the client asked for a schema."""
    if request.schema is None:
        return Say(text)
    return Say(json.dumps(example(request.schema), ensure_ascii=False))


def _edit(request: ChatRequest, shell: Tool) -> CallTool:
    tool = request.tool("apply_patch")
    if tool is not None:
        return patch_call(tool, _PATCH)
    # Codex understands `apply_patch` in its shell with any model; other shells have sed.
    return shell_call(shell, _heredoc(_PATCH) if shell.name.endswith("exec_command") else _SED)


def _addition(request: ChatRequest) -> CallTool | None:
    tool = request.tool("apply_patch")
    if tool is not None:
        return patch_call(tool, _ADDITION)
    shell = request.tool(*SHELL_TOOLS)
    return None if shell is None else shell_call(shell, _heredoc(_ADDITION))


def _heredoc(patch_text: str) -> str:
    return f"apply_patch <<'EOF'\n{patch_text}\nEOF"


def _report(request: ChatRequest) -> str:
    results = request.tool_results
    last = results[-1].strip().splitlines()[-1:] if results else []
    ending = f"\n\nThe last output line was:\n\n```\n{last[0]}\n```" if last else ""
    return f"Done: the file is written and checked, in {len(results)} tool calls.{ending}"


def parsed_result(text: str) -> dict[str, Any]:
    """Return the JSON object in a tool result, wherever it begins; an empty one if there is none."""
    start = text.find("{")
    try:
        value = json.loads(text[start:]) if start >= 0 else {}
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
