"""The client's tools, each read into one declaration; tools that only OpenAI's servers run are put on record."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from proxy.request.fields import Object, filled_text, object_list, optional_flag, optional_object, optional_text, shown, text
from proxy.request.grammar.json_pattern import Reading, pattern_of
from proxy.request.grammar.lark_reader import UnknownGrammar
from proxy.request.grammar.regex import LONGEST_DEFINITION, regex_of
from proxy.request.input.items import Entry
from proxy.request.loss_report import Ledger
from proxy.request.policy import Policy
from proxy.request.sizes import TOOL_LISTS
from proxy.request.tools import builtin_tools
from proxy.wire.errors import invalid_request
from proxy.wire.tools import CUSTOM_INPUT, Grammar, ToolKind, ToolTarget

#: Beginnings of the types of hosted tools (some carry a date or a suffix), as they stand in the loss report.
HOSTED_TOOLS = (
    "web_search",
    "file_search",
    "code_interpreter",
    "image_generation",
    "computer",
    "mcp",
    "programmatic_tool_calling",
)
#: Characters of grammars that are made patterns in one request: reading them takes time that all requests share.
_MOST_PATTERNS = 16 * 1024

#: `Policy.custom_tool_grammar` -> how the backend reads patterns, where they are wanted.
_READINGS: dict[str, Reading] = {"auto": "alike", "json": "json", "text": "text"}


class Declaration(NamedTuple):
    """A tool that the model may call: who it is for the client, and what the model is told. `grammar`: what its input must
    match, where that is to be checked."""

    target: ToolTarget
    description: str
    parameters: Object
    strict: bool = False
    grammar: Grammar | None = None


class ToolReader:
    """Reads tool lists. `hosted` gathers the types of the hosted tools that were met."""

    def __init__(self, policy: Policy, ledger: Ledger) -> None:
        self._policy = policy
        self._ledger = ledger
        self.hosted: set[str] = set()
        self._patterns_left = _MOST_PATTERNS
        self._declared: dict[ToolTarget, Declaration] = {}

    def read(self, tools: object, param: str) -> Iterator[Declaration]:
        """The declarations of a list of tools that stands at `param`. Raises `ApiError` 400."""
        for index, tool in enumerate(object_list(tools, param)):
            path = f"{param}[{index}]"
            if text(tool, "type", path) == "namespace":
                yield from self._namespace(tool, path)
            else:
                yield from self._tool(tool, path, None, "")

    def brought(self, entries: Iterable[Entry]) -> dict[str, list[Declaration]]:
        """The declarations that items bring along, by the place of their list. Raises `ApiError` 400."""
        places = ((f"{entry.path}.tools", entry.item.get("tools") or []) for entry in entries if entry.kind in TOOL_LISTS)
        return {place: list(self.read(tools, place)) for place, tools in places}

    def _namespace(self, tool: Object, path: str) -> Iterator[Declaration]:
        namespace = filled_text(tool, "name", path)
        about = optional_text(tool, "description", path) or ""
        self._ledger.adapted("tool", "namespace", "offered as functions named namespace__name")
        for index, member in enumerate(object_list(tool.get("tools"), f"{path}.tools")):
            yield from self._tool(member, f"{path}.tools[{index}]", namespace, about)

    def _tool(self, tool: Object, path: str, namespace: str | None, about: str) -> Iterator[Declaration]:
        kind = text(tool, "type", path)
        if kind == "function":
            declaration = self._function(tool, path, namespace, about)
        elif kind == "custom":
            declaration = self._custom(tool, path, namespace, about)
        elif kind in _BUILTIN and namespace is None and _runs_at_client(kind, tool):
            self._ledger.adapted("tool", kind, "offered as a function")
            declaration = _BUILTIN[kind](tool, path)
        else:
            self._unavailable(kind, path)
            return
        self._options(tool, path)
        if self._declared.setdefault(declaration.target, declaration) != declaration:
            self._ledger.ignored("tool", "declared_again", "a tool of this name was declared in another way before", path)
        yield declaration

    def _options(self, tool: Object, path: str) -> None:
        """What a tool says about how it may be called, and chat servers do not know."""
        # What a search has found is no longer deferred.
        if optional_flag(tool, "defer_loading", path) and path.startswith("tools["):
            self._ledger.adapted("tool", "defer_loading", "offered at once")
        callers = tool.get("allowed_callers")
        if isinstance(callers, list) and callers and "direct" not in callers:
            reason = "no programs are run here: the model may call the tool itself"
            self._ledger.ignored("tool", "allowed_callers", reason, f"{path}.allowed_callers")
        if optional_flag(tool, "async", path):
            self._ledger.ignored("tool", "async", "chat servers do not know it", f"{path}.async", matters=False)
        if optional_object(tool, "output_schema", path):
            reason = "chat servers do not know it"
            self._ledger.ignored("tool", "output_schema", reason, f"{path}.output_schema", matters=False)

    def _function(self, tool: Object, path: str, namespace: str | None, about: str) -> Declaration:
        self._ledger.preserved("tool", "function")
        parameters = optional_object(tool, "parameters", path) or {"type": "object", "properties": {}}
        description = optional_text(tool, "description", path) or about
        target = ToolTarget("function", filled_text(tool, "name", path), namespace)
        return Declaration(target, description, parameters, optional_flag(tool, "strict", path) is True)

    def _custom(self, tool: Object, path: str, namespace: str | None, about: str) -> Declaration:
        self._ledger.adapted("tool", "custom", f"offered as a function with one string argument, {CUSTOM_INPUT}")
        target = ToolTarget("custom", filled_text(tool, "name", path), namespace)
        description = optional_text(tool, "description", path) or about
        paragraphs = [description, f"Pass the whole text as the string argument `{CUSTOM_INPUT}`."]
        argument: Object = {"type": "string", "description": "The input of the tool, as plain text."}
        grammar = self._grammar(tool, path)
        if grammar is not None:
            paragraphs.append(_explained(grammar))
            pattern = self._pattern(grammar)
            if pattern is not None:
                argument["pattern"] = pattern
            self._record(pattern is not None)
        parameters = {
            "type": "object",
            "properties": {CUSTOM_INPUT: argument},
            "required": [CUSTOM_INPUT],
            "additionalProperties": False,
        }
        return Declaration(target, "\n\n".join(filter(None, paragraphs)), parameters, "pattern" in argument, grammar)

    def _grammar(self, tool: Object, path: str) -> Grammar | None:
        """The grammar of the tool's input, if it has one and it is to be regarded."""
        layout = optional_object(tool, "format", path) or {"type": "text"}
        kind = text(layout, "type", f"{path}.format")
        if kind == "text":
            return None
        if kind != "grammar":
            raise invalid_request(
                f"Invalid value: {shown(kind)}. A custom tool's format is 'text' or 'grammar'.",
                f"{path}.format.type",
                "invalid_value",
            )
        syntax = text(layout, "syntax", f"{path}.format")
        if syntax not in ("lark", "regex"):
            raise invalid_request(
                f"Invalid value: {shown(syntax)}. The syntax of a grammar is 'lark' or 'regex'.",
                f"{path}.format.syntax",
                "invalid_value",
            )
        grammar = Grammar(syntax, text(layout, "definition", f"{path}.format"))
        if self._policy.custom_tool_grammar == "off":
            self._ledger.ignored("tool", "custom_grammar", "grammars are switched off here", f"{path}.format")
            return None
        if len(grammar.definition) > LONGEST_DEFINITION:
            self._ledger.ignored("tool", "custom_grammar", "the grammar is too long", f"{path}.format.definition")
            return None
        return grammar

    def _record(self, sent: bool) -> None:
        if not sent:
            self._ledger.adapted("tool", "custom_grammar", "explained to the model and checked, not enforced")
        elif self._policy.custom_tool_grammar == "auto":
            self._ledger.adapted(
                "tool", "custom_grammar", "sent as the pattern of the argument, which not all backends enforce"
            )
        else:
            self._ledger.preserved("tool", "custom_grammar")

    def _pattern(self, grammar: Grammar) -> str | None:
        """The grammar as a pattern that backends may enforce, if it can be one."""
        self._patterns_left -= len(grammar.definition)
        reading = _READINGS.get(self._policy.custom_tool_grammar)
        if reading is None or self._patterns_left < 0:
            return None
        try:
            return pattern_of(regex_of(grammar), reading)
        except UnknownGrammar:
            return None

    def _unavailable(self, kind: str, path: str) -> None:
        hosted = hosted_name(kind)
        if hosted is not None:
            self.hosted.add(kind)
            self._ledger.ignored("tool", hosted, "hosted tools are not run here", path)
        elif kind in _BUILTIN:
            self.hosted.add(kind)
            self._ledger.ignored("tool", kind, "it would have to run on the server", path)
        else:
            self._ledger.ignored("tool", "unknown", "unknown tool type", path)


