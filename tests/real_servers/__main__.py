"""Run the gateway in front of real servers, and write what came of it into docs/servers.md: see `make servers`."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from contextlib import ExitStack
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
from tests.real_servers.settings import SETTINGS, Setting
from tests.real_servers.table import Results, section, updated

_DOCUMENT = ROOT / "docs" / "servers.md"
# The longest time for one answer: the gateway's and the server's own limits come first.
_ANSWER_WITHIN = 90.0


class Run:
    """One run: what was found so far, and where the evidence goes."""

    def __init__(self, folder: Path, evidence: Path | None) -> None:
        self.results = Results()
        self._folder = folder
        self._evidence = evidence

    def try_all(self, group: list[Setting]) -> None:
        """Start the server that these settings share, and try each of them. Raise `NotReady` if something does not start."""
        reason = why_not(group)
        if reason is not None:
            print(f"skipped: {reason}", flush=True)
            self.results.skipped |= {setting.name: reason for setting in group}
            return
        began = time.monotonic()
        with engine(group[0], self._folder / group[0].name / "engine") as server:
            print(f"started in {time.monotonic() - began:.0f} s", flush=True)
            for setting in group:
                folder = self._folder / setting.name
                with in_front(setting, server, folder / "in front") as asked:
                    self._try(setting, asked, folder)
        print(f"done in {time.monotonic() - began:.0f} s", flush=True)

    def _try(self, setting: Setting, server: Server, folder: Path) -> None:
        print(f" {setting.name}", flush=True)
        self.results.versions.setdefault(setting.program, version_of(setting.program))
        file = self._diagnose(setting, server, folder)
        self._check(setting, server, "zero", folder / "zero", "--backend", server.url)
        if file is not None:
            self._check(setting, server, "advised", folder / "advised", "--config", str(file))
        else:
            missing = Cell("✗", "`doctor` recommended no settings")
            self.results.cells["advised"][setting.name] = dict.fromkeys(CHECKS, missing)

    def _diagnose(self, setting: Setting, server: Server, folder: Path) -> Path | None:
        found = examine(server.url, folder / "doctor")
        wrong = differences(CASES[setting.name], found)
        self.results.verdicts[setting.name] = found.verdict
        self.results.disagreements[setting.name] = wrong
        print(f"  doctor: {found.verdict}; {found.settings}", flush=True)
        for text in wrong:
            print(f"    ✗ {text}", flush=True)
        if wrong:
            self._keep(f"{setting.name}: doctor: {'; '.join(wrong)}", f"{found.words}\nsettings: {found.settings}")
        return found.file if found.file.exists() else None

    def _check(self, setting: Setting, server: Server, mode: str, folder: Path, *flags: str) -> None:
        print(f"  {mode}:", end="", flush=True)
        failed: list[str] = []

        def report(name: str, cell: Cell) -> None:
            print(f" {name} {cell.mark}", end="", flush=True)
            if cell.mark == "✗":
                failed.append(f"{name}: {cell.note}")
                self._keep(f"{setting.name}, {mode}: {name}: {cell.note}", cell.evidence)

        with ExitStack() as stack:
            url = stack.enter_context(gateway(folder, *flags))
            client = stack.enter_context(httpx.Client(trust_env=False, timeout=_ANSWER_WITHIN))
            self.results.cells[mode][setting.name] = matrix.run(Conversation(setting, server, url, client), report)
        print("".join(f"\n    ✗ {text}" for text in failed), flush=True)

    def _keep(self, title: str, evidence: str) -> None:
        if self._evidence is None:
            return
        with self._evidence.open("a", encoding="utf-8") as file:
            file.write(f"\n## {title}\n\n```\n{evidence}\n```\n")


def main(arguments: list[str]) -> int:
    """Return the exit code: 1 if a check failed or a diagnosis was wrong, 2 if a server did not start or none can."""
    parser = argparse.ArgumentParser(prog="make servers", description=__doc__)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="settings to run, or the beginnings of their names (default: all)"
    )
    parser.add_argument("--list", action="store_true", help="list the names")
    parser.add_argument("--evidence", type=Path, metavar="FILE", help="append the exchanges of each failure to a file")
    args = parser.parse_args(arguments)
    chosen = [setting for setting in SETTINGS if not args.names or setting.name.startswith(tuple(args.names))]
    if args.list or not chosen:
        print("\n".join(f"{setting.name}: {setting.program} {' '.join(setting.flags)}" for setting in SETTINGS))
        return 0 if args.list else 2
    signal.signal(signal.SIGTERM, _leave)
    with tempfile.TemporaryDirectory(prefix="real-servers-") as folder:
        run = Run(Path(folder), args.evidence)
        broken = _run_all(run, chosen)
    _write(run.results, whole=len(chosen) == len(SETTINGS) and not broken)
    return 2 if broken or run.results.skipped else int(run.results.failures > 0)


def _run_all(run: Run, chosen: list[Setting]) -> bool:
    """Return whether a server or a gateway did not start."""
    broken = False
    groups: dict[object, list[Setting]] = {}
    for setting in chosen:
        groups.setdefault(setting.engine, []).append(setting)
    for number, group in enumerate(groups.values(), 1):
        names = " and ".join(setting.program for setting in group)
        print(f"[{number}/{len(groups)}] {names} {' '.join(group[0].flags)}: ", end="", flush=True)
        try:
            run.try_all(group)
        except NotReady as error:
            broken = True
            print(f"\n  did not start: {error}", flush=True)
    return broken


def _write(results: Results, *, whole: bool) -> None:
    print(f"{results.failures} failures", flush=True)
    if whole and not results.skipped:
        _DOCUMENT.write_text(updated(_DOCUMENT.read_text(encoding="utf-8"), results), encoding="utf-8")
        print(f"written: {_DOCUMENT.relative_to(ROOT)}")
    else:
        print(section(results))


def _leave(number: int, frame: object) -> NoReturn:
    """End like a program that was interrupted, so that every process is stopped on the way out."""
    raise SystemExit(128 + number)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
