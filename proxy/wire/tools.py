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
    `expects_ciphertext`: the client asked for encrypted arguments, so each call tells it that none is; `needs_approval`: the
    client decides about each call before it is run."""

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
