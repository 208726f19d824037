"""Read the tool calls of the input and their outputs, of any item type, as function calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

import msgspec

from responses_gateway.request.fields import (
    Entry,
    Object,
    filled_text,
    nullable_text,
    objects,
    optional_object,
    optional_text,
    required_object,
    text,
    wrong_type,
)
from responses_gateway.request.input.approvals import INTERRUPTED, NO_APPROVALS, Approvals
from responses_gateway.request.input.items import Output, screenshot, tool_output
from responses_gateway.request.loss_report import Loss, LossReport, Outcome, reported
from responses_gateway.request.tools.catalog import Catalog
from responses_gateway.request.tools.hosted_tools import FIND_IN_PAGE, OPEN_PAGE, SEARCH
from responses_gateway.wire.hosted import CitedSource, KeptResult
from responses_gateway.wire.hosted_kinds import HOSTED, HOSTED_CALLS, MCP
from responses_gateway.wire.json_text import json_object, read_object, spaced_json
from responses_gateway.wire.tools import CUSTOM_INPUT

T = TypeVar("T")

NOT_RUN_YET = "The user approved this call. It was not run yet."  # the result of a call that was approved, until it is run
# They may not have been, because the answer also called a tool of the client.
RESULTS_NOT_KEPT = "The results may not have been shown at that time. They are not kept. Call again for what is still needed."
SEARCH_FAILED = "The search failed or was interrupted. What it found, or why it failed, is not kept."


class InputCall(msgspec.Struct, frozen=True):
    """A call as the model made it: `arguments` is the text of a JSON object. `output` is set for tools that ran elsewhere and
    report call and result in one item. The output of one that is `asynchronous` may come at any time."""

    call_id: str
    name: str
    arguments: str
    output: Output | None = None
    asynchronous: bool = False
    extra: Object | None = None  # what the server wants back with it, as it came


@dataclass(slots=True)
class CallItemReader:
    """Reads the call and output items of one request. `results`: the results of hosted calls, by the ids of their items,
    as far as it was kept. `sources`: what it may cite of those that were read."""

    _catalog: Catalog
    _report: LossReport
    _approvals: Approvals = NO_APPROVALS
    _results: Mapping[str, KeptResult] = field(default_factory=dict)
    sources: list[CitedSource] = field(default_factory=list)
    # What `_client_tool` returned, because the calls of a long history are of a few tools.
    _tools: dict[tuple[str, str, str | None], tuple[str, bool]] = field(default_factory=dict)

    def call(self, entry: Entry) -> InputCall | None:
        """Return the call of an item whose type is in `CALL_ITEMS`, or None if it cannot be shown to the model."""
        call = CALL_ITEMS[entry.kind].read(self, entry.item, entry.path)
        if call is not None:
            self._report.add(_LOSSES[entry.kind])
        return call

    def output(self, entry: Entry) -> Output:
        """Return the output of an item whose type is in `OUTPUT_ITEMS`."""
        self._report.add(_LOSSES[entry.kind])
        return OUTPUT_ITEMS[entry.kind].read(self, entry.item, entry.path)

    def _function_call(self, item: Object, path: str) -> InputCall:
        return self._client_call(item, path, "function", self._arguments(item, path))

    def _custom_tool_call(self, item: Object, path: str) -> InputCall:
        arguments = spaced_json({CUSTOM_INPUT: nullable_text(item, "input", path)})
        return self._client_call(item, path, "custom", arguments)

    def _client_call(self, item: Object, path: str, kind: str, arguments: str) -> InputCall:
        name, is_async = self._client_tool(item, path, kind)
        extra = optional_object(item, "extra_content", path) if "extra_content" in item else None
        return InputCall(_call_id(item, path), name, arguments, asynchronous=is_async or is_async_call(item), extra=extra)

    def _action_call(self, item: Object, path: str) -> InputCall:
        kind, member = _ACTIONS[item["type"]]
        action = required_object(item, member, path)
        # The action of a local shell has a type, of which there is only one.
        arguments = {
            key: value for key, value in action.items() if value is not None and (kind, key) != ("local_shell", "type")
        }
        return self._builtin_call(item, path, kind, arguments)

    def _tool_search_call(self, item: Object, path: str) -> InputCall | None:
        if item.get("call_id") is None:
            self._report.ignored("item", "tool_search_call", "the search was run by another server", path)
            return None
        arguments = item.get("arguments")
        if isinstance(arguments, str):
            arguments = read_object(arguments)
        return self._builtin_call(item, path, "tool_search", arguments if isinstance(arguments, dict) else {})

    def _builtin_call(self, item: Object, path: str, kind: str, arguments: Object) -> InputCall:
        name = self._catalog.name_of_call(kind, kind, None)
        extra = optional_object(item, "extra_content", path)
        return InputCall(_call_id(item, path), name, spaced_json(arguments), extra=extra)

    def _computer_call(self, item: Object, path: str) -> InputCall:
        return InputCall(_call_id(item, path), "computer", spaced_json(_chosen(item, "action", "actions")))

    def _mcp_call(self, item: Object, path: str) -> InputCall | None:
        made = self._approvals.made.get(str(item.get("approval_request_id")))
        if made is not None and made.item is item:
            return None  # where the model made it: there is the request
        return self._mcp_call_as(filled_text(item, "id", path), item, path)

    def _mcp_call_as(self, call_id: str, item: Object, path: str) -> InputCall:
        name = text(item, "name", path)
        server = text(item, "server_label", path)
        fallback = optional_text(item, "output", path) or _error_text(item.get("error")) or _interrupted(item)
        kept = self._kept(item)
        output = fallback if kept is None else kept.text
        arguments = self._arguments(item, path)
        chat_name = self._catalog.name_of_call("mcp", name, server)
        return InputCall(call_id, chat_name, arguments, Output(output), extra=optional_object(item, "extra_content", path))

    def _approval_request(self, item: Object, path: str) -> InputCall | None:
        request_id = filled_text(item, "id", path)
        approvals = self._approvals
        made = approvals.made.get(request_id)
        if made is not None:
            return self._mcp_call_as(request_id, {**made.item, "extra_content": item.get("extra_content")}, made.path)
        answer = NOT_RUN_YET if request_id in approvals.approved else approvals.not_run.get(request_id)
        if answer is None:
            self._report.ignored("item", "mcp_approval_request", "the client has not decided", path, matters=False)
            return None
        chat_name = self._catalog.name_of_call("mcp", text(item, "name", path), text(item, "server_label", path))
        extra = optional_object(item, "extra_content", path)
        return InputCall(request_id, chat_name, self._arguments(item, path), Output(answer), extra=extra)

    def _hosted_call(self, item: Object, path: str) -> InputCall | None:
        """Return a call with the result that was kept, so that the model gets the same as when it was made; otherwise with what
        the item has of it."""
        kind = HOSTED_CALLS[item["type"]]
        call = _TOLD[kind.name](item, path) if kind.name in _TOLD else ToldCall(kind.functions[0].name, {}, None)
        kept = None if call is None else self._kept(item)
        if call is None or (kept is None and call.result is None):
            self._report.ignored("item", kind.item.type, kind.unread, path, matters=False)
            return None
        name = self._catalog.find(kind.name, call.function, None) or call.chat_name or call.function
        arguments = spaced_json(call.arguments) if kept is None else json_object(kept.arguments) or "{}"
        output = Output((call.result or "") if kept is None else kept.text)
        extra = optional_object(item, "extra_content", path)
        return InputCall(filled_text(item, "id", path), name, arguments, output, extra=extra)

    def _kept(self, item: Object) -> KeptResult | None:
        """Return the result of the hosted call that the item is, if it was kept."""
        kept = self._results.get(item["id"]) if isinstance(item.get("id"), str) else None
        if kept is not None:
            self.sources += kept.sources
        return kept

    def _program(self, item: Object, path: str) -> InputCall:
        """Read code that the model wrote to be run by OpenAI's servers; the calls it made are items of their own."""
        return InputCall(_call_id(item, path), "program", spaced_json({"code": text(item, "code", path)}))

    def _client_tool(self, item: Object, path: str, kind: str) -> tuple[str, bool]:
        """Return the chat name of the tool that is called, and whether the results of its calls may come later."""
        name = filled_text(item, "name", path)
        namespace = optional_text(item, "namespace", path) if "namespace" in item else None
        tool = self._tools.get((kind, name, namespace))
        if tool is None:
            chat_name = self._catalog.name_of_call(kind, name, namespace)
            tool = (chat_name, self._catalog.is_async(chat_name))
            self._tools[kind, name, namespace] = tool
        return tool

    def _arguments(self, item: Object, path: str) -> str:
        """Return the arguments as sent if they are a JSON object, written again if a model wrote one that is nearly JSON, else
        `{}`; chat servers refuse anything but an object."""
        arguments = item.get("arguments")
        if isinstance(arguments, dict):
            return spaced_json(arguments)
        if arguments is not None and not isinstance(arguments, str):
            raise wrong_type(f"{path}.arguments", "a string")
        if not arguments:
            return "{}"
        written = json_object(arguments)
        if written is None:
            self._report.adapted("content", "arguments", "arguments that are not a JSON object were replaced by {}")
            return "{}"
        if written != arguments:
            self._report.adapted("content", "arguments", "arguments that are nearly JSON were written again")
        return written

    def _plain_output(self, item: Object, path: str) -> Output:
        return tool_output(item.get("output"), path, self._report)

    def _shell_output(self, item: Object, path: str) -> Output:
        runs = objects(item, "output", path)
        return Output("\n\n".join(_shell_run(run, f"{path}.output[{index}]") for index, run in enumerate(runs)))

    def _apply_patch_output(self, item: Object, path: str) -> Output:
        lines = [optional_text(item, "status", path), optional_text(item, "output", path)]
        return Output("\n".join(filter(None, lines)))

    def _tool_search_output(self, _item: Object, path: str) -> Output:
        names = self._catalog.names_declared_at(f"{path}.tools")
        return Output(f"Tools found: {', '.join(names)}" if names else "No tools found.")

    def _program_output(self, item: Object, path: str) -> Output:
        return Output(nullable_text(item, "result", path))

    def _computer_output(self, item: Object, path: str) -> Output:
        return screenshot(optional_object(item, "output", path), f"{path}.output", self._report)


