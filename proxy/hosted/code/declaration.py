"""The tool `code_interpreter` as a request declares it: which container it wants, and what cannot be honoured."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from proxy.hosted.code.runner import CodeRunner, ContainerKey
from proxy.wire.errors import invalid_request

_ID = re.compile(r"cntr_[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True)
class DeclaredContainer:
    """The container of a request. `new`: made for this request. `losses`: parameters that are not honoured, and why."""

    key: ContainerKey
    new: bool
    losses: Mapping[str, str] = field(default_factory=dict)


async def read_container(
    tool: Mapping[str, Any], tenant: str, runner: CodeRunner, param: str, earlier: str | None = None
) -> DeclaredContainer:
    """Return the container that a tool of the request asks for. `param` is the tool's path (`tools[0]`), `earlier` the
    container of the last `code_interpreter_call` of the context, which `auto` uses again if it still exists. Raise ApiError."""
    container = tool.get("container")
    param = f"{param}.container"
    if isinstance(container, str):
        key = ContainerKey(tenant, container)
        if not _ID.fullmatch(container) or not await runner.has(key):
            raise invalid_request(
                "There is no such container, or it has expired. Use the container_id of a recent code_interpreter_call, or "
                '{"type": "auto"} for a new one.',
                param,
                "container_not_found",
            )
        return DeclaredContainer(key, new=False)
    if container is None:
        container = {"type": "auto"}
    if not isinstance(container, Mapping) or container.get("type") != "auto":
        raise invalid_request('Expected the id of a container, or {"type": "auto"}.', param)
    losses = _losses(container, param)
    if earlier is not None and _ID.fullmatch(earlier):
        key = ContainerKey(tenant, earlier)
        if await runner.has(key):
            return DeclaredContainer(key, new=False, losses=losses)
    return DeclaredContainer(ContainerKey(tenant, new_container_id()), new=True, losses=losses)


def new_container_id() -> str:
    """Return an id that nobody can guess."""
    return f"cntr_{secrets.token_hex(24)}"


def _losses(container: Mapping[str, Any], param: str) -> dict[str, str]:
    losses = {}
    if container.get("file_ids"):
        losses[f"{param}.file_ids"] = "the code interpreter has no uploaded files"
    if container.get("memory_limit") is not None:
        losses[f"{param}.memory_limit"] = "the setting code_interpreter_memory_bytes limits the memory"
    policy = container.get("network_policy")
    if policy is not None and not (isinstance(policy, Mapping) and policy.get("type") == "disabled"):
        losses[f"{param}.network_policy"] = "code has no network here"
    return losses
