"""Map the function names offered to the model to the client's tools.

Chat Completions has only functions. Each tool of a Responses request is offered under one chat name (1-64 characters of
`[a-zA-Z0-9_-]`, unique in the request); the table restores the tool from it."""

from __future__ import annotations

from typing import Literal, NamedTuple

ToolKind = Literal["function", "custom", "local_shell", "shell", "apply_patch", "tool_search"]

# The only argument of the function that replaces a custom (freeform) tool.
CUSTOM_INPUT = "input"


class ToolTarget(NamedTuple):
    """The client's tool behind a chat name: its kind, its own name, and the namespace it was declared in. `expects_ciphertext`:
    the client asked for encrypted arguments, so each call tells it that none is (only in a `ToolTable`)."""

    kind: ToolKind
    name: str
    namespace: str | None = None
    expects_ciphertext: bool = False


class Grammar(NamedTuple):
    """The grammar of a custom tool; the whole input must match it. `syntax` is "lark" or "regex"."""

    syntax: str
    definition: str


# chat name -> the client's tool
ToolTable = dict[str, ToolTarget]
