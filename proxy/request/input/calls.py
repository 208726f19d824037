"""Tool calls and their outputs in the history, whatever their item type, as calls of functions."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from proxy.request.fields import Object, filled_text, objects, optional_text, required_object, text, wrong_type
from proxy.request.input.content import Output, screenshot, tool_output
from proxy.request.input.items import Entry
from proxy.request.loss_report import Ledger
from proxy.request.tools.catalog import Catalog
from proxy.wire.tools import CUSTOM_INPUT, ToolKind


class Call(NamedTuple):
    """A call as the model made it: `arguments` is the text of a JSON object. `output` is set by tools that ran elsewhere
    and report call and result in one item."""

    call_id: str
    name: str
    arguments: str
    output: Output | None = None


class CallReader:
    """Reads the call and output items of one request."""

    def __init__(self, catalog: Catalog, ledger: Ledger) -> None:
        self._catalog = catalog
        self._ledger = ledger

    def call(self, entry: Entry) -> Call | None:
        """The call of an item whose type is in `CALL_TYPES`; None if it is one that cannot be shown to the model."""
        return _CALLS[entry.kind](self, entry.item, entry.path)

    def output(self, entry: Entry) -> Output:
        """The output of an item whose type is in `OUTPUT_TYPES`."""
        return _OUTPUTS[entry.kind](self, entry.item, entry.path)

    def _function_call(self, item: Object, path: str) -> Call:
        self._ledger.preserved("item", "function_call")
        return Call(_call_id(item, path), self._client_name(item, path, "function"), self._arguments(item, path))

    def _custom_tool_call(self, item: Object, path: str) -> Call:
        self._ledger.adapted("item", "custom_tool_call", "shown as a function call")
        arguments = _json({CUSTOM_INPUT: text(item, "input", path)})
        return Call(_call_id(item, path), self._client_name(item, path, "custom"), arguments)

    def _local_shell_call(self, item: Object, path: str) -> Call:
        action = _without_nulls(required_object(item, "action", path), "type")
        return self._builtin_call(item, path, "local_shell", action)

    def _shell_call(self, item: Object, path: str) -> Call:
        return self._builtin_call(item, path, "shell", _without_nulls(required_object(item, "action", path)))

    def _apply_patch_call(self, item: Object, path: str) -> Call:
        return self._builtin_call(item, path, "apply_patch", _without_nulls(required_object(item, "operation", path)))

    def _tool_search_call(self, item: Object, path: str) -> Call | None:
        if item.get("call_id") is None:
            self._ledger.ignored("item", "tool_search_call", "the search was run by another server", path)
            return None
        arguments = item.get("arguments")
        if isinstance(arguments, str):
            arguments = _parsed(arguments)
        return self._builtin_call(item, path, "tool_search", arguments if isinstance(arguments, dict) else {})

    def _builtin_call(self, item: Object, path: str, kind: ToolKind, arguments: Object) -> Call:
        self._ledger.adapted("item", f"{kind}_call", "shown as a function call")
        return Call(_call_id(item, path), self._catalog.name_of_call(kind, kind, None), _json(arguments))

    def _computer_call(self, item: Object, path: str) -> Call:
        self._ledger.adapted("item", "computer_call", "shown as a function call")
        return Call(_call_id(item, path), "computer", _json(_chosen(item, "action", "actions")))

    def _mcp_call(self, item: Object, path: str) -> Call:
        self._ledger.adapted("item", "mcp_call", "shown as a function call with its output")
        name, server = text(item, "name", path), text(item, "server_label", path)
        error = item.get("error")
        output = optional_text(item, "output", path) or (f"Error: {_as_text(error)}" if error is not None else "")
        arguments = self._arguments(item, path)
        chat_name = self._catalog.name_of_call("function", name, server)
        return Call(filled_text(item, "id", path), chat_name, arguments, Output(output, []))

    def _code_interpreter_call(self, item: Object, path: str) -> Call:
        self._ledger.adapted("item", "code_interpreter_call", "shown as a function call with its logs")
        arguments = _json({"code": optional_text(item, "code", path) or ""})
        logs = [_as_text(output["logs"]) for output in objects(item, "outputs", path) if "logs" in output]
        return Call(filled_text(item, "id", path), "code_interpreter", arguments, Output("\n".join(logs), []))

    def _file_search_call(self, item: Object, path: str) -> Call | None:
        results = objects(item, "results", path)
        if not results:
            self._ledger.ignored("item", "file_search_call", "it carries no results", path, matters=False)
            return None
        self._ledger.adapted("item", "file_search_call", "shown as a function call with its results")
        shown = [_json(_chosen(result, "filename", "text")) for result in results]
        arguments = _json(_chosen(item, "queries"))
        return Call(filled_text(item, "id", path), "file_search", arguments, Output("\n".join(shown), []))

    def _program(self, item: Object, path: str) -> Call:
        """Code that the model wrote for OpenAI's servers, which made calls; those are items of their own."""
        self._ledger.adapted("item", "program", "shown as a function call")
        return Call(_call_id(item, path), "program", _json({"code": text(item, "code", path)}))

    def _client_name(self, item: Object, path: str, kind: ToolKind) -> str:
        name = filled_text(item, "name", path)
        return self._catalog.name_of_call(kind, name, optional_text(item, "namespace", path))

    def _arguments(self, item: Object, path: str) -> str:
        """Arguments as the client sent them if they are a JSON object; chat servers refuse a request with any others."""
        arguments = item.get("arguments")
        if isinstance(arguments, dict):
            return _json(arguments)
        if arguments is not None and not isinstance(arguments, str):
            raise wrong_type(f"{path}.arguments", "a string")
        if not arguments:
            return "{}"
        if _parsed(arguments) is None:
            self._ledger.adapted("content", "arguments", "arguments that are no JSON object were replaced by {}")
            return "{}"
        return arguments

    def _plain_output(self, item: Object, path: str) -> Output:
        self._ledger.preserved("item", str(item["type"]))
        return tool_output(item.get("output"), f"{path}.output", self._ledger)

    def _shell_output(self, item: Object, path: str) -> Output:
        self._ledger.adapted("item", "shell_call_output", "shown as text")
        runs = objects(item, "output", path)
        return Output("\n\n".join(_shell_run(run, f"{path}.output[{index}]") for index, run in enumerate(runs)), [])

    def _apply_patch_output(self, item: Object, path: str) -> Output:
        self._ledger.adapted("item", "apply_patch_call_output", "shown as text")
        lines = [optional_text(item, "status", path), optional_text(item, "output", path)]
        return Output("\n".join(filter(None, lines)), [])

    def _tool_search_output(self, item: Object, path: str) -> Output:
        self._ledger.adapted("item", "tool_search_output", "the tools are declared, and named in a tool message")
        names = self._catalog.names_declared_at(f"{path}.tools")
        return Output(f"Tools found: {', '.join(names)}" if names else "No tools found.", [])

    def _program_output(self, item: Object, path: str) -> Output:
        self._ledger.adapted("item", "program_output", "shown as text")
        return Output(text(item, "result", path), [])

    def _computer_output(self, item: Object, path: str) -> Output:
        self._ledger.adapted("item", "computer_call_output", "the screenshot follows in a user message")
        return screenshot(required_object(item, "output", path), f"{path}.output", self._ledger)


