"""Play the same streams through each bridge, and what others recorded through this gateway, and write what came of it into
docs/comparison.md: see `make bridges`."""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

from scripts.generated_section import updated
from tests.bridges import messages_of_vllm, messages_table, recordings
from tests.bridges.backend import Backend, serving
from tests.bridges.bridges import BRIDGES, ROOT, Bridge, started
from tests.bridges.document import section
from tests.bridges.playing import Found, play
from tests.bridges.scenarios import scenarios
from tests.foreign_streams import ABSENT, chat_streams
from tests.real_servers.processes import NotReady

_DOCUMENT = ROOT / "docs" / "comparison.md"


def main(arguments: list[str]) -> int:
    """Return the exit code: 2 if a bridge could not be tried."""
    parser = argparse.ArgumentParser(prog="make bridges", description=__doc__)
    names = [bridge.name for bridge in BRIDGES]
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(names)} (default: all)")
    parser.add_argument("--evidence", type=Path, metavar="FOLDER", help="keep what each bridge answered in this folder")
    parser.add_argument("--messages", action="store_true", help="only the endpoints for the Messages API")
    parser.add_argument("--recorded", action="store_true", help="only the streams that others recorded, without any bridge")
    args = parser.parse_args(arguments)
    if not args.recorded and not args.names:
        measured, absent = messages_table.measured()
        _write(messages_table.table(measured, datetime.now(UTC).date().isoformat(), absent))
        asked = messages_of_vllm.measured()
        if asked is not None:
            _write(messages_of_vllm.table(asked, datetime.now(UTC).date().isoformat()))
    if args.messages:
        return 0
    if chat_streams():
        _write(recordings.section(datetime.now(UTC).date().isoformat()))
    else:
        print(ABSENT)
    if args.recorded:
        return 0
    chosen = [bridge for bridge in BRIDGES if not args.names or bridge.name in args.names]
    found = {bridge.name: one for bridge in chosen if (one := asyncio.run(_try(bridge, args.evidence))) is not None}
    if len(found) == len(BRIDGES):
        _write(section(found, scenarios()))
    else:
        print(section(found, scenarios()))
    return 0 if len(found) == len(chosen) else 2


def _write(part: str) -> None:
    _DOCUMENT.write_text(updated(_DOCUMENT.read_text(encoding="utf-8"), part), encoding="utf-8")
    print(f"written: {_DOCUMENT.relative_to(ROOT)}")


async def _try(bridge: Bridge, evidence: Path | None) -> Found | None:
    if not bridge.python.exists():
        print(f"{bridge.name}: not installed")
        return None
    print(f"{bridge.name} {bridge.version}", flush=True)
    found = Found(bridge.version)
    backend = Backend()
    with tempfile.TemporaryDirectory(prefix="bridges-") as folder, ExitStack() as stack:
        async with serving(backend) as behind:
            try:
                url = await asyncio.to_thread(stack.enter_context, started(bridge, behind, Path(folder) / bridge.name))
            except NotReady as error:
                print(f"  {error}")
                return None
            await play(url, bridge.model, backend, scenarios(), found)
            await asyncio.to_thread(stack.close)
    if evidence is not None:
        _keep(evidence / bridge.name, found)
    return found


def _keep(folder: Path, found: Found) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, answer in found.answers.items():
        verdict = found.verdicts[name]
        folder.joinpath(f"{name}.sse").write_bytes(answer.body)
        folder.joinpath(f"{name}.txt").write_text(
            f"HTTP {answer.status}\n{verdict.content}\n{verdict.form}\n", encoding="utf-8"
        )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
