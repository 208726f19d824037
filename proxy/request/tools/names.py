"""Choose the chat name of each tool: the function name under which it is offered.

Names depend on the *set* of declared tools, never on their order, so that they (and the prompt's prefix) stay the same from
turn to turn. A name is readable if possible: `name`, or `namespace__name`; only if that would be invalid, too long or
ambiguous does it end in a hash of the tool's identity."""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterable

from proxy.wire.tools import ToolTarget

MAX_LENGTH = 64
_INVALID = re.compile(r"[^a-zA-Z0-9_-]")
_HASH_LENGTH = 8
# Codex's word for "no namespace": its tools are offered under their bare names.
BARE_NAMESPACE = "functions"


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
        names[target] = _free_name(target, taken)
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
    return 0 < len(name) <= MAX_LENGTH and not _INVALID.search(name)


def _rank(target: ToolTarget) -> tuple[bool, bool, str, str, str]:
    """Rank the claims to a name: top-level before namespaced tools, functions before other kinds."""
    return (
        target.namespace is not None,
        target.kind != "function",
        target.kind,
        target.namespace or "",
        target.name,
    )


def _free_name(target: ToolTarget, taken: set[str]) -> str:
    attempt = 0
    while (name := _hashed(target, attempt)) in taken:
        attempt += 1
    return name


def _hashed(target: ToolTarget, attempt: int) -> str:
    identity = "\0".join((target.kind, target.namespace or "", target.name, str(attempt)))
    digest = hashlib.sha256(identity.encode()).hexdigest()[:_HASH_LENGTH]
    return f"{_INVALID.sub('_', _joined(target))[: MAX_LENGTH - _HASH_LENGTH - 1]}_{digest}"