def is_async_call(item: Object) -> bool:
    """Tell whether a call says that its output may come at any time. `async` is a keyword of Python: its SDK has `async_`, and
    sends items that it was given as objects under that name."""
    return item.get("async") is True or item.get("async_") is True


def output_call_id(entry: Entry) -> str:
    """Return the id of the call that an output item answers; `local_shell_call_output` calls it `id`."""
    call_id = entry.item.get("call_id")
    if call_id and isinstance(call_id, str):  # nearly always
        return call_id
    if entry.kind == "local_shell_call_output" and call_id is None:
        return text(entry.item, "id", entry.path)
    return _call_id(entry.item, entry.path)


def is_unpaired(entry: Entry) -> bool:
    """Tell whether this is an output without a call: of a tool search that another server ran, or of a tool that no model has
    called, as Codex has the message of an automation or of another thread."""
    item = entry.item
    named = entry.kind == "tool_search_output" or (entry.kind == "function_call_output" and "name" in item)
    return named and item.get("call_id") is None


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


class ToldCall(NamedTuple):
    """What the item of a hosted call tells of it by itself: the function, the arguments, and the result if it has one.
    `chat_name`: the name that the model knows of a tool that is not declared now, if it is another one."""

    function: str
    arguments: Object
    result: str | None
    chat_name: str | None = None


