"""All tools of one request under their chat names: the functions to offer, and the way from a call back to its tool."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence, Set

from proxy.request.fields import Object
from proxy.request.tools.declarations import Declaration
from proxy.request.tools.names import BARE_NAMESPACE, chat_names, lone_chat_name
from proxy.wire.tools import Grammar, ToolKind, ToolTable, ToolTarget


class Catalog:
    """Maps chat names to the client's tools and back.

    `functions` are the chat tools in the order of their first declaration (of several declarations of a tool the first counts,
    so that the rest of the prompt does not change). `table` maps chat names to tools. `grammars` has the grammars of custom
    tools. `hosted` are the types of the tools that cannot be offered.
    """

    def __init__(self, lists: Mapping[str, Sequence[Declaration]], hosted: Set[str] = frozenset()) -> None:
        """Name the tools of `lists`, given by the path of each list in the request (`tools`, `input[0].tools`)."""
        self._lists = lists
        self.hosted = hosted
        first: dict[ToolTarget, Declaration] = {}
        for declaration in itertools.chain.from_iterable(lists.values()):
            first.setdefault(declaration.target, declaration)
        self._names = chat_names(first)
        self.table: ToolTable = {self._names[target]: target for target in first}
        self.functions: dict[str, Object] = {
            self._names[target]: _function(self._names[target], declaration) for target, declaration in first.items()
        }
        self.grammars: dict[str, Grammar] = {
            self._names[target]: declaration.grammar for target, declaration in first.items() if declaration.grammar is not None
        }
        self._by_name: dict[tuple[str, str | None], str] = {}
        for target in first:
            self._by_name.setdefault((target.name, target.namespace), self._names[target])

    def name_of_call(self, kind: ToolKind, name: str, namespace: str | None) -> str:
        """Return the chat name for a call in the input; its tool need not be declared (any more)."""
        target = ToolTarget(kind, name, namespace)
        return self._names.get(target) or self._declared(name, namespace) or lone_chat_name(target)

    def find(self, kind: ToolKind, name: str, namespace: str | None) -> str | None:
        """Return the chat name of a declared tool that `tool_choice` names, or None.

        Without a namespace it may be the only tool of that name in any namespace.
        """
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
        return [self._names[declaration.target] for declaration in self._lists[path]]

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


NO_TOOLS = Catalog({})
