"""Read the client's tools, each into one declaration; tools that only OpenAI's servers can run are reported."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from responses_gateway.request.fields import (
    Entry,
    Object,
    filled_text,
    object_list,
    optional_flag,
    optional_object,
    optional_text,
    quote,
    text,
    too_long,
)
from responses_gateway.request.grammar.json_pattern import Reading, pattern_of
from responses_gateway.request.grammar.lark_reader import UnknownGrammar
from responses_gateway.request.grammar.regex import LONGEST_DEFINITION, regex_of
from responses_gateway.request.loss_report import LossReport
from responses_gateway.request.policy import Policy
from responses_gateway.request.tools.builtin_tools import BUILTIN_TOOLS
from responses_gateway.request.tools.hosted_tools import NO_HOSTED_TOOLS, WEB_TOOLS, HostedTools
from responses_gateway.wire.errors import invalid_request
from responses_gateway.wire.hosted_kinds import HOSTED, MCP, WEB_SEARCH, HostedKind
from responses_gateway.wire.requests import TypedPart
from responses_gateway.wire.tools import CUSTOM_INPUT, Grammar, ToolTarget

# Prefixes of the types of tools that OpenAI's servers run (some have a date or a suffix), and their names in the loss report.
HOSTED_TOOLS = (*HOSTED, "computer", "programmatic_tool_calling")
# The most characters of grammars that are converted to patterns for one request, since conversion blocks other requests.
_PATTERN_BUDGET = 16 * 1024
# What leads the list of a local shell's skills.
_SKILLS = "Skills: folders of instructions and scripts. Before a task that one of them fits, read its SKILL.md with this shell."
# Items that declare tools.
TOOL_LISTS = frozenset({"additional_tools", "tool_search_output"})
# `Policy.custom_tool_grammar` -> how the backend interprets patterns, for values that send them.
_READINGS: dict[str, Reading] = {"auto": "alike", "json": "json", "text": "text"}
# The types of tools that may be asynchronous: the model does not wait for their results, which may come in any later request.
MAY_BE_ASYNC = frozenset({"function", "custom"})
# Open models know nothing of such tools, and mostly invent the result without these hints. The end of the tool's description:
RESULTS_COME_LATER = (
    "This tool works in the background: its result comes in a later message. Until it is there, do not guess the result, "
    "and do not call the tool again for the same thing."
)


class Declaration(NamedTuple):
    """A tool that the model may call: its identity for the client, and its description for the model. `grammar`: the grammar
    that its input must match, if that is to be checked. `expects_ciphertext`: the client asked for encrypted arguments.
    `asynchronous`: the results of its calls may come in any later request."""

    target: ToolTarget
    description: str
    parameters: Object
    strict: bool = False
    grammar: Grammar | None = None
    expects_ciphertext: bool = False
    needs_approval: bool = False
    asynchronous: bool = False


# What is told of a tool besides what it is, and reported.
_OPTIONS = frozenset({"defer_loading", "allowed_callers", "output_schema"})


class _Format(TypedPart):
    type: Literal["text", "grammar"]


class _GrammarFormat(TypedPart):
    syntax: Literal["lark", "regex"]
    definition: str


def check_tool_count(tools: Any, items: Sequence[Entry], limit: int) -> None:
    """Raise `ApiError` 400 for more than `limit` tools, including those in namespaces and in items."""
    count = _count(tools)
    for entry in items:
        if entry.kind in TOOL_LISTS:
            count += _count(entry.item.get("tools"))
    if count > limit:
        raise too_long("tools", count, limit, "tools")


def _count(tools: Any) -> int:
    """Count the tools of a list and of its namespaces, which are not nested; malformed lists are refused later."""
    if not isinstance(tools, list):
        return 0
    namespaces = (tool.get("tools") for tool in tools if isinstance(tool, dict) and tool.get("type") == "namespace")
    return len(tools) + sum(len(members) for members in namespaces if isinstance(members, list))


class DeclaredTools(NamedTuple):
    """The tools of a request. `first` has the first declaration of each tool, in order. `by_list` has the tools of each list in
    the request, by its path (`tools`, `input[0].tools`). `hosted` are the types of the tools that cannot be offered.
    `mcp_labels` are those of the MCP servers that the gateway calls, whatever they list."""

    first: dict[ToolTarget, Declaration]
    by_list: dict[str, list[ToolTarget]]
    hosted: set[str]
    mcp_labels: set[str]


def read_tools(
    tools: object, items: Iterable[Entry], policy: Policy, report: LossReport, hosted: HostedTools = NO_HOSTED_TOOLS
) -> DeclaredTools:
    """Read the `tools` of a request, then those that items declare; `hosted`: those that can be run. Raises `ApiError` 400."""
    reader = _ToolReader(policy, report, hosted)
    reader.read(tools, "tools")
    for entry in items:
        if entry.kind in TOOL_LISTS:
            reader.read(entry.item.get("tools") or [], f"{entry.path}.tools")
    return reader.declared


@dataclass(slots=True)
class _ToolReader:
    """Reads the lists of tools of one request."""

    _policy: Policy
    _report: LossReport
    _hosted: HostedTools
    _patterns_left: int = _PATTERN_BUDGET
    declared: DeclaredTools = field(default_factory=lambda: DeclaredTools({}, {}, set(), set()))

    def read(self, tools: object, param: str) -> None:
        targets = self.declared.by_list.setdefault(param, [])
        for index, tool in enumerate(object_list(tools, param)):
            path = f"{param}[{index}]"
            kind = text(tool, "type", path)
            if kind == "namespace":
                self._namespace(tool, path, targets)
            elif self._policy.separate_web_tools and kind in WEB_TOOLS and WEB_SEARCH.name in self._hosted.kinds:
                if kind == WEB_SEARCH.name:
                    self._report.preserved("tool", kind)
                self._offer(WEB_SEARCH, WEB_TOOLS[kind], targets)
            elif (
                kind != "function"
                and (known := hosted_name(kind)) is not None
                and (known in self._hosted.kinds or path in self._hosted.mcp)
            ):
                self._run_here(known, tool, path, targets)
            else:
                self._tool(kind, tool, path, None, "", targets)

    def _run_here(self, kind: str, tool: Object, path: str, targets: list[ToolTarget]) -> None:
        """Declare a hosted tool that the gateway can run."""
        self._report.preserved("tool", kind)
        if kind == MCP.name:
            label = filled_text(tool, "server_label", path)
            self.declared.mcp_labels.add(label)
            for listed in self._hosted.mcp[path]:
                target = ToolTarget(kind, listed.name, label)
                declaration = Declaration(target, listed.description, listed.parameters, needs_approval=listed.needs_approval)
                self._declare(declaration, targets)
            return
        hosted = HOSTED[kind]
        self._offer(hosted, [ToolTarget(kind, function.name) for function in hosted.functions], targets)

    def _offer(self, kind: HostedKind, targets: Iterable[ToolTarget], listed: list[ToolTarget]) -> None:
        """Declare functions of a kind of hosted tools."""
        functions = {function.name: function for function in kind.functions}
        for target in targets:
            function = functions[target.name]
            self._declare(Declaration(target, function.description, function.parameters), listed)

    def _declare(self, declaration: Declaration, listed: list[ToolTarget]) -> None:
        self.declared.first.setdefault(declaration.target, declaration)
        listed.append(declaration.target)

    def _namespace(self, tool: Object, path: str, targets: list[ToolTarget]) -> None:
        namespace = filled_text(tool, "name", path)
        about = optional_text(tool, "description", path) or ""
        _refuse_async(tool, path)
        self._report.adapted("tool", "namespace", "offered as functions named namespace__name")
        for index, member in enumerate(object_list(tool.get("tools"), f"{path}.tools")):
            member_path = f"{path}.tools[{index}]"
            self._tool(text(member, "type", member_path), member, member_path, namespace, about, targets)

    def _tool(self, kind: str, tool: Object, path: str, namespace: str | None, about: str, targets: list[ToolTarget]) -> None:
        if kind == "function":
            declaration = self._function(tool, path, namespace, about)
        elif kind == "custom":
            declaration = self._custom(tool, path, namespace, about)
        elif kind == "shell" and namespace is None:
            declaration = self._shell(tool, path)
        elif kind in _BUILTIN and namespace is None and (kind != "tool_search" or tool.get("execution") == "client"):
            self._report.adapted("tool", kind, "offered as a function")
            declaration = _builtin(tool, path, _BUILTIN[kind])
        else:
            _refuse_async(tool, path)
            self._unavailable(kind, path)
            return
        if kind not in MAY_BE_ASYNC:
            _refuse_async(tool, path)
        elif optional_flag(tool, "async", path):
            declaration = self._asynchronous(declaration)
        self._options(tool, path)
        first = self.declared.first.setdefault(declaration.target, declaration)
        if first is not declaration and first != declaration:
            self._report.ignored("tool", "declared_again", "a tool of this name was declared in another way before", path)
        targets.append(declaration.target)

    def _asynchronous(self, declaration: Declaration) -> Declaration:
        self._report.adapted("tool", "async", "the model is told that results come later, and asked to go on")
        description = "\n\n".join(filter(None, [declaration.description, RESULTS_COME_LATER]))
        return declaration._replace(description=description, asynchronous=True)

    def _options(self, tool: Object, path: str) -> None:
        """Report the options of a tool that chat servers do not support."""
        if _OPTIONS.isdisjoint(tool):
            return
        # Tools found by a search are no longer deferred.
        if optional_flag(tool, "defer_loading", path) and path.startswith("tools["):
            self._report.adapted("tool", "defer_loading", "offered at once")
        callers = tool.get("allowed_callers")
        if isinstance(callers, list) and callers and "direct" not in callers:
            reason = "programs are not run here: the model may call the tool itself"
            self._report.ignored("tool", "allowed_callers", reason, f"{path}.allowed_callers")
        if optional_object(tool, "output_schema", path):
            reason = "chat servers do not support it"
            self._report.ignored("tool", "output_schema", reason, f"{path}.output_schema", matters=False)

    def _function(self, tool: Object, path: str, namespace: str | None, about: str) -> Declaration:
        self._report.preserved("tool", "function")
        parameters = optional_object(tool, "parameters", path) or {"type": "object", "properties": {}}
        description = optional_text(tool, "description", path) or about
        target = ToolTarget("function", filled_text(tool, "name", path), namespace)
        plain = _without_encryption(parameters)
        if plain is not parameters:
            self._report.adapted("tool", "encrypted_arguments", "the arguments are plain text, and calls say so")
        strict = optional_flag(tool, "strict", path) is True
        return Declaration(target, description, plain, strict, expects_ciphertext=plain is not parameters)

    def _custom(self, tool: Object, path: str, namespace: str | None, about: str) -> Declaration:
        self._report.adapted("tool", "custom", f"offered as a function with one string argument, {CUSTOM_INPUT}")
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
            self._report_grammar(pattern is not None)
        parameters = {
            "type": "object",
            "properties": {CUSTOM_INPUT: argument},
            "required": [CUSTOM_INPUT],
            "additionalProperties": False,
        }
        return Declaration(target, "\n\n".join(filter(None, paragraphs)), parameters, "pattern" in argument, grammar)

    def _shell(self, tool: Object, path: str) -> Declaration:
        """Declare a shell of the client, with its skills. Raise `ApiError` 400 for one in a container: nothing here has one."""
        self._report.adapted("tool", "shell", "offered as a function")
        declaration = _BUILTIN["shell"]
        environment = optional_object(tool, "environment", path)
        if environment is None:
            return declaration
        inside = f"{path}.environment"
        kind = text(environment, "type", inside)
        if kind != "local":
            message = f"Unsupported value: {quote(kind)}. This gateway has no containers: only a 'local' shell can be offered."
            raise invalid_request(message, f"{inside}.type", "unsupported_value")
        skills = object_list(environment.get("skills") or [], f"{inside}.skills")
        if not skills:
            return declaration
        lines = [_skill(skill, f"{inside}.skills[{index}]") for index, skill in enumerate(skills)]
        description = "\n".join([f"{declaration.description}\n\n{_SKILLS}", *lines])
        return declaration._replace(description=description)

    def _grammar(self, tool: Object, path: str) -> Grammar | None:
        """Return the grammar of the tool's input, or None if it has none or the grammar is ignored."""
        layout = optional_object(tool, "format", path)
        if not layout or _Format.read(layout, f"{path}.format").type == "text":
            return None
        declared = _GrammarFormat.read(layout, f"{path}.format")
        grammar = Grammar(declared.syntax, declared.definition)
        if self._policy.custom_tool_grammar == "off":
            self._report.ignored("tool", "custom_grammar", "grammars are disabled here", f"{path}.format")
            return None
        if len(grammar.definition) > LONGEST_DEFINITION:
            self._report.ignored("tool", "custom_grammar", "the grammar is too long", f"{path}.format.definition")
            return None
        return grammar

    def _report_grammar(self, sent: bool) -> None:
        if not sent:
            self._report.adapted("tool", "custom_grammar", "explained to the model and checked, not enforced")
        elif self._policy.custom_tool_grammar == "auto":
            self._report.adapted(
                "tool", "custom_grammar", "sent as the pattern of the argument, which not all backends enforce"
            )
        else:
            self._report.preserved("tool", "custom_grammar")

    def _pattern(self, grammar: Grammar) -> str | None:
        """Return the grammar as a pattern that backends may enforce, or None if that is not possible."""
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
            self.declared.hosted.add(kind)
            self._report.ignored("tool", hosted, hosted_reason(hosted), path)
        elif kind in _BUILTIN:
            self.declared.hosted.add(kind)
            self._report.ignored("tool", kind, "it would have to be run by the server", path)
        else:
            self._report.ignored("tool", "unknown", "unknown tool type", path)


