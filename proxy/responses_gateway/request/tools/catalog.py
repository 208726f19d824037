"""All tools of one request under their chat names: the functions to offer, and the way from a call back to its tool.

Names depend on the *set* of declared tools, never on their order, so that they (and the prompt's prefix) stay the same from
turn to turn. A name is readable if possible: `name`, or `namespace__name`; only if that would be invalid, too long or
ambiguous does it end in a hash of the tool's identity."""

from __future__ import annotations

import hashlib
import itertools
import re
from collections import defaultdict
from collections.abc import Iterable

from responses_gateway.request.fields import Object
from responses_gateway.request.tools.declarations import Declaration, DeclaredTools
from responses_gateway.request.tools.hosted_tools import MODEL_NAMES
from responses_gateway.request.tools.schemas import SchemaReader
from responses_gateway.wire.tools import Grammar, ToolTable, ToolTarget, any_tool_of

MAX_LENGTH = 64
# Google and Kimi refuse a request with a name that begins with a digit or a hyphen.
_VALID = re.compile(r"[a-zA-Z_][a-zA-Z0-9_-]{0,63}")
_INVALID = re.compile(r"[^a-zA-Z0-9_-]")
_HASH_LENGTH = 8
# Codex's word for "no namespace": its tools are offered under their bare names.
BARE_NAMESPACE = "functions"


class Catalog:
    """Maps chat names to the client's tools and back. `functions` are the chat tools in the order of their first declaration
    (of several declarations of a tool the first counts, so that the rest of the prompt does not change). `table` maps chat
    names to tools. `grammars` has the grammars of custom tools. `hosted` are the types of the tools that cannot be offered,
    `mcp_labels` the labels of the MCP servers that the gateway calls."""

    def __init__(self, declared: DeclaredTools) -> None:
        self._by_list = declared.by_list
        self._names = chat_names(declared.first)
        self._by_name: dict[tuple[str, str | None], str] = {}
        self.hosted = declared.hosted
        self.table: ToolTable = {}
        self.functions: dict[str, Object] = {}
        self.grammars: dict[str, Grammar] = {}
        schemas = SchemaReader()
        for target, declaration in declared.first.items():
            name = self._names[target]
            self._by_name.setdefault((target.name, target.namespace), name)
            self.table[name] = target._replace(
                expects_ciphertext=declaration.expects_ciphertext,
                needs_approval=declaration.needs_approval,
                asynchronous=declaration.asynchronous,
            )
            self.functions[name] = _function(name, declaration, schemas)
            if declaration.grammar is not None:
                self.grammars[name] = declaration.grammar
        for name, target in MODEL_NAMES.items():
            if target in self._names:
                self.table.setdefault(name, target)
        self.mcp_labels = frozenset(declared.mcp_labels)
        for label in sorted(self.mcp_labels):
            self.table.setdefault(*any_tool_of(label))

    def name_of_call(self, kind: str, name: str, namespace: str | None) -> str:
        """Return the chat name for a call in the input; its tool need not be declared (any more)."""
        target = ToolTarget(kind, name, namespace)
        return self._names.get(target) or self._declared(name, namespace) or lone_chat_name(target)

    def is_async(self, name: str) -> bool:
        """Tell whether the tool of a chat name is declared, and the results of its calls may come later."""
        target = self.table.get(name)
        return target is not None and target.asynchronous

    def find(self, kind: str, name: str, namespace: str | None) -> str | None:
        """Return the chat name of a declared tool that `tool_choice` names, or None. Without a namespace it may be the only
        tool of that name in any namespace."""
        exact = self._names.get(ToolTarget(kind, name, namespace))
        if exact is not None or namespace is not None:
            return exact
        names = [chat for target, chat in self._names.items() if target.kind == kind and target.name == name]
        return names[0] if len(names) == 1 else None

    def names_in(self, namespace: str) -> frozenset[str]:
        """Return the chat names of the tools in a namespace."""
        return frozenset(chat for target, chat in self._names.items() if target.namespace == namespace)

    def names_of(self, kind: str, namespace: str | None = None, name: str | None = None) -> frozenset[str]:
        """Return the chat names of all tools of a kind; of one namespace, and of one name there, if they are given."""
        return frozenset(
            chat for target, chat in self._names.items()
            if target.kind == kind and namespace in (None, target.namespace) and name in (None, target.name)
        )  # fmt: skip

    def names_declared_at(self, path: str) -> list[str]:
        """Return the chat names of the tools in the list at `path`."""
        return [self._names[target] for target in self._by_list[path]]

    def _declared(self, name: str, namespace: str | None) -> str | None:
        """Find a tool by name, of any kind; the namespace "functions" is the same as none."""
        chat_name = self._by_name.get((name, namespace))
        if chat_name is None and namespace in (None, BARE_NAMESPACE):
            chat_name = self._by_name.get((name, BARE_NAMESPACE if namespace is None else None))
        return chat_name


def _function(name: str, declaration: Declaration, schemas: SchemaReader) -> Object:
    function: Object = {"name": name}
    if declaration.description:
        function["description"] = declaration.description
    function["parameters"] = schemas.parameters(declaration.parameters)
    if declaration.strict:
        function["strict"] = True
    return {"type": "function", "function": function}


def chat_names(targets: Iterable[ToolTarget]) -> dict[ToolTarget, str]:
    """Return a distinct chat name for each of `targets`."""
    claims: defaultdict[str, list[ToolTarget]] = defaultdict(list)
    for target in targets:
        claims[_joined(target)].append(target)
    names: dict[ToolTarget, str] = {}
    unnamed: list[ToolTarget] = []
    for joined, claimants in claims.items():
        if len(claimants) > 1:
            claimants.sort(key=_rank)
        if _is_valid(joined):
            names[claimants[0]] = joined
            unnamed += claimants[1:]
        else:
            unnamed += claimants
    taken = set(names.values())
    for target in sorted(unnamed, key=_rank):
        names[target] = next(name for attempt in itertools.count() if (name := _hashed(target, attempt)) not in taken)
        taken.add(names[target])
    return names


def lone_chat_name(target: ToolTarget) -> str:
    """Return the chat name for a call of a tool that is not declared."""
    joined = _joined(target)
    return joined if _is_valid(joined) else _hashed(target, 0)


def _joined(target: ToolTarget) -> str:
    namespace = target.namespace
    if namespace is None or namespace == BARE_NAMESPACE:
        return target.name
    return f"{namespace}{target.name}" if namespace.endswith("__") else f"{namespace}__{target.name}"


def _is_valid(name: str) -> bool:
    return _VALID.fullmatch(name) is not None


def _rank(target: ToolTarget) -> tuple[bool, bool, str, str, str]:
    """Rank the claims to a name: top-level before namespaced tools, functions before other kinds."""
    return target.namespace is not None, target.kind != "function", target.kind, target.namespace or "", target.name


def _hashed(target: ToolTarget, attempt: int) -> str:
    identity = "\0".join((target.kind, target.namespace or "", target.name, str(attempt)))
    digest = hashlib.sha256(identity.encode()).hexdigest()[:_HASH_LENGTH]
    readable = _INVALID.sub("_", _joined(target))
    if not _VALID.match(readable):
        readable = f"t_{readable}"
    return f"{readable[: MAX_LENGTH - _HASH_LENGTH - 1]}_{digest}"


NO_TOOLS = Catalog(DeclaredTools({}, {}, set(), set()))
