"""The size of the house: classes, rooms, floors and files, measured from the source alone: a part of `docs/ARCHITECTURE.md`.

Without arguments: exit code 1 if the document differs from what is measured. With `--write`: bring it up to date (`make docs`).
`tests/test_architecture.py` measures with the same functions."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from generated_section import check_or_write

ROOT = Path(__file__).parents[1]
TARGET = ROOT / "docs" / "ARCHITECTURE.md"
BEGIN = "<!-- structure: written by scripts/structure.py -->"
END = "<!-- /structure -->"

# A class with more members than this is in the table.
LISTED = 50
# A file with fewer lines is short, unless that is what it is for.
SHORT = 60
_SHORT_ON_PURPOSE = "parsers/families"
HOUSES = (".", "stream", "server", "server/generation")


class ClassSize(NamedTuple):
    """A class: its file in the package, its members (methods and attributes that it defines itself, public and private, each
    name once), and its parts (the parameters of its constructor; for a class of fields, the fields without a default)."""

    file: str
    name: str
    members: int
    parts: int


class Rooms(NamedTuple):
    """The rooms of a folder: its folders and files without `__init__` (that of the package itself is a room: others import from
    it). Arrows: pairs of rooms of which one imports the other. The floor of a room is 1 + the highest floor of what it imports.
    Circles: groups of rooms that import each other; such a group stands on one floor."""

    rooms: int
    floors: int
    arrows: int
    circles: int

    def __str__(self) -> str:
        return f"{self.rooms}, {self.floors}, {self.arrows}, {self.circles}"


class Structure(NamedTuple):
    """All that is measured. `houses`: by folder in the package."""

    classes: dict[str, ClassSize]
    houses: dict[str, Rooms]
    lines: int
    files: int
    short_files: int


# What this script measures in commit 2a3a6eb: members and parts of the largest classes, rooms, and lines, files, short files.
BEFORE_CLASSES = {
    "Translator": (97, 3),
    "Lifecycle": (80, 2),
    "Generation": (74, 14),
    "RequestLog": (66, 9),
    "Creation": (57, 5),
    "Metrics": (55, 0),
    "Store": (52, 6),
}
BEFORE_HOUSES = {
    ".": Rooms(21, 10, 45, 0),
    "stream": Rooms(23, 11, 61, 0),
    "server": Rooms(11, 5, 26, 0),
    "server/generation": Rooms(21, 7, 51, 0),
}
BEFORE_FILES = (50_639, 401, 60)


# ---- reading ----------------------------------------------------------------------------------------------------------


@cache
def nodes_of(path: Path) -> list[ast.AST]:
    """Return all nodes of a file's syntax tree."""
    return list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


def imports_of(path: Path, package: Path, *, names: bool = False) -> Iterator[str]:
    """Yield the full dotted names of all that a file of `package` imports, at its top or inside functions. With `names`, also
    those of what is imported from a module, which may be modules."""
    own = [package.name, *path.relative_to(package).parts[:-1]]
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = own[: len(own) - node.level + 1] if node.level else []
            module = ".".join([*above, *([node.module] if node.module else [])])
            yield module
            if module == package.name or names:
                yield from (f"{module}.{alias.name}" for alias in node.names)


def modules_imported(path: Path, package: Path) -> set[Path]:
    """Return the files of `package` that one of its files imports."""
    found: set[Path] = set()
    for name in imports_of(path, package, names=True):
        first, *parts = name.split(".")
        if first == package.name and parts:
            places = (package.joinpath(*parts).with_suffix(".py"), package.joinpath(*parts, "__init__.py"))
            exist = {place for place in places if place.exists()}
            found |= exist if exist or len(parts) > 1 else {package / "__init__.py"}  # a name that the package itself has
    return found - {path}


# ---- classes ----------------------------------------------------------------------------------------------------------


def classes_of(path: Path) -> list[ast.ClassDef]:
    """Return the classes of a file, those inside of others included."""
    return [node for node in nodes_of(path) if isinstance(node, ast.ClassDef)]


def members_of(definition: ast.ClassDef) -> set[str]:
    """Return the names of the methods and attributes that a class defines itself: `def`, fields with a type, `__slots__`, and
    what its methods assign to `self`. Constants without a type are none."""
    members: set[str] = set()
    for node in definition.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            members |= {node.name, *_assigned_to_self(node)}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            members.add(node.target.id)
        elif isinstance(node, ast.Assign) and any(ast.unparse(target) == "__slots__" for target in node.targets):
            members |= {str(leaf.value) for leaf in ast.walk(node.value) if isinstance(leaf, ast.Constant)}
    return members


