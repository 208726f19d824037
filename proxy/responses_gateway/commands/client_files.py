"""The files of a client that are changed for its user: a backup first, then all at once."""

from __future__ import annotations

import argparse
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import NamedTemporaryFile

from responses_gateway.commands import Unusable


def add_arguments(parser: argparse.ArgumentParser, profile: str, for_all: str) -> None:
    """Add what is written: a `profile`, which only some sessions of the client use, or the file `for_all`; or taken back."""
    parser.add_argument("--write", action="store_true", help=f"write {profile}; other sessions stay as they are")
    every_session = (
        f"with --write or --restore: change {for_all} instead, for all sessions; the rest of the file stays as it is"
    )
    parser.add_argument("--default", action="store_true", help=every_session)
    parser.add_argument("--restore", action="store_true", help="undo the last --write")


def user_home() -> Path:
    """Return the home of this user. Raises `Unusable` for one that has none, as in a container with any user id."""
    try:
        return Path.home()
    except RuntimeError:
        raise Unusable("this user has no home: name a folder for it in the variable HOME") from None


def change(path: Path, changed: Callable[[str], tuple[str, str]], *, with_backup: bool = True) -> str:
    """Change a file, which may be missing, and keep a backup beside it, unless it is written at each start, which would leave
    many. `changed` returns its new text, given the one that it has, and a note for the user. Returns what was done, as text.
    Raises `Unusable`."""
    path = path.resolve()  # a symbolic link stays one
    try:
        before = path.read_text(encoding="utf-8") if path.exists() else ""
        after, note = changed(before)
        if after == before:
            return f"{path} is up to date.{note}"
        backup = back_up(path) if before and with_backup else None
        _replace(path, after)
    except (OSError, UnicodeError) as error:
        raise Unusable(f"{path}: {error}") from None
    return f"Wrote {path}{f'; the previous file is {backup}' if backup else ''}.{note}"


def restore(path: Path) -> str:
    """Put the last backup back in the place of the file. Returns what was done, as text. Raises `Unusable`."""
    path = path.resolve()
    free = _free_backup(path)
    backup = _backup(path, free - 1)
    if free == 0:
        raise Unusable(
            f"there is no backup of {path} ({backup.name}), so nothing was changed: if --write has made the file, delete it"
        )
    try:
        os.replace(backup, path)
    except OSError as error:
        raise Unusable(f"{path}: {error}") from None
    return f"{path} is as it was before the last --write."


def restore_own(path: Path) -> str:
    """Do so for a file that only we write: one without a backup was not there before, and is removed."""
    if _free_backup(path.resolve()):
        return restore(path)
    try:
        path.unlink()
    except OSError as error:
        raise Unusable(f"cannot remove {path}: {error.strerror}, so nothing was changed") from None
    return f"Removed {path}, which did not exist before --write."


def back_up(path: Path) -> Path:
    """Copy the file to the first name that is free, so that no backup overwrites another."""
    backup = _backup(path, _free_backup(path))
    shutil.copy2(path, backup)
    return backup


def _free_backup(path: Path) -> int:
    """Return the number of the first backup that is not there."""
    number = 0
    while _backup(path, number).exists():
        number += 1
    return number


def _backup(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}.bak{f'.{number}' if number > 0 else ''}")


def _replace(path: Path, text: str) -> None:
    """Replace the file in one step, since the client may be reading it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with NamedTemporaryFile("w", encoding="utf-8", dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
        file.write(text)
    if path.exists():
        shutil.copymode(path, file.name)
        with suppress(PermissionError):  # only root can leave the file of another user to that user
            os.chown(file.name, path.stat().st_uid, path.stat().st_gid)
    os.replace(file.name, path)
