"""The hosted tool `code_interpreter`: the container that a request declares, and its calls, each of which is a run."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from responses_gateway.hosted.code.runner import CodeOutcome, CodeRunner, ContainerKey
from responses_gateway.hosted.interface import HostedResult, ToolFailure
from responses_gateway.wire.errors import invalid_request

_ID = re.compile(r"cntr_[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True)
class DeclaredContainer:
    """The container of a request. `losses`: parameters that are not honoured, and why."""

    key: ContainerKey
    losses: Mapping[str, str] = field(default_factory=dict)


async def read_container(
    tool: Mapping[str, Any], tenant: str, runner: CodeRunner, param: str, earlier: str | None
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
        return DeclaredContainer(key)
    if container is None:
        container = {"type": "auto"}
    if not isinstance(container, Mapping) or container.get("type") != "auto":
        raise invalid_request('Expected the id of a container, or {"type": "auto"}.', param)
    losses = _losses(container, param)
    if earlier is not None and _ID.fullmatch(earlier):
        key = ContainerKey(tenant, earlier)
        if await runner.has(key):
            return DeclaredContainer(key, losses)
    return DeclaredContainer(ContainerKey(tenant, new_container_id()), losses)


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


class CodeInterpreter:
    """Runs the code of one request's calls in its container. Calls at the same time run one after the other."""

    def __init__(self, runner: CodeRunner, container: ContainerKey, files: Mapping[str, bytes] | None = None) -> None:
        self._runner = runner
        self._container = container
        self._files = files or {}

    async def run(self, arguments: Mapping[str, Any]) -> HostedResult:
        """Run `code`. An exception of the code is a result like any other: the model reads the traceback."""
        code = arguments.get("code")
        if not isinstance(code, str):
            raise ToolFailure('The argument "code" is missing: call this tool with {"code": "<Python code>"}.', self._item([]))
        try:
            outcome = await self._runner.run(code, self._container, self._files)
        except ToolFailure as failure:
            raise ToolFailure(str(failure), self._item([])) from None  # its own members are those of an mcp_call
        return HostedResult(self._text(outcome), item=self._item(_outputs(outcome)), losses=outcome.losses)

    def _item(self, outputs: list[dict[str, str]]) -> dict[str, Any]:
        return {"container_id": self._container.id, "outputs": outputs}

    def _text(self, outcome: CodeOutcome) -> str:
        """Return the text for the model."""
        parts = [outcome.logs.rstrip("\n")]
        if outcome.error:
            parts.append(outcome.error)
        if outcome.files:
            parts.append(f"Files written: {', '.join(outcome.files)}")
        if outcome.images:
            parts.append(f"Images shown to the user: {len(outcome.images)}")
        return "\n".join(part for part in parts if part) or "The code ran and printed nothing."


def _outputs(outcome: CodeOutcome) -> list[dict[str, str]]:
    logs = "\n".join(part for part in (outcome.logs.rstrip("\n"), outcome.error) if part)
    outputs = [{"type": "logs", "logs": logs}] if logs else []
    outputs += [{"type": "image", "url": url} for url in outcome.images]
    return outputs
