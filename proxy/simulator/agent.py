"""The coding agent: a small task in four steps, played with whatever tools the client offers.

Write a file, edit it, run it, report. Which step is next is read from the conversation (the number of tool results since the
user last spoke), so the scenario needs no memory. It knows the tools of the Codex CLI (`exec_command`, the freeform
`apply_patch`, the JavaScript `exec` of its code mode) and falls back to any tool that takes a command.
"""

from __future__ import annotations

import json
from typing import Any

from proxy.simulator.conversation import Conversation, Tool
from proxy.simulator.schema import example
from proxy.simulator.script import Call, Reasoning, Script, Text, call, script

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


def agent(conversation: Conversation) -> Script:
    """The next step of the task; a text that says so when no tool can run a command."""
    shell = conversation.tool(*SHELL_TOOLS)
    if shell is None:
        return script(Reasoning("The task needs a shell."), Text("I cannot run commands here: no such tool was offered."))
    step = len(conversation.tool_results)
    if step == 0:
        return script(
            Reasoning("**Planning the work**\n\nA small file is enough: write it, improve it, run it."),
            Text(f"I'll start with `{_FILE}`."),
            shell_call(shell, _WRITE),
        )
    if step == 1:
        return script(Reasoning("The greeting should use an f-string and punctuation."), _edit(conversation, shell))
    if step == 2:
        return script(
            Reasoning("Now look at the file and run it."),
            Text("Edited. Let me check the result."),
            shell_call(shell, _READ),
        )
    return script(Reasoning("Everything works; report."), final_text(conversation, _report(conversation)))


def patch(conversation: Conversation) -> Script:
    """One new file by `apply_patch` (or by a shell that understands it), then a report."""
    edit = _addition(conversation)
    if conversation.tool_results or edit is None:
        return script(final_text(conversation, _report(conversation)))
    return script(Reasoning("A patch that adds one file."), Text("Adding `hello.txt`."), edit)


def wrong_patch(conversation: Conversation) -> Script:
    """A patch whose last line is missing; the whole patch when the gateway asks for a correction."""
    tool = conversation.tool("apply_patch")
    if tool is None:
        asked = conversation.question.startswith("The input of a call of the tool")
        return script(Text(_ADDITION if asked else "There is no tool for patches."))
    if conversation.tool_results:
        return script(final_text(conversation, _report(conversation)))
    return script(Reasoning("A patch, written in a hurry."), patch_call(tool, _ADDITION.rpartition("\n")[0]))


def shell_call(tool: Tool, command: str) -> Call:
    """A call of a shell-like tool: the command goes where its schema wants one, as text or as argv."""
    properties = tool.properties
    for name in ("cmd", "command", "script", "code"):
        if name in properties:
            is_list = properties[name].get("type") == "array"
            return call(tool.name, {name: ["bash", "-lc", command] if is_list else command})
    if set(properties) == {"input"}:  # code mode: JavaScript that calls the tool
        return call(tool.name, {"input": _javascript(command)})
    return call(tool.name, {**example(tool.parameters), "cmd": command})


def patch_call(tool: Tool, text: str) -> Call:
    """A call of a freeform tool: its text goes into the function's only argument."""
    return call(tool.name, {next(iter(tool.properties), "input"): text})


def final_text(conversation: Conversation, text: str) -> Text:
    """The last words of a task: `text`, or JSON where the client asked for a schema."""
    if conversation.schema is None:
        return Text(text)
    return Text(json.dumps(example(conversation.schema), ensure_ascii=False))


def _edit(conversation: Conversation, shell: Tool) -> Call:
    tool = conversation.tool("apply_patch")
    if tool is not None:
        return patch_call(tool, _PATCH)
    # Codex understands `apply_patch` inside its shell whatever the model; other shells have sed.
    return shell_call(shell, _heredoc(_PATCH) if shell.name.endswith("exec_command") else _SED)


def _addition(conversation: Conversation) -> Call | None:
    tool = conversation.tool("apply_patch")
    if tool is not None:
        return patch_call(tool, _ADDITION)
    shell = conversation.tool(*SHELL_TOOLS)
    return None if shell is None else shell_call(shell, _heredoc(_ADDITION))


def _heredoc(patch_text: str) -> str:
    return f"apply_patch <<'EOF'\n{patch_text}\nEOF"


def _javascript(command: str) -> str:
    return f"const r = await tools.exec_command({{cmd: {json.dumps(command)}}}); text(r.output ?? JSON.stringify(r));"


def _report(conversation: Conversation) -> str:
    results = conversation.tool_results
    last = results[-1].strip().splitlines()[-1:] if results else []
    shown = f"\n\nThe last output line was:\n\n```\n{last[0]}\n```" if last else ""
    return f"Done: the file is written and checked, in {len(results)} tool calls.{shown}"


def parsed_result(text: str) -> dict[str, Any]:
    """The JSON object in a tool result, wherever it begins; empty if there is none."""
    start = text.find("{")
    try:
        value = json.loads(text[start:]) if start >= 0 else {}
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
