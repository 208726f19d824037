"""The figures of docs/ARCHITECTURE.md are those of the source, and what counts as a member, a part, a room and a floor."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from scripts import structure
from scripts.generated_section import updated


def test_the_figures_of_the_document_are_those_of_the_source() -> None:
    document = structure.TARGET.read_text(encoding="utf-8")
    assert document == updated(document, structure.section(structure.measured())), "run `make docs`"


def definition(source: str) -> ast.ClassDef:
    node = ast.parse(source).body[0]
    assert isinstance(node, ast.ClassDef)
    return node


ORDINARY = """
class Ordinary(Base):
    LIMIT = 3
    __slots__ = ("one", "two")
    three: int

    def __init__(self, one, *, two):
        self.one = one
        self.four, self._five = two

    @property
    def six(self): ...

    @six.setter
    def six(self, value):
        self.three += value
        self.one.other = value

    async def _seven(self): ...
"""


def test_members_are_methods_and_attributes_once_each() -> None:
    members = structure.members_of(definition(ORDINARY))
    assert members == {"one", "two", "three", "__init__", "four", "_five", "six", "_seven"}


@pytest.mark.parametrize(
    ("source", "parts"),
    [
        (ORDINARY, 2),
        ("class Fields:\n    one: int\n    two: str = ''\n    three: float", 2),
        ("class Bare:\n    pass", 0),
    ],
)
def test_parts_are_what_has_to_be_given_to_a_constructor(source: str, parts: int) -> None:
    assert structure.parts_of(definition(source)) == parts


def test_a_room_stands_above_all_that_it_imports() -> None:
    rooms = {"top": {"left", "right", "bottom"}, "left": {"bottom"}, "right": {"left"}, "bottom": set[str]()}
    assert structure.measure_rooms(rooms) == structure.Rooms(rooms=4, floors=4, arrows=5, circles=0)


def test_rooms_in_a_circle_share_a_floor_and_an_arrow() -> None:
    rooms = {"top": {"one"}, "one": {"two"}, "two": {"one", "bottom"}, "bottom": set[str]()}
    assert structure.measure_rooms(rooms) == structure.Rooms(rooms=4, floors=3, arrows=3, circles=1)


def test_imports_are_found_however_they_are_written(tmp_path: Path) -> None:
    package = tmp_path / "responses_gateway"
    files = {
        "__init__.py": "VERSION = '1'",
        "a.py": "from responses_gateway import VERSION, b\nfrom responses_gateway.room import inner\nimport json",
        "b.py": "def later():\n    from . import room",
        "room/__init__.py": "",
        "room/inner.py": "from .other import Thing",
        "room/other.py": "class Thing: ...",
    }
    for name, source in files.items():
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text(source, encoding="utf-8")
    assert structure.room_imports(package, package) == {
        "__init__": set(),
        "a": {"__init__", "b", "room"},
        "b": {"room"},
        "room": set(),
    }
    assert structure.room_imports(package / "room", package) == {"inner": {"other"}, "other": set()}
