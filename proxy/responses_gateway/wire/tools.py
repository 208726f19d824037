"""Map the function names offered to the model to the client's tools.

Chat Completions has only functions. Each tool of a Responses request is offered under one chat name (1-64 characters of
`[a-zA-Z0-9_-]`, unique in the request); the table restores the tool from it."""

from __future__ import annotations

from typing import Literal, NamedTuple

# The last four are hosted: the gateway runs them itself.
ToolKind = Literal[
    "function", "custom", "local_shell", "shell", "apply_patch", "tool_search", "mcp", "web_search", "file_search",
    "code_interpreter",
]  # fmt: skip
HOSTED_KINDS: frozenset[ToolKind] = frozenset({"mcp", "web_search", "file_search", "code_interpreter"})

# The only argument of the function that replaces a custom (freeform) tool.
CUSTOM_INPUT = "input"


class ToolTarget(NamedTuple):
    """The client's tool behind a chat name: its kind, its own name, and the namespace it was declared in. That of an `mcp` tool
    is the label of its server. Only in a `ToolTable`:
    `expects_ciphertext`: the client asked for encrypted arguments, so each call states that none is encrypted;
    `needs_approval`: the client decides about each call before it is run."""

    kind: ToolKind
    name: str
    namespace: str | None = None
    expects_ciphertext: bool = False
    needs_approval: bool = False

    @property
    def hosted(self) -> bool:
        """Whether the gateway runs the tool itself."""
        return self.kind in HOSTED_KINDS


class Grammar(NamedTuple):
    """The grammar of a custom tool; the whole input must match it. `syntax` is "lark" or "regex"."""

    syntax: str
    definition: str


# chat name -> the client's tool
ToolTable = dict[str, ToolTarget]


def offered_name(tools: ToolTable, name: str) -> str:
    """Return the chat name that a model means by another name: models leave out the label of an MCP server, and call hosted
    tools by their types. If that could be several tools, the name itself is returned."""
    if name in tools:
        return name
    meant: dict[ToolTarget, str] = {}
    for chat_name, target in tools.items():
        if target.hosted and (name == target.name or (name == target.kind and name != "mcp")):
            meant.setdefault(target, chat_name)
    return next(iter(meant.values())) if len(meant) == 1 else name


def target_of(tools: ToolTable, name: str) -> ToolTarget | None:
    """Return the tool of a chat name, or None if the client has to know it. A name with the label of an MCP server is a tool of
    that server, even if it has none of this name: the call then fails, and the model gets the error."""
    found = tools.get(name)
    if found is not None:
        return found
    for target in tools.values():
        prefix = f"{target.namespace}__"
        if target.kind == "mcp" and name.startswith(prefix) and name != prefix:
            return ToolTarget("mcp", name.removeprefix(prefix), target.namespace)
    return None
