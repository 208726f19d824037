"""The walls of the house: which room may import which, and what no file may become."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from proxy.settings import Settings

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "proxy"
MODULES = sorted(path for path in PACKAGE.rglob("*.py"))
SOURCES = sorted(path for folder in ("proxy", "scripts", "bench", "tests") for path in (ROOT / folder).rglob("*.py"))

# Room -> the rooms that it may import besides itself. A room is a folder of `proxy/`, or a module beside them.
ROOMS: dict[str, set[str]] = {
    "wire": set(),
    "conformance": set(),
    "telemetry": set(),
    "settings": set(),
    "version": {"__init__"},
    "state": {"wire"},
    "simulator": {"wire"},
    "parsers": {"wire"},
    "request": {"wire"},
    "backend": {"wire"},
    "stream": {"wire", "parsers"},
    "probing": {"wire", "parsers", "backend", "settings", "telemetry"},
    "server": {
        "wire", "conformance", "telemetry", "settings", "version", "state", "parsers", "request", "backend", "stream",
        "probing",
    },
    "cli": {"settings", "commands", "version"},
    "__main__": {"cli"},
    "__init__": {"conformance", "stream"},
}  # fmt: skip
ROOMS["commands"] = set(ROOMS) - {"cli", "__main__"}

IO = {"asyncio", "aiohttp", "httpx", "socket", "ssl", "threading", "subprocess", "time", "datetime", "os", "pathlib", "logging"}

VAGUE_NAMES = {"utils", "util", "helpers", "helper", "common", "misc", "manager", "core", "base", "shared"}


def room_of(path: Path) -> str:
    first = path.relative_to(PACKAGE).parts[0]
    return first.removesuffix(".py")


def nodes_of(path: Path) -> Iterator[ast.AST]:
    return ast.walk(ast.parse(path.read_text(encoding="utf-8")))


def imports_of(path: Path) -> Iterator[str]:
    """Full dotted names of all that a file imports, at its top or inside functions; `proxy.x.y` for ours."""
    package = ["proxy", *path.relative_to(PACKAGE).parts[:-1]]
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*above, *([node.module] if node.module else [])])
            yield module
            if module == "proxy":
                yield from (f"proxy.{alias.name}" for alias in node.names)


def rooms_imported(path: Path) -> set[str]:
    names = (name.split(".") for name in imports_of(path))
    rooms = {parts[1] for parts in names if parts[0] == "proxy" and len(parts) > 1}
    return {room for room in rooms if room in ROOMS} - {room_of(path)}


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


#: What a test drives with bytes: no I/O, no clock, no environment.
TRANSLATION = [path for path in MODULES if room_of(path) in {"request", "stream", "parsers", "conformance"}]


def test_every_module_stands_in_a_known_room() -> None:
    assert [name_of(path) for path in MODULES if room_of(path) not in ROOMS] == []


def test_imports_run_downward() -> None:
    upward = {name_of(path): rooms_imported(path) - ROOMS.get(room_of(path), set()) for path in MODULES}
    assert {name: rooms for name, rooms in upward.items() if rooms} == {}


def test_no_rooms_import_each_other_in_a_circle() -> None:
    """What is allowed is itself free of circles: rooms can be taken away one by one, from the top."""
    left = {room: set(below) for room, below in ROOMS.items()}
    while left:
        tops = [room for room in left if not any(room in below for below in left.values())]
        assert tops, f"a circle among {sorted(left)}"
        for room in tops:
            del left[room]


def test_the_translation_does_no_io() -> None:
    doing = {name_of(path): {name.split(".")[0] for name in imports_of(path)} & IO for path in TRANSLATION}
    assert {name: modules for name, modules in doing.items() if modules} == {}


def test_the_translation_changes_no_globals() -> None:
    assert [name_of(path) for path in TRANSLATION for node in nodes_of(path) if isinstance(node, ast.Global)] == []


def test_a_file_has_fewer_than_400_lines() -> None:
    lengths = {name_of(path): len(path.read_text(encoding="utf-8").splitlines()) for path in SOURCES}
    assert {name: length for name, length in lengths.items() if length >= 400} == {}


def test_a_file_is_named_by_what_is_in_it() -> None:
    words = {name_of(path): set(re.split(r"[/_.]", str(path.relative_to(PACKAGE)))) for path in MODULES}
    assert [name for name, parts in words.items() if parts & VAGUE_NAMES] == []


def test_no_error_is_swallowed() -> None:
    """No `except Exception: pass`, nor any other handler of everything that does nothing."""
    handlers = [(path, node) for path in MODULES for node in nodes_of(path) if isinstance(node, ast.ExceptHandler)]
    silent = [
        f"{name_of(path)}:{handler.lineno}"
        for path, handler in handlers
        if _catches_everything(handler) and _does_nothing(handler.body)
    ]
    assert silent == []


def test_every_setting_is_read() -> None:
    read = {node.attr for path in MODULES for node in nodes_of(path) if isinstance(node, ast.Attribute)}
    assert sorted(Settings.model_fields.keys() - read) == []


def _catches_everything(handler: ast.ExceptHandler) -> bool:
    return handler.type is None or (isinstance(handler.type, ast.Name) and handler.type.id in {"Exception", "BaseException"})


def _does_nothing(body: list[ast.stmt]) -> bool:
    return all(isinstance(statement, ast.Pass | ast.Continue | ast.Expr) for statement in body) and not any(
        isinstance(node, ast.Call) for statement in body for node in ast.walk(statement)
    )
