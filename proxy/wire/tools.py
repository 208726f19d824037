"""What a function name offered to the model stands for in the client's own request.

Chat Completions knows functions only. Each tool of a Responses request is offered under one chat name
(1-64 characters of `[a-zA-Z0-9_-]`, unique in the request); this table is the exact way back.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

ToolKind = Literal["function", "custom", "local_shell", "shell", "apply_patch", "tool_search"]

#: The one argument of the function that stands for a custom (freeform) tool.
CUSTOM_INPUT = "input"


class ToolTarget(NamedTuple):
    """The client's tool behind a chat name: its kind, its own name, and the namespace it was declared in."""

    kind: ToolKind
    name: str
    namespace: str | None = None


class Grammar(NamedTuple):
    """What the input of a custom tool has to be. `syntax` is "lark" or "regex"; the whole input has to match."""

    syntax: str
    definition: str


#: chat name -> the client's tool
ToolTable = dict[str, ToolTarget]
