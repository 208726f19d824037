"""Programs that work on a stranger's data: what they may use up."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from responses_gateway.child_process import CannotStart, obstacle, run_program

PROGRAM = """
import json, os, resource, sys
sys.stdin.read()
limits = [resource.getrlimit(limit) for limit in (resource.RLIMIT_CPU, resource.RLIMIT_AS)]
print(json.dumps([limits, os.getpriority(os.PRIO_PROCESS, 0)]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a process cannot be bounded from outside")
def test_a_program_is_bounded_before_it_gets_its_input(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM, encoding="utf-8")
    limits, priority = asyncio.run(run_program(program, b"x"))
    assert limits == [[20, 20], [1024**3, 1024**3]]
    assert priority >= 10


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a process cannot be bounded from outside")
def test_a_program_that_fills_the_memory_is_a_failure(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("import sys\nsys.stdin.read()\nprint(len(bytearray(2 * 1024**3)))", encoding="utf-8")
    with pytest.raises(ValueError, match="Expecting value"):
        asyncio.run(run_program(program, b"x"))


@pytest.mark.parametrize(
    ("content", "starts"),
    [
        ("import json\nprint(json.dumps({'cannot_start': 'No module named x'}))", False),
        ("print('{}')", True),
        ("raise SystemExit('it failed')", True),  # with other data it may work
    ],
)
def test_a_program_that_lacks_a_library_is_told_from_one_that_fails(tmp_path: Path, content: str, starts: bool) -> None:
    program = tmp_path / "program.py"
    program.write_text(content, encoding="utf-8")
    if starts:
        assert obstacle(program, b"") == ""
        return
    assert obstacle(program, b"") == "No module named x"
    with pytest.raises(CannotStart, match="No module named x"):
        asyncio.run(run_program(program, b""))
