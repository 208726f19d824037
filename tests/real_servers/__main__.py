"""Run the gateway in front of real servers, and write what came of it into docs/servers.md: see `make servers`."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import NoReturn

import httpx

from tests.real_servers import matrix
from tests.real_servers.conversation import Conversation
from tests.real_servers.doctor_cases import CASES, differences
from tests.real_servers.gateway import examine, gateway
from tests.real_servers.matrix import CHECKS, Cell
from tests.real_servers.processes import NotReady
from tests.real_servers.programs import ROOT, Server, engine, in_front, version_of, why_not
from tests.real_servers.results import Found, Results, fingerprint, load
from tests.real_servers.settings import SETTINGS, Setting
from tests.real_servers.table import section, updated

_DOCUMENT = ROOT / "docs" / "servers.md"
_KEPT = ROOT / ".cache" / "servers" / "results.json"
# The longest time for one answer: the gateway's and the server's own limits come first.
_ANSWER_WITHIN = 90.0


class Run:
    """One run: what was found so far, and where the evidence goes. `missing`: why settings were not tried, by name."""

    def __init__(self, results: Results, folder: Path, evidence: Path | None) -> None:
        self.results = results
        self.missing: dict[str, str] = {}
        self._folder = folder
        self._evidence = evidence

    def try_all(self, group: list[Setting]) -> None:
        """Start the server that these settings share, and try each of them."""
        reason = why_not(group)
        if reason is not None:
            self._give_up(group, reason)
            return
        began = time.monotonic()
        try:
            with engine(group[0], self._folder / group[0].name / "engine") as server:
                print(f"started in {time.monotonic() - began:.0f} s", flush=True)
                for setting in group:
                    folder = self._folder / setting.name
                    with in_front(setting, server, folder / "in front") as asked:
                        self._try(setting, asked, folder)
        except NotReady as error:
            self._give_up([setting for setting in group if setting.name not in self.results.found], str(error))
        print(f"done in {time.monotonic() - began:.0f} s", flush=True)

    def _give_up(self, group: list[Setting], reason: str) -> None:
        print(f"not tried: {reason}", flush=True)
        self.missing |= {setting.name: reason for setting in group}

    def _try(self, setting: Setting, server: Server, folder: Path) -> None:
        print(f" {setting.name}", flush=True)
        diagnosis = examine(server.url, folder / "doctor")
        wrong = differences(CASES[setting.name], diagnosis)
        print(f"  doctor: {diagnosis.verdict}; {diagnosis.settings}", "".join(f"\n    ✗ {text}" for text in wrong), flush=True)
        if wrong:
            told = f"{diagnosis.words}\nsettings: {diagnosis.settings}"
            self._keep(f"{setting.name}: doctor: {'; '.join(wrong)}", told)
        found = Found(diagnosis.verdict, wrong)
        found.cells["zero"] = self._check(setting, server, "zero", folder / "zero", "--backend", server.url)
        if diagnosis.file.exists():
            flags = ("--config", str(diagnosis.file))
            found.cells["advised"] = self._check(setting, server, "advised", folder / "advised", *flags)
        else:
            found.cells["advised"] = dict.fromkeys(CHECKS, Cell("✗", "`doctor` recommended no settings"))
        self.results.found[setting.name] = found
        self.results.versions.setdefault(setting.program, version_of(setting.program))
        self.results.save(_KEPT)

    def _check(self, setting: Setting, server: Server, mode: str, folder: Path, *flags: str) -> dict[str, Cell]:
        print(f"  {mode}:", end="", flush=True)
        failed: list[str] = []

        def report(name: str, cell: Cell) -> None:
            print(f" {name} {cell.mark}", end="", flush=True)
            if cell.mark == "✗":
                failed.append(f"{name}: {cell.note}")
                self._keep(f"{setting.name}, {mode}: {name}: {cell.note}", cell.evidence)

        with gateway(folder, *flags) as url, httpx.Client(trust_env=False, timeout=_ANSWER_WITHIN) as client:
            cells = matrix.run(Conversation(setting, server, url, client), report)
        print("".join(f"\n    ✗ {text}" for text in failed), flush=True)
        return {name: Cell(cell.mark, cell.note) for name, cell in cells.items()}

    def _keep(self, title: str, evidence: str) -> None:
        if self._evidence is None:
            return
        with self._evidence.open("a", encoding="utf-8") as file:
            file.write(f"\n## {title}\n\n```\n{evidence}\n```\n")


def main(arguments: list[str]) -> int:
    """Return the exit code: 1 if a check failed or a diagnosis was wrong, 2 if a server could not be tried."""
    parser = argparse.ArgumentParser(prog="make servers", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="settings, or the beginnings of their names (default: all)")
    parser.add_argument("--list", action="store_true", help="list the names")
    parser.add_argument("--evidence", type=Path, metavar="FILE", help="append the exchanges of each failure to a file")
    parser.add_argument(
        "--continue", dest="continued", action="store_true", help="leave out what was tried before with the same gateway"
    )
    args = parser.parse_args(arguments)
    chosen = [setting for setting in SETTINGS if not args.names or setting.name.startswith(tuple(args.names))]
    if args.list or not chosen:
        print("\n".join(f"{setting.name}: {setting.program} {' '.join(setting.flags)}" for setting in SETTINGS))
        return 0 if args.list else 2
    signal.signal(signal.SIGTERM, _leave)
    code = fingerprint((ROOT / "proxy" / "responses_gateway").rglob("*.py"))
    today = datetime.now(UTC).date().isoformat()
    results = load(_KEPT, code, today) if args.continued else Results(code, today)
    with tempfile.TemporaryDirectory(prefix="real-servers-") as folder:
        run = Run(results, Path(folder), args.evidence)
        for heading, group in _groups([setting for setting in chosen if setting.name not in results.found]):
            print(heading, end="", flush=True)
            run.try_all(group)
    _write(results)
    return 2 if run.missing else int(results.failures > 0)


def _groups(settings: list[Setting]) -> Iterator[tuple[str, list[Setting]]]:
    """Put settings that share a server together."""
    groups: dict[object, list[Setting]] = {}
    for setting in settings:
        groups.setdefault(setting.engine, []).append(setting)
    for number, group in enumerate(groups.values(), 1):
        names = " and ".join(setting.program for setting in group)
        yield f"[{number}/{len(groups)}] {names} {' '.join(group[0].flags)}: ", group


def _write(results: Results) -> None:
    print(f"{results.failures} failures", flush=True)
    if len(results.found) == len(SETTINGS):
        _DOCUMENT.write_text(updated(_DOCUMENT.read_text(encoding="utf-8"), results), encoding="utf-8")
        print(f"written: {_DOCUMENT.relative_to(ROOT)}")
    else:
        print(section(results))


def _leave(number: int, frame: object) -> NoReturn:
    """End like a program that was interrupted, so that every process is stopped on the way out."""
    raise SystemExit(128 + number)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit("\ninterrupted: --continue goes on with what is left")
