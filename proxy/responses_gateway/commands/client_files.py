"""The files of a client that are changed for its user: a backup first, then all at once."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from tempfile import NamedTemporaryFile


def back_up(path: Path) -> Path:
    """Copy the file to the first name that is free, so that no backup overwrites another."""
    number = 0
    while True:
        backup = path.with_name(f"{path.name}.bak{f'.{number}' if number else ''}")
        if not backup.exists():
            shutil.copy2(path, backup)
            return backup
        number += 1


def replace(path: Path, text: str) -> None:
    """Replace the file in one step, since the client may be reading it."""
    with NamedTemporaryFile("w", encoding="utf-8", dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
        file.write(text)
    if path.exists():
        shutil.copymode(path, file.name)
    os.replace(file.name, path)