def _assigned_to_self(method: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    for node in ast.walk(method):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == "self":
            yield node.attr


def parts_of(definition: ast.ClassDef) -> int:
    """Return the number of parts of a class: the parameters of its constructor, or its fields without a default."""
    for node in definition.body:
        if isinstance(node, ast.FunctionDef) and node.name == "__init__":
            arguments = node.args
            return len(arguments.posonlyargs) + len(arguments.args) + len(arguments.kwonlyargs) - 1
    return sum(isinstance(node, ast.AnnAssign) and node.value is None for node in definition.body)


def class_sizes(package: Path) -> list[ClassSize]:
    """Measure all classes, the largest first."""
    sizes = [
        ClassSize(str(path.relative_to(package)), definition.name, len(members_of(definition)), parts_of(definition))
        for path in sorted(package.rglob("*.py"))
        for definition in classes_of(path)
    ]
    return sorted(sizes, key=lambda size: -size.members)


# ---- rooms ------------------------------------------------------------------------------------------------------------


def room_imports(folder: Path, package: Path) -> dict[str, set[str]]:
    """Return which of its neighbours each room of a folder imports."""
    imports: dict[str, set[str]] = {}
    for path in folder.rglob("*.py"):
        others = {room_of(other, folder) for other in modules_imported(path, package) if other.is_relative_to(folder)}
        room = room_of(path, folder)
        imports[room] = imports.get(room, set()) | (others - {room})
    if folder != package:
        imports.pop("__init__", None)
    return {room: others & imports.keys() for room, others in imports.items()}


def room_of(path: Path, folder: Path) -> str:
    """Return the name of the room of a folder in which a file is."""
    return path.relative_to(folder).parts[0].removesuffix(".py")


def measure_rooms(imports: dict[str, set[str]]) -> Rooms:
    """Count rooms, floors, arrows and circles."""
    groups = _groups(imports)
    floors: dict[str, int] = {}
    for group in groups:
        below = {other for room in group for other in imports[room]} - group
        floors |= dict.fromkeys(group, 1 + max((floors[other] for other in below), default=0))
    arrows = {frozenset((room, other)) for room, others in imports.items() for other in others}
    return Rooms(len(imports), max(floors.values(), default=0), len(arrows), sum(len(group) > 1 for group in groups))


def _groups(imports: dict[str, set[str]]) -> list[set[str]]:
    """Divide the rooms into groups that import each other in circles (one room alone in most), the lowest first."""
    reached = {room: _reached(room, imports) for room in imports}
    groups: list[set[str]] = []
    for room in sorted(imports, key=lambda room: (len(reached[room]), room)):
        if not any(room in group for group in groups):
            groups.append({room} | {other for other in reached[room] if room in reached[other]})
    return groups


def _reached(room: str, imports: dict[str, set[str]]) -> set[str]:
    reached: set[str] = set()
    open_ends = [room]
    while open_ends:
        new = imports[open_ends.pop()] - reached
        reached |= new
        open_ends += new
    return reached


# ---- the document -----------------------------------------------------------------------------------------------------


def measured(package: Path = ROOT / "proxy" / "responses_gateway") -> Structure:
    """Measure a package. Of classes of the same name, the largest counts."""
    files = sorted(package.rglob("*.py"))
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in files}
    short = [
        path
        for path, length in lengths.items()
        if length < SHORT and path.name != "__init__.py" and not path.is_relative_to(package / _SHORT_ON_PURPOSE)
    ]
    return Structure(
        classes={size.name: size for size in reversed(class_sizes(package))},
        houses={house: measure_rooms(room_imports(package / house, package)) for house in HOUSES},
        lines=sum(lengths.values()),
        files=len(files),
        short_files=len(short),
    )


def section(structure: Structure) -> str:
    """Return the markdown between the two marker comments, both included."""
    return "\n".join([BEGIN, "", *_class_rows(structure), "", *_house_rows(structure), "", END])


def _class_rows(structure: Structure) -> Iterable[str]:
    large = {name for name, size in structure.classes.items() if size.members > LISTED}
    yield "| class | members before | members | parts before | parts |"
    yield "|---|---|---|---|---|"
    for name in sorted(large | BEFORE_CLASSES.keys(), key=lambda name: (-BEFORE_CLASSES.get(name, (0, 0))[0], name)):
        before = BEFORE_CLASSES.get(name, ("", ""))
        size = structure.classes.get(name)
        place = "" if size is None else f" (`{size.file}`)"
        after = ("", "") if size is None else (size.members, size.parts)
        yield f"| `{name}`{place} | {before[0]} | {after[0]} | {before[1]} | {after[1]} |"


def _house_rows(structure: Structure) -> Iterable[str]:
    yield "| | before | after |"
    yield "|---|---|---|"
    for house, rooms in structure.houses.items():
        name = "the package" if house == "." else f"`{house}/`"
        yield f"| {name}: rooms, floors, arrows, circles | {BEFORE_HOUSES.get(house, '')} | {rooms} |"
    names = ("lines", "files", f"files under {SHORT} lines")
    for name, before, after in zip(names, BEFORE_FILES, structure[2:], strict=True):
        yield f"| the package: {name} | {before:,} | {after:,} |"


if __name__ == "__main__":
    sys.exit(check_or_write(TARGET, section(measured()), sys.argv[1:]))