def output_call_id(entry: Entry) -> str:
    """The id of the call that an output item answers; `local_shell_call_output` names it `id`."""
    if entry.kind == "local_shell_call_output" and entry.item.get("call_id") is None:
        return text(entry.item, "id", entry.path)
    return _call_id(entry.item, entry.path)


def _call_id(item: Object, path: str) -> str:
    return filled_text(item, "call_id", path)


def _shell_run(run: Object, path: str) -> str:
    outcome = required_object(run, "outcome", path)
    ended = "timed out" if outcome.get("type") == "timeout" else f"exit code: {_as_text(outcome.get('exit_code'))}"
    lines = [ended, optional_text(run, "stdout", path)]
    errors = optional_text(run, "stderr", path)
    if errors:
        lines.append(f"stderr:\n{errors}")
    return "\n".join(filter(None, lines))


def _chosen(source: Object, *keys: str) -> Object:
    return {key: source[key] for key in keys if source.get(key) is not None}


def _without_nulls(source: Object, *others: str) -> Object:
    return {key: value for key, value in source.items() if value is not None and key not in others}


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _as_text(value: object) -> str:
    return value if isinstance(value, str) else _json(value)


_any_object = msgspec.json.Decoder(dict[str, Any])


def _parsed(arguments: str) -> Object | None:
    """The arguments as an object, None if they are none."""
    try:
        return _any_object.decode(arguments)
    except (ValueError, RecursionError):
        return None


_CALLS: dict[str, Callable[[CallReader, Object, str], Call | None]] = {
    "function_call": CallReader._function_call,
    "custom_tool_call": CallReader._custom_tool_call,
    "local_shell_call": CallReader._local_shell_call,
    "shell_call": CallReader._shell_call,
    "apply_patch_call": CallReader._apply_patch_call,
    "tool_search_call": CallReader._tool_search_call,
    "computer_call": CallReader._computer_call,
    "mcp_call": CallReader._mcp_call,
    "code_interpreter_call": CallReader._code_interpreter_call,
    "file_search_call": CallReader._file_search_call,
    "program": CallReader._program,
}
_OUTPUTS: dict[str, Callable[[CallReader, Object, str], Output]] = {
    "function_call_output": CallReader._plain_output,
    "custom_tool_call_output": CallReader._plain_output,
    "local_shell_call_output": CallReader._plain_output,
    "shell_call_output": CallReader._shell_output,
    "apply_patch_call_output": CallReader._apply_patch_output,
    "tool_search_output": CallReader._tool_search_output,
    "computer_call_output": CallReader._computer_output,
    "program_output": CallReader._program_output,
}
CALL_TYPES = frozenset(_CALLS)
OUTPUT_TYPES = frozenset(_OUTPUTS)