def _web_search(item: Object, path: str) -> ToldCall | None:
    action = optional_object(item, "action", path)
    if action is None or optional_text(item, "id", path) is None:
        return None
    function = _SEARCHES.get(str(action.get("type")), SEARCH).name
    queries = action.get("queries") or [action.get("query") or ""]
    arguments = {"queries": queries} if function == SEARCH.name else _chosen(action, "url", "pattern")
    sources = [str(source.get("url")) for source in objects(action, "sources", f"{path}.action")]
    result = SEARCH_FAILED if item.get("status") == "failed" else RESULTS_NOT_KEPT
    return ToldCall(function, arguments, "\n".join([result, *sources]))


def _code_interpreter(item: Object, path: str) -> ToldCall:
    logs = [_as_text(output["logs"]) for output in objects(item, "outputs", path) if "logs" in output]
    result = "\n".join(logs) or _interrupted(item) or (RESULTS_NOT_KEPT if item.get("outputs") is None else "")
    return ToldCall("python", {"code": optional_text(item, "code", path) or ""}, result, "code_interpreter")


def _file_search(item: Object, path: str) -> ToldCall:
    texts = [spaced_json(_chosen(result, "filename", "text")) for result in objects(item, "results", path)]
    return ToldCall("file_search", _chosen(item, "queries"), "\n".join(texts) if texts else None)


