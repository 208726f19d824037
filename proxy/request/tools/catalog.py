"""All tools of one request under their chat names: what is offered, and how calls find their tool again."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from proxy.request.fields import Object
from proxy.request.tools.declarations import Declaration
from proxy.request.tools.names import BARE_NAMESPACE, chat_names, lone_chat_name
from proxy.wire.tools import Grammar, ToolKind, ToolTable, ToolTarget


class Catalog:
    """Chat name ↔ the client's tool.

    `functions` are the chat tools in the order of their first declaration (a tool declared again counts once, as it was
    declared first: what follows in the prompt then keeps its place). `table` is the way back. `grammars` are those of the
    custom tools that have one.
    """

    def __init__(self, lists: Mapping[str, Sequence[Declaration]]) -> None:
        """`lists`: what was declared, by the place of the list in the request (`tools`, `input[0].tools`)."""
        self._lists = lists
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
        self._kindless: dict[tuple[str, str | None], str] = {}
        for target in first:
            self._kindless.setdefault((target.name, target.namespace), self._names[target])

    def name_of_call(self, kind: ToolKind, name: str, namespace: str | None) -> str:
        """The chat name of a call in the history; its tool need not be declared (any more)."""
        target = ToolTarget(kind, name, namespace)
        return self._names.get(target) or self._declared(name, namespace) or lone_chat_name(target)

    def find(self, kind: ToolKind, name: str, namespace: str | None) -> str | None:
        """The chat name of a declared tool that the client points at (`tool_choice`), or None.

        A pointer without a namespace may mean the only tool of that name in any namespace.
        """
        exact = self._names.get(ToolTarget(kind, name, namespace))
        if exact is not None or namespace is not None:
            return exact
        found = [chat for target, chat in self._names.items() if target.kind == kind and target.name == name]
        return found[0] if len(found) == 1 else None

    def names_in(self, namespace: str) -> frozenset[str]:
        """The chat names of the tools in a namespace."""
        return frozenset(chat for target, chat in self._names.items() if target.namespace == namespace)

    def names_declared_at(self, place: str) -> list[str]:
        """The chat names of the tools in one list of the request."""
        return [self._names[declaration.target] for declaration in self._lists[place]]

    def _declared(self, name: str, namespace: str | None) -> str | None:
        """A tool of that name whatever its kind; "functions" and no namespace are the same place."""
        found = self._kindless.get((name, namespace))
        if found is None and namespace in (None, BARE_NAMESPACE):
            found = self._kindless.get((name, BARE_NAMESPACE if namespace is None else None))
        return found


def _function(name: str, declaration: Declaration) -> Object:
    function: Object = {"name": name}
    if declaration.description:
        function["description"] = declaration.description
    function["parameters"] = declaration.parameters
    if declaration.strict:
        function["strict"] = True
    return {"type": "function", "function": function}
