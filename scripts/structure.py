"""The size of the house: classes, functions, rooms, floors and lines, measured from the source alone; printed.

`tests/test_structure.py` bounds what is measured, `tests/test_architecture.py` measures with the same functions."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "proxy" / "responses_gateway"

# A class with more members, or a function with more lines, than this is printed.
LISTED_MEMBERS = 30
LISTED_LINES = 40
# A file with fewer lines is short, unless that is what it is for.
SHORT = 60
_SHORT_ON_PURPOSE = "parsers/families"
_SHORT_NAMES = ("__init__.py", "/feature.py")
HOUSES = (".", "stream", "server", "server/generation")
# What is not part of the core: each of these can be taken away, or serves other purposes than answering.
AROUND_THE_CORE = ("server/features", "hosted", "server/window", "simulator", "commands")


class ClassSize(NamedTuple):
    """A class: its file in the package, its members (methods and attributes, public and private, each name once; those of base
    classes in the package included), its parts (the parameters of its constructor, or its fields), and how many of them have
    no default. `acts`: it has methods, and is no mere value."""

    file: str
    name: str
    members: int
    parts: int
    required: int
    acts: bool


class FunctionSize(NamedTuple):
    """A function: its file in the package, its name behind that of its class, and its lines without decorators."""

    file: str
    name: str
    lines: int


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


def parts_of(definition: ast.ClassDef) -> tuple[int, int]:
    """Return how many parts a class has (the parameters of its constructor, or its fields), and how many without a default."""
    for node in definition.body:
        if isinstance(node, ast.FunctionDef) and node.name == "__init__":
            arguments = node.args
            parts = len(arguments.posonlyargs) + len(arguments.args) + len(arguments.kwonlyargs) - 1
            return parts, parts - len(arguments.defaults) - sum(default is not None for default in arguments.kw_defaults)
    fields = [node for node in definition.body if isinstance(node, ast.AnnAssign)]
    return len(fields), sum(node.value is None for node in fields)


def acts(definition: ast.ClassDef) -> bool:
    """Tell whether a class has methods besides properties and its constructor."""
    return any(
        isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and not node.name.startswith("__")
        and not any("property" in ast.unparse(decorator) for decorator in node.decorator_list)
        for node in definition.body
    )


def class_sizes(package: Path = PACKAGE) -> list[ClassSize]:
    """Measure all classes, the largest first."""
    classes = [(path, definition) for path in sorted(package.rglob("*.py")) for definition in classes_of(path)]
    by_name: dict[str, list[tuple[Path, ast.ClassDef]]] = {}
    for path, definition in classes:
        by_name.setdefault(definition.name, []).append((path, definition))

    def lineage(path: Path, definition: ast.ClassDef) -> Iterator[ast.ClassDef]:
        yield definition
        for base in definition.bases:
            name = ast.unparse(base).split("[")[0].split(".")[-1]
            places = modules_imported(path, package) | {path}
            for place, other in by_name.get(name, ()):
                if place in places and other is not definition:
                    yield from lineage(place, other)

    sizes = [
        ClassSize(
            str(path.relative_to(package)),
            definition.name,
            len(set[str]().union(*map(members_of, lineage(path, definition)))),
            *parts_of(definition),
            acts(definition),
        )
        for path, definition in classes
    ]
    return sorted(sizes, key=lambda size: -size.members)


# ---- functions --------------------------------------------------------------------------------------------------------


def function_sizes(package: Path = PACKAGE) -> list[FunctionSize]:
    """Measure all functions, the longest first."""
    sizes = [size for path in sorted(package.rglob("*.py")) for size in _functions_in(path, package)]
    return sorted(sizes, key=lambda size: -size.lines)


def _functions_in(path: Path, package: Path) -> Iterator[FunctionSize]:
    file = str(path.relative_to(package))

    def walk(node: ast.AST, place: str) -> Iterator[FunctionSize]:
        for child in ast.iter_child_nodes(node):
            name = place
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                name = f"{place}.{child.name}" if place else child.name
                if not isinstance(child, ast.ClassDef):
                    yield FunctionSize(file, name, (child.end_lineno or child.lineno) - child.lineno + 1)
            yield from walk(child, name)

    yield from walk(ast.parse(path.read_text(encoding="utf-8")), "")


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
    reached = {room: _reached(room, imports) | {room} for room in imports}
    groups: list[set[str]] = []
    for room in sorted(imports, key=lambda room: (len(reached[room]), room)):
        if not any(room in group for group in groups):
            groups.append({other for other in reached[room] if room in reached[other]})
    return groups


def _reached(room: str, imports: dict[str, set[str]]) -> set[str]:
    reached: set[str] = set()
    open_ends = [room]
    while open_ends:
        new = imports[open_ends.pop()] - reached
        reached |= new
        open_ends += new
    return reached


# ---- lines ------------------------------------------------------------------------------------------------------------


def lines_of(package: Path = PACKAGE) -> dict[str, int]:
    """Return the lines of each file of a package, by its path there."""
    return {
        str(path.relative_to(package)): len(path.read_text(encoding="utf-8").splitlines())
        for path in sorted(package.rglob("*.py"))
    }


def lines_of_core(lines: dict[str, int]) -> int:
    """Return how many of the lines are those of the core."""
    return sum(number for file, number in lines.items() if not file.startswith(tuple(f"{room}/" for room in AROUND_THE_CORE)))


def short_files(lines: dict[str, int]) -> list[str]:
    """Return the files with few lines, apart from those that are meant to have few."""
    return [
        file
        for file, number in lines.items()
        if number < SHORT and not file.endswith(_SHORT_NAMES) and not file.startswith(f"{_SHORT_ON_PURPOSE}/")
    ]


def main() -> None:
    """Print all figures."""
    lines = lines_of()
    print(f"lines: {sum(lines.values()):,}, of the core: {lines_of_core(lines):,}")
    print(f"files: {len(lines)}, with fewer than {SHORT} lines: {len(short_files(lines))}")
    for house in HOUSES:
        print(f"{house}: rooms, floors, arrows, circles: {measure_rooms(room_imports(PACKAGE / house, PACKAGE))}")
    for size in class_sizes():
        if size.members > LISTED_MEMBERS:
            print(f"class {size.name} ({size.file}): {size.members} members, {size.parts} parts")
    for function in function_sizes():
        if function.lines > LISTED_LINES:
            print(f"function {function.name} ({function.file}): {function.lines} lines")


if __name__ == "__main__":
    main()
