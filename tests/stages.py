"""Which tests run when: the stage of each test, by its folder or file.

`pure`: the translation, its judges, and what is read from files; no server, no process of its own; on the oldest Python.
`gateway`: the gateway and its parts, with simulated backends; on the oldest Python.
`outside`: other people's programs (clients, browsers, proxies, monitoring), faults, the tools of this repository, and of the
other tests those that are marked as slow; on the newest Python, if one is found."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Literal, TypeAlias

Stage: TypeAlias = Literal["pure", "gateway", "outside"]

TESTS = Path(__file__).parent

# By path; of several that contain a test, the longest one counts.
STAGES: dict[str, Stage] = {
    "conformance": "pure",
    "judges": "pure",
    "parsers": "pure",
    "request": "pure",
    "stream": "pure",
    "wire": "pure",
    "test_architecture.py": "pure",
    "test_attacks.py": "pure",
    "test_contradictions.py": "pure",
    "test_documentation.py": "pure",
    "test_library.py": "pure",
    "test_private_names.py": "pure",
    "test_settings.py": "pure",
    "test_settings_keys.py": "pure",
    "test_structure.py": "pure",
    "backend": "gateway",
    "commands": "gateway",
    "hosted": "gateway",
    "probing": "gateway",
    "server": "gateway",
    "simulator": "gateway",
    "state": "gateway",
    "test_cli.py": "gateway",
    "test_extras.py": "gateway",
    "test_fair_queue.py": "gateway",
    "test_bounded_memory.py": "pure",
    "test_ended_tasks.py": "pure",
    "test_own_folder.py": "pure",
    "test_imports.py": "gateway",
    "test_request_cost.py": "gateway",
    "backend/discovery/test_kubernetes_peer.py": "outside",
    "bench": "outside",
    "bridges": "outside",
    "chaos": "outside",
    "clients": "outside",
    "claude": "outside",
    "codex": "outside",
    "commands/test_claude.py": "outside",
    "commands/test_codex.py": "outside",
    "deploy": "outside",
    "hosted/code": "outside",
    "hosted/test_mcp_event_loop.py": "outside",
    "hosted/test_mcp_real_servers.py": "outside",
    "hosted/test_real_searxng.py": "outside",
    "oracle": "outside",
    "real_servers": "outside",
    "server/generation/test_routers.py": "outside",
    "server/process": "outside",
    "server/window/test_window_lists.py": "outside",
    "server/window/test_window_page.py": "outside",
    "server/window/test_window_sessions.py": "outside",
    "server/window/test_window_stays_true.py": "outside",
    "server/window/test_foreign_pages.py": "outside",
    "state/test_outages.py": "outside",
    "telemetry": "outside",
    "test_bare_account.py": "outside",
    "test_installation.py": "outside",
    "test_packaging.py": "outside",
    "test_tutorial.py": "outside",
    "test_version.py": "outside",
}


@cache
def stage_of(path: Path) -> Stage:
    """Return the stage of the tests in a file. Raise `LookupError` if neither the file nor a folder around it has one."""
    relative = path.relative_to(TESTS)
    for place in (relative, *relative.parents):
        if stage := STAGES.get(place.as_posix()):
            return stage
    raise LookupError(f"tests/{relative.as_posix()} has no stage: add it, or its folder, to tests/stages.py")


@cache
def stages_in(path: Path) -> frozenset[Stage]:
    """Return the stages of the tests in a file, of which some may be marked as slow."""
    slow: frozenset[Stage] = frozenset({"outside"} if b"@pytest.mark.slow\n" in path.read_bytes() else ())
    return slow | {stage_of(path)}
