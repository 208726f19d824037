"""Runs code as a notebook does: a session that keeps its variables, the value of the last expression printed, tracebacks.

This file is executed inside WebAssembly by the Python there (see `child.py`), never imported. The code that it runs may change
anything here; what comes out is judged outside."""

import ast
import base64
import inspect
import io
import linecache
import os
import sys
import traceback
from collections.abc import Iterator
from typing import Any

FOLDER = "/mnt/data"
# More files than these are not looked at.
FILES = 1000
IMAGES = (".png", ".jpg", ".jpeg", ".gif", ".webp")

_variables: dict[str, Any] = {"__name__": "__main__", "__builtins__": __builtins__}
_cells = 0


class _Replacing:
    """A text stream that takes any text, half surrogate pairs too."""

    encoding = "utf-8"
    errors = "backslashreplace"

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        self._stream.write(text.encode("utf-8", "backslashreplace").decode("utf-8"))
        return len(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        self._stream.flush()

    def isatty(self) -> bool:
        return False

    def writable(self) -> bool:
        return True


def _open_session() -> None:
    sys.argv = [""]
    os.chdir(FOLDER)


def _files(folder: str = FOLDER, left: int = FILES) -> Iterator[os.DirEntry[str]]:
    """Yield the files of a folder and of those below, a limited number of them."""
    with os.scandir(folder) as entries:
        for entry in entries:
            left -= 1
            if left < 0:
                return
            if entry.is_dir(follow_symlinks=False):
                for below in _files(entry.path, left):
                    left -= 1
                    yield below
            elif entry.is_file(follow_symlinks=False):
                yield entry


def _versions() -> dict[str, tuple[int, int]]:
    versions = {}
    for entry in _files():
        status = entry.stat(follow_symlinks=False)
        versions[entry.path] = (status.st_size, status.st_mtime_ns)
    return versions


async def _evaluate(code: str) -> None:
    """Run code; print the value of its last expression, or the traceback."""
    global _cells  # noqa: PLW0603
    _cells += 1
    name = f"<cell {_cells}>"
    linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)
    try:
        tree = ast.parse(code, name)
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        await _execute(compile(tree, name, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT))
        if isinstance(last, ast.Expr):
            expression = ast.Expression(last.value)
            value = await _execute(compile(expression, name, "eval", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT))
            if value is not None:
                _variables["_"] = value
                print(repr(value))
    except SystemExit as error:
        if error.code not in (None, 0):
            print(f"SystemExit: {error.code}", file=sys.stderr)
    except BaseException as error:  # whatever the code raises
        within = error.__traceback__
        while within is not None and within.tb_frame.f_code.co_filename != name:
            within = within.tb_next
        traceback.print_exception(error.with_traceback(within))


async def _execute(code: Any) -> Any:
    result = eval(code, _variables)
    return await result if code.co_flags & inspect.CO_COROUTINE else result


def write_file(name: str, content: str, mode: str) -> None:
    """Write a piece of a file, in base64."""
    with open(os.path.join(FOLDER, os.path.basename(name)), mode) as file:
        file.write(base64.b64decode(content))


def remove_file(name: str) -> None:
    """Remove a file that could not be written completely."""
    os.remove(os.path.join(FOLDER, os.path.basename(name)))


def _read_images(paths: list[str], left: int) -> tuple[list[str], int]:
    """Return the images among the files, in base64, and the number of those that are beyond `left` bytes."""
    images = []
    left_out = 0
    for path in paths:
        if not path.lower().endswith(IMAGES):
            continue
        with open(path, "rb") as file:
            image = file.read(left + 1)
        if len(image) > left:
            left_out += 1
        else:
            left -= len(image)
            images.append(base64.b64encode(image).decode())
    return images, left_out


async def run_cell(code: str, image_bytes: int) -> dict[str, Any]:
    """Run code. Return the paths of the files that it wrote, and those of them that are images (base64), with no more bytes
    together than permitted; `left_out` counts the others."""
    before = _versions()
    sys.stdin = io.StringIO()
    sys.stdout = _Replacing(sys.stdout)  # those of this run
    sys.stderr = _Replacing(sys.stderr)
    await _evaluate(code)
    written = sorted(path for path, version in _versions().items() if before.get(path) != version)
    images, left_out = _read_images(written, image_bytes)
    return {"files": written, "images": images, "left_out": left_out}


_open_session()
