"""All tools of one request under their chat names: the functions to offer, and the way from a call back to its tool."""

from __future__ import annotations

from proxy.request.fields import Object
from proxy.request.tools.declarations import Declaration, DeclaredTools
from proxy.request.tools.names import BARE_NAMESPACE, chat_names, lone_chat_name
from proxy.wire.tools import Grammar, ToolKind, ToolTable, ToolTarget


class Catalog:
    """Maps chat names to the client's tools and back. `functions` are the chat tools in the order of their first declaration
    (of several declarations of a tool the first counts, so that the rest of the prompt does not change). `table` maps chat
    names to tools. `grammars` has the grammars of custom tools. `hosted` are the types of the tools that cannot be offered."""

    def __init__(self, declared: DeclaredTools) -> None:
        self._by_list = declared.by_list
        self._names = chat_names(declared.first)
        self._by_name: dict[tuple[str, str | None], str] = {}
        self.hosted = declared.hosted
        self.table: ToolTable = {}
        self.functions: dict[str, Object] = {}
        self.grammars: dict[str, Grammar] = {}
        for target, declaration in declared.first.items():
            name = self._names[target]
            self._by_name.setdefault((target.name, target.namespace), name)
            self.table[name] = target
            self.functions[name] = _function(name, declaration)
            if declaration.grammar is not None:
                self.grammars[name] = declaration.grammar

    def name_of_call(self, kind: ToolKind, name: str, namespace: str | None) -> str:
        """Return the chat name for a call in the input; its tool need not be declared (any more)."""
        target = ToolTarget(kind, name, namespace)
        return self._names.get(target) or self._declared(name, namespace) or lone_chat_name(target)

    def find(self, kind: ToolKind, name: str, namespace: str | None) -> str | None:
        """Return the chat name of a declared tool that `tool_choice` names, or None. Without a namespace it may be the only
        tool of that name in any namespace."""
        exact = self._names.get(ToolTarget(kind, name, namespace))
        if exact is not None or namespace is not None:
            return exact
        found = [chat for target, chat in self._names.items() if target.kind == kind and target.name == name]
        return found[0] if len(found) == 1 else None

    def names_in(self, namespace: str) -> frozenset[str]:
        """Return the chat names of the tools in a namespace."""
        return frozenset(chat for target, chat in self._names.items() if target.namespace == namespace)

    def names_declared_at(self, path: str) -> list[str]:
        """Return the chat names of the tools in the list at `path`."""
        return [self._names[target] for target in self._by_list[path]]

    def _declared(self, name: str, namespace: str | None) -> str | None:
        """Find a tool by name, of any kind; the namespace "functions" is the same as none."""
        found = self._by_name.get((name, namespace))
        if found is None and namespace in (None, BARE_NAMESPACE):
            found = self._by_name.get((name, BARE_NAMESPACE if namespace is None else None))
        return found


def _function(name: str, declaration: Declaration) -> Object:
    function: Object = {"name": name}
    if declaration.description:
        function["description"] = declaration.description
    function["parameters"] = declaration.parameters
    if declaration.strict:
        function["strict"] = True
    return {"type": "function", "function": function}


NO_TOOLS = Catalog(DeclaredTools({}, {}, set()))
