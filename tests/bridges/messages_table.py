"""The table of the endpoints for the Messages API, between two marker comments of docs/comparison.md."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import httpx

from tests.bridges.backend import Backend, serving
from tests.bridges.bridges import BRIDGES, INSTALLED, OURS, Bridge, started
from tests.bridges.document import row
from tests.bridges.messages_checks import ALL, Check, judged
from tests.bridges.messages_door import Door
from tests.bridges.scenarios import Scenario, Truth, scenarios

BEGIN = "<!-- messages: written by `make bridges` -->"
END = "<!-- /messages -->"


class NodeBridge(Bridge):
    """A bridge that is installed by npm."""

    @property
    def python(self) -> Path:
        """The file that Node runs, in the place of an interpreter."""
        return INSTALLED / self.name / "node_modules" / self.package / "dist" / "cli.js"

    @property
    def version(self) -> str:
        """The version that is installed."""
        manifest = self.python.parents[1] / "package.json"
        return str(json.loads(manifest.read_text(encoding="utf-8"))["version"])


_ROUTER = NodeBridge(
    "claude-code-router",
    "@musistudio/claude-code-router",
    ["sh", "-c", "install -D claude-code-router.json .claude-code-router/config.json && exec node {bin}/cli.js start"],
    config="claude-code-router.json",
    path="/v1/messages",
)
# Those of the bridges that have a `/v1/messages`, and one that has nothing else.
DOORS = (*(bridge for bridge in BRIDGES if bridge.name in {OURS, "LiteLLM"}), _ROUTER)
# Silent for longer than the 15 s within which a client must hear something.
_SILENT = Scenario("silent", "the first token comes after 17 s", scenarios()[0].body, Truth(None), delay=17.0)


async def checked(bridge: Bridge, folder: Path, checks: tuple[Check, ...] = ALL) -> dict[str, str]:
    """Start a bridge in front of the backend, and return what each check found."""
    backend = Backend([_SILENT])
    async with serving(backend) as behind:
        with ExitStack() as stack:
            url = await asyncio.to_thread(stack.enter_context, started(bridge, behind, folder))
            headers = {"authorization": "Bearer none"}
            async with httpx.AsyncClient(
                base_url=url.removesuffix(bridge.path), headers=headers, timeout=30, trust_env=False
            ) as client:
                found = await judged(Door(client, backend, bridge.model), checks)
            await asyncio.to_thread(stack.close)
    return found


def table(found: Mapping[str, Mapping[str, str]], day: str, absent: Sequence[str]) -> str:
    """Return the markdown between the two marker comments, both included. `found`: by name and version of the bridge."""
    seen = {check.__name__: [one[str(check.__doc__)] for one in found.values()] for check in ALL}
    kept = [f"{sum(not outcome for outcome in outcomes)} of {len(ALL)}" for outcomes in zip(*seen.values(), strict=True)]
    lines = [BEGIN, "", f"Measured on {day}.", "", row(["", *found]), "|---|" + "---|" * len(found), row(["kept", *kept])]
    lines += [
        row([f"`{name}`", *("✗" if outcome else "✓" for outcome in outcomes)])
        for name, outcomes in seen.items()
        if any(outcomes)
    ]
    lines.append(row(["the others", *["✓"] * len(found)]))
    lines += ["", *(f"Not installed here: {name}." for name in absent)]
    return "\n".join([*lines, "", END]).replace("\n\n\n", "\n\n")


def measured() -> tuple[dict[str, dict[str, str]], list[str]]:
    """Return what came of all that are installed, and the names of the others; print what is wrong."""
    found: dict[str, dict[str, str]] = {}
    absent = []
    for bridge in DOORS:
        if not bridge.python.exists():
            absent.append(bridge.name)
            continue
        with tempfile.TemporaryDirectory(prefix="bridges-") as folder:
            outcomes = asyncio.run(checked(bridge, Path(folder) / bridge.name))
        print(f"{bridge.name} {bridge.version}")
        for sentence, outcome in outcomes.items():
            if outcome:
                print(f"  {sentence}: {outcome}")
        found[f"{bridge.name} {bridge.version}"] = outcomes
    return found, absent