def _without_encryption(parameters: Object) -> Object:
    """Return a schema without the mark `"encrypted": true` of its properties, by which Codex has OpenAI's servers encrypt an
    argument; the same object if there is none."""
    properties = parameters.get("properties")
    if not isinstance(properties, dict):
        return parameters
    marked = [name for name, schema in properties.items() if isinstance(schema, dict) and schema.get("encrypted") is True]
    if not marked:
        return parameters
    plain = {name: {key: value for key, value in properties[name].items() if key != "encrypted"} for name in marked}
    return {**parameters, "properties": {**properties, **plain}}


def hosted_name(kind: str) -> str | None:
    """Return the loss report's name of a hosted tool type, or None: `web_search_preview_2025_03_11` is `web_search`."""
    return next((name for name in HOSTED_TOOLS if kind.startswith(name)), None)


def hosted_reason(name: str) -> str:
    """Say why a hosted tool cannot be run, and what would turn it on."""
    kind = HOSTED.get(name)
    return f"run by the gateway only with the setting {kind.setting}" if kind else "hosted tools of this kind are not run here"


def _explained(grammar: Grammar) -> str:
    how = "From its first character to its last, without a code fence around it,"
    return f"{how} the text must match this {grammar.syntax} grammar:\n{grammar.definition}"


def _skill(skill: Object, path: str) -> str:
    """Return the line that tells the model of a skill."""
    name = filled_text(skill, "name", path)
    return f"- {name} ({filled_text(skill, 'path', path)}): {text(skill, 'description', path)}"


def _builtin(tool: Object, path: str, builtin: Declaration) -> Declaration:
    """Return the declaration of a tool known by its type; the client may describe `tool_search` itself."""
    if builtin.target.kind != "tool_search":
        return builtin
    description = optional_text(tool, "description", path) or builtin.description
    parameters = optional_object(tool, "parameters", path) or builtin.parameters
    return builtin._replace(description=description, parameters=parameters)


_BUILTIN = {kind: Declaration(ToolTarget(kind, kind), *described) for kind, described in BUILTIN_TOOLS.items()}


def _refuse_async(tool: Object, path: str) -> None:
    """Refuse `async` of a tool whose calls nobody can leave open, as OpenAI does."""
    if tool.get("async"):
        raise invalid_request(f"Unknown parameter: '{path}.async'.", f"{path}.async", "unknown_parameter")
