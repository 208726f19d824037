"""Record `responses-gateway demo` as a picture for the README: docs/images/demo.svg, from the real program."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).parents[1]
TARGET = ROOT / "docs" / "images" / "demo.svg"
_COLUMNS = 100
# Moves of the cursor that the program uses, and those that change nothing here.
_MOVES = re.compile(r"(\n|\x1b\[1A|\x1b\[2K|\r|\x1b\[\?25[lh])")
_OTHER = re.compile(r"\r|\x1b\[\?25[lh]")
_COMMAND = ["demo", "--tokens-per-second", "200"]


def recorded() -> str:
    """Run the program and return what it shows as SVG. No font is loaded from elsewhere."""
    environment = {**os.environ, "FORCE_COLOR": "1", "TERM": "xterm-256color", "COLUMNS": str(_COLUMNS), "LINES": "60"}
    command = [sys.executable, "-m", "responses_gateway", *_COMMAND]
    shown = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, check=True).stdout
    console = Console(record=True, width=_COLUMNS, file=io.StringIO())
    console.print(Text(f"$ responses-gateway {' '.join(_COMMAND)}", style="bold"))
    console.print(Text.from_ansi(_last_screen(shown.decode())))
    svg = console.export_svg(title="responses-gateway", unique_id="demo")
    return re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)


def _last_screen(output: str) -> str:
    """Return what is left on the screen of a display that was drawn again and again."""
    lines = [""]
    row = 0
    for piece in _MOVES.split(output):
        if piece == "\n":
            row += 1
            lines += [""] * (row + 1 - len(lines))
        elif piece == "\x1b[1A":
            row -= 1
        elif piece == "\x1b[2K":
            lines[row] = ""
        elif not _OTHER.fullmatch(piece):
            lines[row] += piece
    return "\n".join(lines)


if __name__ == "__main__":
    TARGET.write_text(recorded(), encoding="utf-8")
