"""What tests may use, and must: no private names of classes and modules that are not their own, and all that they define."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.stages import TESTS

# Of libraries that have no public way in, by file.
LEFT: dict[str, set[str]] = {
    # of aiohttp
    "probing/simulated_backend.py": {"_read_bytes"},
    "server/fleet_of_simulators.py": {"_read_bytes"},
    # of the OpenAI SDK, which documents it
    "clients/test_openai_python.py": {"_request_id"},
}
# Public, whatever they look like: of named tuples, of enumerations, of `os` and `sys`.
PUBLIC = {"_", "_asdict", "_replace", "_make", "_fields", "_field_defaults", "_value_", "_exit", "_getframe"}


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in PUBLIC


def _name(node: ast.expr) -> str:
    """Return a name, or the last one of `a.b.c`."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def defined(tree: ast.Module) -> Iterator[str]:
    """Yield the names that a file defines itself: functions, classes, variables and attributes of `self`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and _name(node.value) == "self":
            yield node.attr


def used(tree: ast.Module) -> Iterator[str]:
    """Yield the names that a file reads or patches in other objects, or imports: attributes, and texts that name one."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and _name(node.value) not in {"self", "cls"}:
            yield node.attr
        elif isinstance(node, ast.ImportFrom):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.Call) and _name(node.func) in {"getattr", "setattr", "delattr"}:
            texts = [argument.value for argument in node.args[:2] if isinstance(argument, ast.Constant)]
            yield from (text.rpartition(".")[2] for text in texts if isinstance(text, str))


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def test_tests_use_no_private_names_of_others() -> None:
    found: dict[str, set[str]] = {}
    for path in sorted(TESTS.rglob("*.py")):
        tree = parsed(path)
        private = {name for name in used(tree) if is_private(name)}
        if names := private and private - set(defined(tree)):
            found[path.relative_to(TESTS).as_posix()] = names
    new = {file: names - LEFT.get(file, set()) for file, names in found.items()}
    assert {file: names for file, names in new.items() if names} == {}
    mended = {file: names - found.get(file, set()) for file, names in LEFT.items()}
    assert {file: names for file, names in mended.items() if names} == {}, "no longer used: take it off the list"


def test_what_a_test_defines_to_be_run_is_run() -> None:
    """A coroutine that nobody runs makes a test that cannot fail."""
    for path in sorted(TESTS.rglob("test_*.py")):
        for test in parsed(path).body:
            if isinstance(test, ast.FunctionDef) and test.name.startswith("test_"):
                coroutines = {node.name for node in test.body if isinstance(node, ast.AsyncFunctionDef)}
                used = {node.id for node in ast.walk(test) if isinstance(node, ast.Name)} if coroutines else set()
                assert coroutines <= used, f"{path.name}: {test.name}"
