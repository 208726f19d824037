"""The hosted tool `code_interpreter`: a call of the model becomes a run, its outcome text and the outputs of the item."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from proxy.hosted.calls import HostedResult, ToolFailure
from proxy.hosted.code.runner import CodeRunner, ContainerKey, Outcome


class CodeInterpreter:
    """Runs the code of one request's calls in its container. Calls at the same time run one after the other."""

    def __init__(self, runner: CodeRunner, container: ContainerKey, files: Mapping[str, bytes] | None = None) -> None:
        self._runner = runner
        self._container = container
        self._files = files or {}

    @property
    def container_id(self) -> str:
        """The id of the container, for the items of calls."""
        return self._container.id

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

    def _text(self, outcome: Outcome) -> str:
        """Return what the model is told."""
        parts = [outcome.logs.rstrip("\n")]
        if outcome.error:
            parts.append(outcome.error)
        if outcome.files:
            parts.append(f"Files written: {', '.join(outcome.files)}")
        if outcome.images:
            parts.append(f"Images shown to the user: {len(outcome.images)}")
        text = "\n".join(part for part in parts if part)
        return text or "The code ran and printed nothing."


def _outputs(outcome: Outcome) -> list[dict[str, str]]:
    logs = "\n".join(part for part in (outcome.logs.rstrip("\n"), outcome.error) if part)
    outputs = [{"type": "logs", "logs": logs}] if logs else []
    outputs += [{"type": "image", "url": url} for url in outcome.images]
    return outputs
