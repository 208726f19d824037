"""`responses-gateway replay`: run recorded exchanges through this version, and show the differences."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.text import Text

from responses_gateway.commands import printable
from responses_gateway.server.generation.replay import Replay, UnusableRecord, as_json, diff, replay
from responses_gateway.server.recording.recorder import PATTERN

# Exit statuses.
IDENTICAL = 0
DIFFERENT = 1
UNUSABLE = 2

_SHOWN_LINES = 60  # lines of one difference that the terminal shows; `--json` has them all
_SHOWN_WIDTH = 160  # characters of one line, around the place where it differs


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the records, and how to report."""
    parser.epilog = (
        "Exit status: 0 if all are identical, 1 if some differ, 2 if nothing could be replayed or a record could not be read."
    )
    parser.add_argument("paths", nargs="+", type=Path, metavar="FILE|FOLDER", help="records of `serve --record FOLDER`")
    parser.add_argument("--json", action="store_true", help="report as JSON")


def run(args: argparse.Namespace) -> int:
    """Replay and report. Returns 0 if all are identical, 1 if some differ, 2 if some cannot be read."""
    replays: list[Replay] = []
    failed = False
    for path in _files(args.paths):
        try:
            replays.append(replay(path))
        except UnusableRecord as error:
            print(f"responses-gateway replay: {path}: {error}", file=sys.stderr)
            failed = True
    if not replays and not failed:
        print(f"responses-gateway replay: no records in {', '.join(map(str, args.paths))}", file=sys.stderr)
    if args.json:
        print(json.dumps([as_json(done) for done in replays], indent=2))
    else:
        console = Console(highlight=False, soft_wrap=True)
        for done in replays:
            _print(done, console)
        if len(replays) > 1 and any(path.is_dir() for path in args.paths):
            different = sum(bool(done.differences) for done in replays)
            console.print(f"{len(replays)} exchanges: {len(replays) - different} identical, {different} different")
    if any(done.differences for done in replays):
        return DIFFERENT
    return UNUSABLE if failed or not replays else IDENTICAL


def _files(paths: list[Path]) -> Iterator[Path]:
    for path in paths:
        yield from sorted(path.glob(PATTERN)) if path.is_dir() else [path]


def _print(done: Replay, console: Console) -> None:
    name = Path(done.path).name
    if done.differences:
        places = ", ".join(difference.place for difference in done.differences)
        console.print(Text(f"{name}: different ({places})", style="bold red"))
    else:
        console.print(Text(f"{name}: identical, {done.events} events, {done.ending}", style="green"))
    for note in done.notes:
        console.print(Text(f"  {note}", style="yellow"))
    for difference in done.differences:
        console.print(Text(f"  {difference.place}:  - recorded  + replayed", style="dim"))
        lines = list(diff(difference))
        for sign, line in _abridged(lines[:_SHOWN_LINES]):
            if sign == "@":
                console.print(Text("  …", style="dim"))
                continue
            console.print(Text(f"  {sign} {printable(line)}", style={"-": "red", "+": "green"}.get(sign, "")))
        if len(lines) > _SHOWN_LINES:
            console.print(Text(f"  … and {len(lines) - _SHOWN_LINES} more lines (--json shows them)", style="dim"))


def _abridged(lines: list[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Cut long lines: a removed and an added one that belong together where they differ, others at their end."""
    starts = _parting_places(lines)
    for number, (sign, line) in enumerate(lines):
        start = max(0, starts.get(number, 0) - _SHOWN_WIDTH // 2)
        piece = line[start : start + _SHOWN_WIDTH]
        yield sign, ("…" if start else "") + piece + ("…" if start + _SHOWN_WIDTH < len(line) else "")


def _parting_places(lines: list[tuple[str, str]]) -> dict[int, int]:
    """Return for the lines of a changed block at which character the nth recorded and the nth replayed one differ."""
    places: dict[int, int] = {}
    removed: list[int] = []
    for number, (sign, line) in enumerate(lines):
        if sign == "-":
            removed.append(number)
        elif sign == "+" and removed:
            other = removed.pop(0)
            pairs = enumerate(zip(lines[other][1], line, strict=False))
            places[number] = places[other] = next((index for index, (a, b) in pairs if a != b), 0)
        else:
            removed.clear()
    return places
