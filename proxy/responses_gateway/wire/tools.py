"""Map the function names offered to the model to the client's tools.

Chat Completions has only functions. Each tool of a Responses request is offered under one chat name (1-64 characters of
`[a-zA-Z0-9_-]`, unique in the request); the table restores the tool from it."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

from responses_gateway.wire.hosted_kinds import HOSTED

# The only argument of the function that replaces a custom (freeform) tool.
CUSTOM_INPUT = "input"


class ToolTarget(NamedTuple):
    """The client's tool behind a chat name: its kind, its own name, and the namespace it was declared in. The kinds in `HOSTED`
    are those that the gateway runs itself; the namespace of an `mcp` tool is the label of its server. Only in a `ToolTable`:
    `expects_ciphertext`: the client asked for encrypted arguments, so each call states that none is encrypted;
    `needs_approval`: the client decides about each call before it is run;
    `asynchronous`: the result of a call may come in any later request, and the model goes on without it."""

    kind: str
    name: str
    namespace: str | None = None
    expects_ciphertext: bool = False
    needs_approval: bool = False
    asynchronous: bool = False

    @property
    def hosted(self) -> bool:
        """Whether the gateway runs the tool itself."""
        return self.kind in HOSTED

    @property
    def continues(self) -> bool:
        """Whether the model may answer again in the same response, behind a call of it."""
        return self.hosted or self.asynchronous


class Grammar(NamedTuple):
    """The grammar of a custom tool; the whole input must match it. `syntax` is "lark" or "regex"."""

    syntax: str
    definition: str


# chat name -> the client's tool
ToolTable = dict[str, ToolTarget]


def referred(reference: str, root: Any) -> Any:
    """Return what a `$ref` inside a schema refers to; None if there is nothing."""
    place = root
    for step in reference.split("/")[1:]:
        place = place.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(place, Mapping) else None
    return place


# What models write before a name, and between its parts.
_BEFORE = re.compile(r"functions?[.:/]", re.IGNORECASE)
_BETWEEN = re.compile(r"__|[.:/]")
# Where a name ends that a server cut out of markup: the rest is a tag, a bracket, a quote or white space.
_BEHIND = re.compile(r"[\s<>|(\[{\"'`]")
_AROUND = " \t\r\n\"'`"
_TAGS = re.compile(r"\A(?:(?:<[^<>]{1,64}>\s{0,8})+|functions? (?=\w))")  # before a name, or what a server has put there
# The number that some models write behind the name of a call.
_NUMBER = re.compile(r":[0-9]{1,4}\Z")
# Because no chat name is longer than 64 characters: what is much longer is none that was spelled otherwise.
_LONGEST = 512
# Where the tool that a client has declared is offered under another name.
_DECLARED = {"open_page": "web_fetch"}


def any_tool_of(label: str) -> tuple[str, ToolTarget]:
    """Return the entry of a `ToolTable` that stands for whatever an MCP server does not list, which is everything where it
    cannot be reached. It is not offered; a call of it fails."""
    return f"{label}__", ToolTarget("mcp", "", label)


def offered_name(tools: ToolTable, name: str) -> str:
    """Return the chat name that a model means by another name: models leave out a namespace or the label of an MCP server, call
    hosted tools by their types, and write `functions.label.tool` or `Label__Tool`; servers leave tags and blanks at a name. One
    that could be several tools stays; one that begins with the label of an MCP server begins with `label__` in any case."""
    if name in tools or len(name) > _LONGEST:
        return name
    named = [chat_name for chat_name, target in tools.items() if target.name == name]
    own = [chat_name for chat_name in named if tools[chat_name].namespace is None]
    if len(own) == 1:  # because a chat name is made where the client's name is not allowed in one
        return own[0]
    for spelling in (str, _plain):
        meant: dict[ToolTarget, str] = {}
        for chat_name, target in tools.items():
            if spelling(name) in map(spelling, _names_of(chat_name, target)):
                meant.setdefault(target, chat_name)
        if len(meant) == 1 and next(iter(meant)).hosted:
            return next(iter(meant.values()))
    declared = declared_name(tools, name) or (named[0] if len(named) == 1 else None)
    if declared is not None:
        return declared
    for label in _labels(tools):
        for written in (name, _BEFORE.sub("", name, count=1)):
            separator = _BETWEEN.match(written, len(label))
            if separator is not None and written[: len(label)].lower() == label.lower():
                return f"{label}__{written[separator.end() :]}"
    return name


def declared_name(tools: Collection[str], name: str) -> str | None:
    """Return the one chat name that is in a name with something before or behind it: a prefix of functions, a namespace, a tag,
    blanks, the number of the call. None if there is none, or more than one."""
    if name in tools or len(name) > _LONGEST:
        return name if name in tools else None
    bare = _BEHIND.split(_TAGS.sub("", name.strip(_AROUND)), maxsplit=1)[0]
    without_number = _NUMBER.sub("", bare)
    for written in (bare, without_number, _BEFORE.sub("", without_number, count=1)):
        if written in tools:
            return written
    plain = _plain(without_number)
    last = without_number.replace(":", ".").replace("/", ".").rpartition(".")[2]
    for spelling, wanted in ((_plain, plain), (str, last), (_plain, last.lower())):
        meant = [chat_name for chat_name in tools if spelling(chat_name) == wanted]
        if meant:
            return meant[0] if len(meant) == 1 else None
    return None


def target_of(tools: ToolTable, name: str) -> ToolTarget | None:
    """Return the tool of a chat name, or None if the client has to know it. A name with the label of an MCP server is a tool of
    that server, even if it has none of this name: the call then fails, and the model gets the error."""
    target = tools.get(name)
    if target is not None:
        return target
    for label in _labels(tools):
        prefix = f"{label}__"
        if name.startswith(prefix) and name != prefix:
            return ToolTarget("mcp", name.removeprefix(prefix), label)
    return None


def chat_name(tools: ToolTable, target: ToolTarget, name: str) -> str:
    """Return the name under which a tool was offered, which its kind, name and namespace tell; `name` if it was not."""
    return next((offered for offered, tool in tools.items() if tool[:3] == target[:3]), name)


def _names_of(chat_name: str, target: ToolTarget) -> Iterator[str]:
    """Yield the names under which a tool may be called."""
    yield chat_name
    if target.hosted and target.name:
        yield target.name
        yield f"{target.namespace}__{target.name}" if target.kind == "mcp" else _DECLARED.get(target.name, target.kind)


def _labels(tools: ToolTable) -> list[str]:
    """Return the labels of the MCP servers, the longest first: one may begin like another."""
    labels = {target.namespace for target in tools.values() if target.kind == "mcp" and target.namespace}
    return sorted(labels, key=len, reverse=True)


def _plain(name: str) -> str:
    """Return a name without what models spell differently."""
    return _BETWEEN.sub("__", _BEFORE.sub("", name, count=1)).lower().replace("-", "_")