def _image_generation(item: Object, path: str) -> ToldCall:
    prompt = optional_text(item, "revised_prompt", path)
    return ToldCall("generate_image", {"prompt": prompt}, "The image was shown to the user." if prompt else None)


def _interrupted(item: Object) -> str:
    """Return what the model is told of a call that was interrupted; nothing of any other."""
    return INTERRUPTED if item.get("status") == "incomplete" else ""


def _error_text(error: object) -> str:
    """Return what the model gets of the error of an `mcp_call`; nothing without one."""
    if error is None:
        return ""
    message: object = error
    if isinstance(error, dict):
        content = error.get("content")
        parts = content if isinstance(content, list) else []
        texts = [part["text"] for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str)]
        message = "\n".join(texts) or error.get("message") or error
    return f"Error: {_as_text(message)}"


def _as_text(value: object) -> str:
    return value if isinstance(value, str) else spaced_json(value)


# The type of an action of `web_search_call` -> the tool.
_SEARCHES = {"search": SEARCH, "open_page": OPEN_PAGE, "find_in_page": FIND_IN_PAGE}
_TOLD: dict[str, Callable[[Object, str], ToldCall | None]] = {
    "web_search": _web_search,
    "code_interpreter": _code_interpreter,
    "file_search": _file_search,
    "image_generation": _image_generation,
}
# Calls of tools known by their type -> the tool, and the member of the item that has the arguments.
_ACTIONS: dict[str, tuple[str, str]] = {
    "local_shell_call": ("local_shell", "action"),
    "shell_call": ("shell", "action"),
    "apply_patch_call": ("apply_patch", "operation"),
}


class ReadItem(NamedTuple, Generic[T]):
    """How items of a type are read, and what becomes of them, as the loss report has it."""

    read: Callable[[CallItemReader, Object, str], T]
    reason: str = "shown as a function call"
    outcome: Outcome = "adapted"


CALL_ITEMS: dict[str, ReadItem[InputCall | None]] = {
    "function_call": ReadItem(CallItemReader._function_call, "a tool call of the assistant message", "preserved"),
    "custom_tool_call": ReadItem(CallItemReader._custom_tool_call),
    **dict.fromkeys(_ACTIONS, ReadItem(CallItemReader._action_call)),
    "tool_search_call": ReadItem(CallItemReader._tool_search_call),
    "computer_call": ReadItem(CallItemReader._computer_call),
    **{kind.item.type: ReadItem(CallItemReader._hosted_call, kind.read_as) for kind in HOSTED.values()},
    "mcp_call": ReadItem(CallItemReader._mcp_call, MCP.read_as),
    "mcp_approval_request": ReadItem(
        CallItemReader._approval_request, "shown as a function call with the result, or the refusal"
    ),
    "program": ReadItem(CallItemReader._program),
}
_PLAIN_OUTPUT = ReadItem(CallItemReader._plain_output, "a tool message", "preserved")
OUTPUT_ITEMS: dict[str, ReadItem[Output]] = {
    "function_call_output": _PLAIN_OUTPUT,
    "custom_tool_call_output": _PLAIN_OUTPUT,
    "local_shell_call_output": _PLAIN_OUTPUT,
    "shell_call_output": ReadItem(CallItemReader._shell_output, "shown as text"),
    "apply_patch_call_output": ReadItem(CallItemReader._apply_patch_output, "shown as text"),
    "tool_search_output": ReadItem(CallItemReader._tool_search_output, "its tools are declared, and named in a tool message"),
    "computer_call_output": ReadItem(CallItemReader._computer_output, "the screenshot follows in a user message"),
    "program_output": ReadItem(CallItemReader._program_output, "shown as text"),
}
_LOSSES = {
    **{kind: reported(Loss("item", kind, form.outcome, form.reason)) for kind, form in CALL_ITEMS.items()},
    **{kind: reported(Loss("item", kind, form.outcome, form.reason)) for kind, form in OUTPUT_ITEMS.items()},
}
CALL_TYPES = frozenset(CALL_ITEMS)
OUTPUT_TYPES = frozenset(OUTPUT_ITEMS)