def hosted_name(kind: str) -> str | None:
    """The loss report's name of a hosted tool type, or None: `web_search_preview_2025_03_11` is `web_search`."""
    return next((name for name in HOSTED_TOOLS if kind.startswith(name)), None)


def _explained(grammar: Grammar) -> str:
    how = "From its first character to its last, without a code fence around it,"
    return f"{how} the text must match this {grammar.syntax} grammar:\n{grammar.definition}"


def _runs_at_client(kind: str, tool: Object) -> bool:
    """tool_search and shell exist twice: run by the client, or in OpenAI's containers."""
    if kind == "tool_search":
        return tool.get("execution") == "client"
    environment = tool.get("environment")
    return not (isinstance(environment, dict) and str(environment.get("type")).startswith("container"))


def _local_shell(_tool: Object, _path: str) -> Declaration:
    return _builtin("local_shell", builtin_tools.LOCAL_SHELL_DESCRIPTION, builtin_tools.LOCAL_SHELL)


def _shell(_tool: Object, _path: str) -> Declaration:
    return _builtin("shell", builtin_tools.SHELL_DESCRIPTION, builtin_tools.SHELL)


def _apply_patch(_tool: Object, _path: str) -> Declaration:
    return _builtin("apply_patch", builtin_tools.APPLY_PATCH_DESCRIPTION, builtin_tools.APPLY_PATCH)


def _tool_search(tool: Object, path: str) -> Declaration:
    description = optional_text(tool, "description", path) or builtin_tools.TOOL_SEARCH_DESCRIPTION
    return _builtin("tool_search", description, optional_object(tool, "parameters", path) or builtin_tools.TOOL_SEARCH)


def _builtin(kind: ToolKind, description: str, parameters: Object) -> Declaration:
    return Declaration(ToolTarget(kind, kind), description, parameters)


_BUILTIN: dict[str, Callable[[Object, str], Declaration]] = {
    "local_shell": _local_shell,
    "shell": _shell,
    "apply_patch": _apply_patch,
    "tool_search": _tool_search,
}
