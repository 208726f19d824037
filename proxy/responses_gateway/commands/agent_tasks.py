"""Twenty small tasks of an agent, with tools whose results are written down: what a model does in its turns shows how well it
works with a client that runs tools. Nothing is run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

# Answers of the model that a task may take: each of them is done in two or three calls.
MOST_ANSWERS = 8
INSTRUCTIONS = (
    "You are an agent that works in a small repository with the tools that you have. When the task is done, say so briefly."
)


class Task(NamedTuple):
    """A task: what the user says, the tools that are offered, and what each of them returns."""

    name: str
    question: str
    results: Mapping[str, str]

    @property
    def tools(self) -> list[dict[str, Any]]:
        """The tools, as a Responses request declares them."""
        return [_TOOLS[name] for name in self.results]


def _tool(name: str, description: str, required: str, **properties: Any) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, "required": required.split(), "additionalProperties": False}
    return {"type": "function", "name": name, "description": description, "parameters": parameters, "strict": False}


_TEXT = {"type": "string"}
_TEXTS = {"type": "array", "items": _TEXT}
_NUMBER = {"type": "integer", "minimum": 1}
_PRIORITY = {"type": "integer", "minimum": 1, "maximum": 5}
_FLAG = {"type": "boolean"}
_EDIT = {
    "type": "object",
    "properties": {"old": _TEXT, "new": _TEXT, "everywhere": _FLAG},
    "required": ["old", "new"],
    "additionalProperties": False,
}
_RUN = "Run a command; each argument is an element of the list."
_TOOLS: dict[str, dict[str, Any]] = {
    tool["name"]: tool
    for tool in (
        _tool("read_file", "Read a file.", "path", path=_TEXT, first_line=_NUMBER, lines=_NUMBER),
        _tool("list_files", "List the files of a folder.", "folder", folder=_TEXT, recursive=_FLAG),
        _tool("search", "Search files for a regular expression.", "pattern", pattern=_TEXT, folder=_TEXT, limit=_NUMBER),
        _tool("write_file", "Write a new file.", "path content", path=_TEXT, content=_TEXT),
        _tool("edit_file", "Replace texts in a file.", "path edits", path=_TEXT, edits={"type": "array", "items": _EDIT}),
        _tool("run_command", _RUN, "command", command=_TEXTS, timeout_seconds=_NUMBER),
        _tool("create_issue", "Create an issue.", "title labels priority", title=_TEXT, labels=_TEXTS, priority=_PRIORITY),
        _tool("get_weather", "The weather in a city.", "city unit", city=_TEXT, unit={"enum": ["celsius", "fahrenheit"]}),
    )
}
_CODE = "def area(width, height):\n    return width + height\n"
_TESTS = "1 failed, 11 passed\nE  assert area(2, 3) == 6\nE   +  where 5 = area(2, 3)"
_WORKS = "12 passed"
_LOG = "10:02:11 start\n10:02:14 error: connection refused (db:5432)\n10:02:14 stop"
_SETTINGS = "port: 8080\nhost: 0.0.0.0\nworkers: 4\n"
_DONE = "ok"

TASKS: tuple[Task, ...] = (
    Task("read one file", "Which port is set in settings.yaml?", {"read_file": _SETTINGS}),
    Task("find and read", "Find the file that defines `area` and tell me what is wrong with it.",
         {"search": "shapes.py:1:def area(width, height):", "read_file": _CODE}),
    Task("fix a bug", "The test of `area` in shapes.py fails. Read the file, fix it, and run the tests with `pytest -q`.",
         {"read_file": _CODE, "edit_file": _DONE, "run_command": _WORKS}),
    Task("report a failure", "Run the tests with `pytest -q` and tell me what fails. Change nothing.", {"run_command": _TESTS}),
    Task("write a file", "Write a file hello.py that prints hello, then run it with python3.",
         {"write_file": _DONE, "run_command": "hello"}),
    Task("two files", "Compare the ports in settings.yaml and deploy.yaml.", {"read_file": _SETTINGS}),
    Task("a list in a list", "In settings.yaml, change the port to 9000 and the workers to 8, in one edit.",
         {"read_file": _SETTINGS, "edit_file": _DONE}),
    Task("a number", "Show me lines 100 to 120 of server.log.", {"read_file": _LOG}),
    Task("an enumeration", "What is the weather in Lima and in Oslo, in celsius?", {"get_weather": "18 degrees, cloudy"}),
    Task("an issue", "Create an issue: the database refuses connections. Labels: bug, database. Priority: 2.",
         {"create_issue": "created issue 17"}),
    Task("from a log to an issue", "Read server.log, and create an issue for the error in it.",
         {"read_file": _LOG, "create_issue": "created issue 18"}),
    Task("an empty result", "Is there a TODO anywhere in src?", {"search": "no matches", "list_files": "src/shapes.py"}),
    Task("a failing tool", "Read notes.txt and summarise it.",
         {"read_file": "error: notes.txt: no such file", "list_files": "shapes.py"}),
    Task("quotes in code", "Write a file quote.py that prints: He said \"it's fine\" \\ done", {"write_file": _DONE}),
    Task("a multi-line file", "Write a file poem.txt with a poem of four lines about rivers.", {"write_file": _DONE}),
    Task("a command of several words", "Count the lines of all Python files with find and wc.", {"run_command": "  42 total"}),
    Task("look around first", "What does this repository do?",
         {"list_files": "README.md\nshapes.py", "read_file": "# Shapes\n\nComputes areas."}),
    Task("umlauts", "Schreibe eine Datei grüße.txt mit dem Satz: Schöne Grüße aus Köln!", {"write_file": _DONE}),
    Task("several steps", "List the files in src, read each of them, and tell me which functions there are.",
         {"list_files": "src/shapes.py\nsrc/units.py", "read_file": _CODE}),
    Task("no tool is needed", "What does HTTP status 404 mean? Answer from what you know.", {"read_file": _CODE}),
)  # fmt: skip


class PlayedCall(NamedTuple):
    """A call of a task with what it returned, as one text each."""

    call: str
    result: str


def step_of(task: Task, call: Mapping[str, Any], refusal: str | None) -> PlayedCall:
    """Return what a call of an answer leads to: the result that is written down, or what a client says that refuses it."""
    result = task.results.get(call["name"], "") if refusal is None else f"failed to parse function arguments: {refusal}"
    return PlayedCall(json.dumps([call["name"], call["arguments"]]), result)
