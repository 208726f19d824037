"""The walls of the house: which room may import which, and what no file may become."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

import pytest

from responses_gateway.settings import Settings
from scripts import structure
from scripts.structure import nodes_of
from tests.stages import STAGES, TESTS, stage_of

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "proxy" / "responses_gateway"
MODULES = sorted(path for path in PACKAGE.rglob("*.py"))
SOURCES = sorted(path for folder in ("proxy", "scripts", "bench", "tests") for path in (ROOT / folder).rglob("*.py"))

# Room -> the rooms that it may import besides itself. A room is a folder of the package, or a module beside them.
ROOMS: dict[str, set[str]] = {
    "bounded_body": set(),
    "child_process": set(),
    "fair_queue": set(),
    "own_folder": set(),
    "extras": set(),
    "bounded_memory": set(),
    "ended_tasks": set(),
    "wire": set(),
    "conformance": set(),
    "telemetry": {"wire", "own_folder", "bounded_memory", "extras"},
    "settings": {"wire", "extras"},
    "version": set(),
    "state": {"wire", "bounded_memory"},
    "simulator": {"wire", "bounded_memory"},
    "parsers": {"wire", "extras"},
    "request": {"wire", "bounded_memory"},
    "backend": {"wire", "extras", "bounded_body", "bounded_memory", "ended_tasks"},
    "hosted": {"wire", "bounded_body", "bounded_memory", "child_process", "ended_tasks", "fair_queue", "own_folder", "extras"},
    "stream": {"wire", "parsers"},
    "probing": {"wire", "bounded_body", "bounded_memory", "ended_tasks", "parsers", "backend", "settings", "telemetry"},
    "server": {
        "wire", "conformance", "telemetry", "settings", "version", "state", "parsers", "request", "backend",
        "stream", "probing", "hosted", "bounded_body", "bounded_memory", "child_process", "ended_tasks", "fair_queue", "extras",
        "own_folder",
    },
    "cli": {"settings", "commands", "version"},
    "__main__": {"cli"},
    "__init__": {"conformance", "stream", "version"},
}  # fmt: skip
ROOMS["commands"] = set(ROOMS) - {"cli", "__main__"}

IO = {"asyncio", "aiohttp", "httpx", "socket", "ssl", "threading", "subprocess", "time", "datetime", "os", "pathlib", "logging"}

VAGUE_NAMES = {"utils", "util", "helpers", "helper", "common", "misc", "manager", "core", "base", "shared"}


def room_of(path: Path) -> str:
    first = path.relative_to(PACKAGE).parts[0]
    return first.removesuffix(".py")


def imports_of(path: Path) -> Iterator[str]:
    return structure.imports_of(path, PACKAGE)


def rooms_imported(path: Path) -> set[str]:
    names = (name.split(".") for name in imports_of(path))
    rooms = {parts[1] for parts in names if parts[0] == "responses_gateway" and len(parts) > 1}
    return {room for room in rooms if room in ROOMS} - {room_of(path)}


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


# What a test drives with bytes: no I/O, no clock, no environment.
TRANSLATION = [path for path in MODULES if room_of(path) in {"request", "stream", "parsers", "conformance"}]


def test_every_module_stands_in_a_known_room() -> None:
    assert [name_of(path) for path in MODULES if room_of(path) not in ROOMS] == []


def test_imports_run_downward() -> None:
    upward = {name_of(path): rooms_imported(path) - ROOMS.get(room_of(path), set()) for path in MODULES}
    assert {name: rooms for name, rooms in upward.items() if rooms} == {}


def test_no_rooms_import_each_other_in_a_circle() -> None:
    """Check that what is allowed has no circles: rooms can be taken away one by one, from the top."""
    left = {room: set(below) for room, below in ROOMS.items()}
    while left:
        tops = [room for room in left if not any(room in below for below in left.values())]
        assert tops, f"a circle among {sorted(left)}"
        for room in tops:
            del left[room]


def test_the_house_has_at_most_seven_floors() -> None:
    """Count a floor for each room above the highest of those that it may import."""

    def floor_of(room: str) -> int:
        return 1 + max((floor_of(below) for below in ROOMS[room]), default=0)

    assert max(map(floor_of, ROOMS)) <= 7


# The rooms of `proxy/responses_gateway/server/`, by floor from the lowest: each may import those named besides itself.
SERVER: list[dict[str, set[str]]] = [
    {
        "http": set(),
        "recording": set(),
        "custom_tools": set(),
        "setup": set(),
        "quotas": set(),
        "identity": set(),
        "steering": set(),
        "protocols": set(),
    },
    {
        "generation": {"recording", "custom_tools", "setup", "quotas", "protocols"},
        "access": {"http", "quotas", "identity", "protocols"},
    },
    {
        "features": {"generation", "access", "http", "setup", "quotas"},
        "resources": {"generation", "access", "http", "setup", "steering", "protocols", "quotas"},
        "window": {"generation", "access", "http", "recording", "protocols"},
        "parts": {"generation", "http", "quotas", "identity", "setup"},
        "metrics": {"generation", "access", "http", "quotas", "setup", "custom_tools"},
    },
    {
        "lifespan": {
            "parts",
            "metrics",
            "features",
            "generation",
            "recording",
            "custom_tools",
            "setup",
            "quotas",
            "identity",
        },
        "app": {"parts", "generation", "resources", "window", "access", "http", "protocols", "quotas"},
    },
    {
        "process": {"app", "lifespan", "parts", "metrics", "generation", "resources", "access", "http", "setup"},
        "__init__": {"app", "lifespan", "process"},
    },
]


def modules_imported(path: Path) -> set[Path]:
    return structure.modules_imported(path, PACKAGE)


def test_the_rooms_of_the_server_import_downward() -> None:
    allowed = {room: below for floor in SERVER for room, below in floor.items()}
    wrong = []
    for path in (path for path in MODULES if room_of(path) == "server"):
        room = path.relative_to(PACKAGE / "server").parts[0].removesuffix(".py")
        for other in modules_imported(path):
            if room_of(other) == "server" and other.name != "__init__.py":
                target = other.relative_to(PACKAGE / "server").parts[0].removesuffix(".py")
                if target not in allowed[room] | {room}:
                    wrong.append(f"{name_of(path)} imports {name_of(other)}")
    assert wrong == []


def test_the_rooms_of_the_server_stand_on_five_floors() -> None:
    floor_of = {room: number for number, floor in enumerate(SERVER) for room in floor}
    upward = [
        f"{room} imports {other}" for floor in SERVER for room, below in floor.items() for other in below
        if floor_of[other] >= floor_of[room] and (room, other) != ("__init__", "process")
    ]  # fmt: skip
    assert upward == []
    assert len(SERVER) == 5


def test_no_files_import_each_other_in_a_circle() -> None:
    left = {path: modules_imported(path) for path in MODULES if path.name != "__init__.py"}
    left = {path: {other for other in others if other in left} for path, others in left.items()}
    while left:
        bottom = [path for path, others in left.items() if not others & left.keys()]
        assert bottom, f"a circle among {sorted(map(name_of, left))}"
        for path in bottom:
            del left[path]


def test_no_rooms_of_any_folder_import_each_other_in_a_circle() -> None:
    """Check the files and folders of each folder, each folder as one room: whoever opens it reads them in one order."""
    circles = {
        name_of(file): rooms
        for file in MODULES
        if file.name == "__init__.py"
        and (rooms := structure.measure_rooms(structure.room_imports(file.parent, PACKAGE))).circles
    }
    assert circles == {}


def test_no_import_of_ours_is_for_type_checkers_alone() -> None:
    """Forbid imports that hide a circle."""
    hidden = [
        f"{name_of(path)}:{node.lineno}"
        for path in MODULES
        if path != PACKAGE / "__init__.py"  # where the names of the library are imported when they are asked for
        for node in nodes_of(path)
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")
        for inner in ast.walk(node)
        if isinstance(inner, ast.ImportFrom) and (inner.module or "").split(".")[0] == "responses_gateway"
    ]
    assert hidden == []


def test_one_list_alone_knows_the_features() -> None:
    """Each is a folder that its line in the list names; what all have to do with is `feature.py`."""
    features = PACKAGE / "server" / "features"
    wrong = []
    for path in MODULES:
        for other in modules_imported(path):
            folder = other.relative_to(features).parts[0] if other.is_relative_to(features) else "feature.py"
            of_list = path == features / "standard.py" or folder in {"feature.py", "standard.py", "__init__.py"}
            if not of_list and not path.is_relative_to(features / folder):
                wrong.append(f"{name_of(path)} imports {name_of(other)}")
    assert wrong == []


def test_making_a_response_knows_no_http_server() -> None:
    generation = [path for path in MODULES if path.is_relative_to(PACKAGE / "server" / "generation")]
    assert [name_of(path) for path in generation if any(name.startswith("aiohttp") for name in imports_of(path))] == []


# Names of events, and of the blocks and deltas in them: of the Responses API, and of the Messages API.
EVENT_NAME = re.compile(
    r"response\.|message_(start|delta|stop)$|content_block|(text|thinking|signature|citations|input_json)_delta$"
    r"|(server_)?tool_use$|\w+_tool_result$|ping$"
)


def test_items_and_lifecycle_know_no_event_of_a_protocol() -> None:
    """Keep the names of events in the writer of each protocol: items and state machine serve all protocols."""
    rooms = [PACKAGE / "stream" / room for room in ("items", "lifecycle", "answer")]
    named = [
        f"{name_of(path)}:{node.lineno}"
        for path in MODULES
        if any(path.is_relative_to(room) for room in rooms)
        for node in nodes_of(path)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and EVENT_NAME.match(node.value)
    ]
    assert named == []


def test_the_store_writes_no_events() -> None:
    """Keep what a stream looks like out of it: it stores bytes, and JSON that others have built."""
    texts = [
        (path, node.value if isinstance(node.value, bytes) else str(node.value).encode())
        for path in MODULES
        if room_of(path) == "state"
        for node in nodes_of(path)
        if isinstance(node, ast.Constant)
    ]
    assert [name_of(path) for path, text in texts if re.search(rb"(^|\n)(event|data): ", text)] == []


def test_the_translation_does_no_io() -> None:
    doing = {name_of(path): {name.split(".")[0] for name in imports_of(path)} & IO for path in TRANSLATION}
    assert {name: modules for name, modules in doing.items() if modules} == {}


def test_the_translation_changes_no_globals() -> None:
    assert [name_of(path) for path in TRANSLATION for node in nodes_of(path) if isinstance(node, ast.Global)] == []


def test_one_room_judges_hosts() -> None:
    """Keep what is public, loopback or allowed in `wire/hosts/`; rate limits group addresses by their networks."""
    rules = PACKAGE / "wire" / "hosts"
    others = [path for path in MODULES if not path.is_relative_to(rules) and path.name != "rate_limits.py"]
    assert [name_of(path) for path in others if "ipaddress" in imports_of(path)] == []


def test_a_file_has_at_most_800_lines() -> None:
    lengths = {name_of(path): len(path.read_text(encoding="utf-8").splitlines()) for path in SOURCES}
    assert {name: length for name, length in lengths.items() if length > 800} == {}


# A class has at most so many parts without a default. How many it may have in all is in test_structure.py.
PARTS = 8

# Classes that hold plain values: their parts are the columns of a table.
TABLES = {
    "AnswerFacts": "what is known of an answer that has ended, one field for each",
    "ChatRequest": "what a request was translated to, one field for each result",
    "LimitRequest": "what a request asks of the limits of a fleet",
    "PreparedRequest": "what a request was prepared to, one field for each result",
    "Stored": "the columns of a stored response",
}

# Classes that are larger, each with the reason.
LARGE = {
    "Parts": "what the gateway opens at its start, for the application: read as single parts, and passed on by nobody",
}


def test_a_class_is_small_enough_to_be_held_in_mind() -> None:
    sizes = structure.class_sizes(PACKAGE)
    large = {size.name for size in sizes if size.required > PARTS}
    assert sorted(large - TABLES.keys() - LARGE.keys()) == []
    assert sorted((TABLES.keys() | LARGE.keys()) - large) == [], "no longer large: take it off the list"


def test_a_name_means_one_class_in_rooms_that_import_each_other() -> None:
    rooms: dict[str, list[str]] = {}
    for path in MODULES:
        for definition in structure.classes_of(path):
            if not definition.name.startswith("_"):
                rooms.setdefault(definition.name, []).append(room_of(path))
    twice = {
        name
        for name, own in rooms.items()
        for one, other in combinations(own, 2)
        if one == other or other in ROOMS[one] or one in ROOMS[other]
    }
    assert sorted(twice) == []


def test_a_file_is_named_by_what_is_in_it() -> None:
    words = {name_of(path): set(re.split(r"[/_.]", str(path.relative_to(PACKAGE)))) for path in MODULES}
    assert [name for name, parts in words.items() if parts & VAGUE_NAMES] == []


def test_no_error_is_swallowed() -> None:
    """Forbid `except Exception: pass` and any other handler of everything that does nothing."""
    handlers = [(path, node) for path in MODULES for node in nodes_of(path) if isinstance(node, ast.ExceptHandler)]
    silent = [
        f"{name_of(path)}:{handler.lineno}"
        for path, handler in handlers
        if _catches_everything(handler) and _does_nothing(handler.body)
    ]
    assert silent == []


# With these, a docstring says what something is, and not what it does.
NO_VERBS = {
    "A", "An", "The", "This", "That", "These", "Those", "It", "Its", "Of", "In", "On", "At", "By", "For", "From", "To", "With",
    "Without", "As", "So", "If", "When", "While", "Until", "What", "Who", "Whose", "Which", "Whether", "How", "Where", "Why",
    "All", "Any", "Every", "Each", "No", "Nothing", "Nobody", "One", "Two", "Some", "Only", "Also", "Both", "Other", "There",
    "Here",
}  # fmt: skip


def test_docstrings_of_functions_begin_with_a_verb() -> None:
    """Those of properties and constructors may describe a value and the arguments."""
    functions = [
        (path, node)
        for path in MODULES
        for node in nodes_of(path)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name != "__init__"
    ]
    wrong = [
        f"{name_of(path)}:{node.lineno}"
        for path, node in functions
        if not any("property" in ast.unparse(decorator) for decorator in node.decorator_list)
        and (ast.get_docstring(node) or "Do").split()[0].rstrip(",.:") in NO_VERBS
    ]
    assert wrong == []


def test_one_line_assigns_one_value() -> None:
    several = [
        f"{name_of(path)}:{node.lineno}"
        for path in MODULES
        for node in nodes_of(path)
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple) and isinstance(node.value, ast.Tuple)
    ]
    assert several == []


def test_every_setting_is_read() -> None:
    read = {node.attr for path in MODULES for node in nodes_of(path) if isinstance(node, ast.Attribute)}
    assert sorted(Settings.model_fields.keys() - read) == []


KNOWS_SESSIONS = re.compile(r"\basker\b|request\.who_asks|\bby_session\b|import .*\bSESSION\b")


def test_the_list_of_features_names_each_file_of_the_core_that_knows_who_asks() -> None:
    text = (ROOT / "docs" / "ARCHITECTURE.md").read_text(encoding="utf-8")
    (row,) = (line for line in text.splitlines() if line.startswith("| `sessions/` |"))
    core = [
        path for path in MODULES if not path.is_relative_to(PACKAGE / "server" / "features") and path.parent.name != "who_asks"
    ]
    knowing = {path.name for path in core if KNOWS_SESSIONS.search(path.read_text(encoding="utf-8"))}
    named = {name.rpartition("/")[2] for name in re.findall(r"[\w/]+\.py", row)}
    assert sorted(knowing - named) == []


# What the core calls what it has for hints to servers; the prober, which asks what a server takes, has a field of that name.
KNOWS_HINTS = re.compile(r"\bsession_hints\b|\broute\.(near|hints)\b|^    (near|hints): ", re.MULTILINE)


def test_the_list_of_features_names_the_at_most_six_files_of_the_core_that_know_hints() -> None:
    text = (ROOT / "docs" / "ARCHITECTURE.md").read_text(encoding="utf-8")
    (row,) = (line for line in text.splitlines() if line.startswith("| `session_hints/` |"))
    core = [path for path in MODULES if room_of(path) != "probing" and not path.is_relative_to(PACKAGE / "server" / "features")]
    knowing = {path.name for path in core if KNOWS_HINTS.search(path.read_text(encoding="utf-8"))}
    assert knowing == {name.rpartition("/")[2] for name in re.findall(r"[\w/]+\.py", row)}
    assert len(knowing) <= 6


def _catches_everything(handler: ast.ExceptHandler) -> bool:
    return handler.type is None or (isinstance(handler.type, ast.Name) and handler.type.id in {"Exception", "BaseException"})


def _does_nothing(body: list[ast.stmt]) -> bool:
    return all(isinstance(statement, ast.Pass | ast.Continue | ast.Expr) for statement in body) and not any(
        isinstance(node, ast.Call) for statement in body for node in ast.walk(statement)
    )


TEST_FILES = [path for path in SOURCES if path.is_relative_to(TESTS) and path.name.startswith("test_")]


def test_every_test_is_pure_or_of_the_gateway_or_outside() -> None:
    assert {stage_of(path) for path in TEST_FILES} == {"pure", "gateway", "outside"}
    assert [name for name in STAGES if not (TESTS / name).exists()] == []


def test_a_test_carries_the_mark_of_its_stage_alone(request: pytest.FixtureRequest) -> None:
    marks = {mark.name for item in request.session.items for mark in item.iter_markers() if item.path == Path(__file__)}
    assert marks & set(STAGES.values()) == {"pure"}


def test_no_two_modules_of_tests_have_the_same_name() -> None:
    """Keep them apart: pytest imports those outside of packages by their names alone."""
    names = [path.name for path in TEST_FILES]
    assert sorted({name for name in names if names.count(name) > 1}) == []
