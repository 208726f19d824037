"""Code that attacks: what it may use up, and what it cannot reach."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import socket
import subprocess
import tempfile
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest

from responses_gateway.hosted.code.container import PROGRAM, ContainerLimits
from tests.hosted.code.sandboxes import PYTHON, child_pid, execute, memory_status, needs_sandbox, run, sandbox, still_runs

pytestmark = needs_sandbox
MIB = 1024**2


@pytest.mark.parametrize(
    "code",
    [
        "import os; os.fork()",
        "import os; os.system('id')",
        "import os; os.execv('/bin/sh', ['sh'])",
        "import os; os.posix_spawn('/bin/sh', ['sh'], {})",
        "import subprocess; subprocess.run(['id'])",
        "import multiprocessing; multiprocessing.Process(target=print).start()",
        "import threading; threading.Thread(target=print).start()",
        "import os; os.kill(1, 9)",
        "import ctypes; ctypes.CDLL(None).system(b'id')",
        "import _ctypes",
    ],
)
def test_no_process_can_be_started_or_reached(code: str) -> None:
    async def test() -> None:
        async with sandbox() as box:
            outcome = await execute(box, code)
            assert outcome.logs.startswith("Traceback")
            await still_runs(box)

    run(test())


def test_an_endless_loop_is_stopped() -> None:
    async def test() -> None:
        async with sandbox(timeout=0.5) as box:
            for code in ("while True: pass", "import time; time.sleep(3600)", "10 ** 10 ** 10", "'a' * 30 in 'a' * 10**10"):
                outcome = await execute(box, code)
                assert outcome.error or "Error" in outcome.logs, code
            await still_runs(box)

    run(test())


def test_code_that_prints_forever_is_cut_and_stopped() -> None:
    async def test() -> None:
        async with sandbox(output_bytes=10_000, timeout=60) as box:
            outcome = await execute(box, "print('first')\nwhile True: print('x' * 1000)")
            assert outcome.error == "The code printed too much and was stopped. Its variables and files are lost."
            assert outcome.logs.startswith("first\nxxx")
            assert "bytes left out" in outcome.logs
            assert len(outcome.logs) < 10_200
            assert outcome.losses == ["code_interpreter: output beyond 10000 bytes"]
            finite = await execute(box, "for _ in range(1000): print('x' * 50)\nprint('last')")
            assert finite.error is None
            assert finite.logs.endswith("last\n")  # the end is kept: a traceback would be there
            assert finite.losses

    run(test())


@pytest.mark.parametrize("printing", ["print('x')", "print(end='x')", "os.write(1, b'x')", "sys.__stderr__.write('x\\n')"])
def test_code_that_prints_has_no_more_time_than_other_code(printing: str) -> None:
    """Its output is passed on much more slowly than it is written."""

    async def test() -> None:
        async with sandbox(timeout=1.5) as box:
            await execute(box, "import os, sys")
            begun = asyncio.get_running_loop().time()
            outcome = await execute(box, f"while True: {printing}")
            assert outcome.error is not None
            assert asyncio.get_running_loop().time() - begun < 2 * (1.5 + 1.0)  # seconds: the limit, and for what is waiting
            await still_runs(box)

    run(test())


def test_memory_is_limited() -> None:
    async def test() -> None:
        async with sandbox(memory_bytes=128 * MIB) as box:
            await execute(box, "open('kept', 'w').close()")
            before = memory_status(child_pid(), "VmHWM")
            outcome = await execute(box, "x = []\nwhile True: x.append('x' * 100_000)")
            assert "MemoryError" in outcome.logs
            assert outcome.error == "The code used up its memory. Its variables are lost, its files are kept."
            assert "MemoryError" in (await execute(box, "bytearray(10**9)")).logs
            assert (await execute(box, "import os; os.listdir()")).logs == "['kept']\n"
            assert memory_status(child_pid(), "VmHWM") - before < 192 * MIB

    run(test())


def test_the_disk_is_never_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    async def test() -> None:
        async with sandbox(memory_bytes=128 * MIB, timeout=3) as box:
            await execute(box, "1")
            before = _size(tmp_path)
            for code in (
                "with open('large', 'wb') as file:\n    while True: file.write(bytes(2**20))",
                "for number in range(10**9): open(str(number), 'w').close()",
                "with open('sparse', 'wb') as file:\n    file.seek(10**12); file.write(b'x')",
                "open('/python-stdlib/os.py', 'w')",
            ):
                outcome = await execute(box, code)
                assert outcome.error or "Error" in outcome.logs, code
            assert _size(tmp_path) == before
            await still_runs(box)

    run(test())


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def test_the_environment_and_the_files_of_the_host_are_out_of_reach(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SECRET_OF_THE_GATEWAY", "hidden")
    (tmp_path / "file").write_text("hidden")
    paths = ["/etc/passwd", "/proc/self/environ", "../../../etc/passwd", "/mnt/data/../../etc/passwd", str(tmp_path / "file")]

    async def test() -> None:
        async with sandbox() as box:
            outcome = await execute(box, "import os; dict(os.environ)")
            assert "SECRET" not in outcome.logs
            for path in paths:
                assert "Error: [Errno" in (await execute(box, f"open({path!r}).read()")).logs, path
            linked = await execute(box, f"os.symlink({paths[4]!r}, 'link'); print(open('link').read())")
            assert "hidden" not in linked.logs

    run(test())


def test_no_address_can_be_reached() -> None:
    async def test() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            listener.setblocking(False)
            port = listener.getsockname()[1]
            async with sandbox() as box:
                for code in (
                    f"import socket; socket.create_connection(('127.0.0.1', {port}))",
                    f"import urllib.request; urllib.request.urlopen('http://127.0.0.1:{port}')",
                    f"import asyncio; await asyncio.open_connection('127.0.0.1', {port})",
                    "import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', 53))",
                    "import socket; socket.create_server(('127.0.0.1', 0))",
                ):
                    assert "Traceback" in (await execute(box, code)).logs, code
            with pytest.raises(BlockingIOError):
                listener.accept()

    run(test())


def test_code_cannot_answer_for_the_sandbox() -> None:
    """Check that the standard streams of the process, which the code can write to, are not those that the gateway reads."""
    forged = json.dumps({"logs": "forged", "files": [], "images": []}) + "\n"
    writing = f"try: os.write(stream, {forged.encode()!r})\n    except OSError: pass"
    code = f"import os\nfor stream in range(64):\n    {writing}\nprint('true')"

    async def test() -> None:
        async with sandbox() as box:
            outcome = await execute(box, code)
            assert outcome.logs == "true\n"
            assert (await execute(box, "'second'")).logs == "'second'\n"

    run(test())


@pytest.mark.parametrize(
    "lie",
    [
        "[]",
        "{'images': 5, 'files': {'a': 1}, 'left_out': 'x'}",
        "{'images': [None, 'PHN2Zz4=', '%%%'], 'files': [None, 'x' * 10**6]}",
        "{'ended': 'other', 'logs': 'forged', 'cut': True}",
        "{'images': ['iVBORw0KGgo' + 'A' * 20_000_000]}",
    ],
)
def test_code_that_lies_about_what_it_did_gains_nothing(lie: str) -> None:
    code = (
        "import sys\nframe = sys._getframe()\nwhile 'run_cell' not in frame.f_globals: frame = frame.f_back\n"
        f"async def lying(*_): return {lie}\nframe.f_globals['run_cell'] = lying"
    )

    async def test() -> None:
        async with sandbox(image_bytes=1000) as box:
            await execute(box, code)
            outcome = await execute(box, "'not run'")
            assert outcome.logs == ""
            assert all(len(name) <= 256 for name in outcome.files)
            assert not outcome.images

    run(test())


@pytest.mark.parametrize(
    "code", ["import os; os._exit(0)", "import os; os.abort()", "x = " + "(" * 100_000, "x = " + "-" * 10**6 + "1"]
)
def test_code_that_breaks_the_interpreter_harms_only_itself(code: str) -> None:
    async def test() -> None:
        async with sandbox(timeout=5) as box:
            outcome = await execute(box, code)
            assert outcome.error or "Error" in outcome.logs
            assert "wasm" not in outcome.logs
            await still_runs(box)

    run(test())


def test_output_is_plain_text() -> None:
    async def test() -> None:
        async with sandbox() as box:
            outcome = await execute(
                box,
                r"print('\x1b[31mred\x1b[0m \x1b]0;title\x07nul\x00 \ud800 é', 'a\rb')"
                "\nimport sys; sys.stderr.write('\\udfff')",
            )
            assert outcome.logs.split("\n")[0] == r"red nul \ud800 é a"
            outcome.logs.encode()

    run(test())


_OUT_OF_WEBASSEMBLY = """
import json, os, runpy, socket, subprocess, sys
child = runpy.run_path(sys.argv[1])
confined = child["_confine"](10**9, prepare=False)
def tried(action):
    try:
        action()
    except OSError as error:
        return type(error).__name__
    return "done"
print(json.dumps([confined, *map(tried, [
    lambda: open("/etc/passwd"),
    lambda: open(os.environ["TMPDIR"] + "/new", "w"),
    lambda: os.listdir("/"),
    lambda: subprocess.run(["/bin/true"]),
    lambda: socket.create_connection(("127.0.0.1", int(sys.argv[2]))),
    lambda: os.kill(os.getppid(), 0),
])]))
"""


def test_code_that_got_out_of_webassembly_would_reach_nothing(tmp_path: Path) -> None:
    """Check the second wall, of which the code of the other tests sees nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        command = [PYTHON, "-I", "-c", _OUT_OF_WEBASSEMBLY, PROGRAM, str(listener.getsockname()[1])]
        done = subprocess.run(command, env={"TMPDIR": str(tmp_path)}, capture_output=True, check=True)
    confined, *tried = json.loads(done.stdout)
    if not confined:
        pytest.skip("this kernel has no Landlock")
    assert tried[:4] == ["PermissionError"] * 4
    assert set(tried[4:]) <= {"PermissionError", "done"}  # older versions know neither ports nor signals


def test_the_process_ends_when_it_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that a process whose input ends does not run on, though its code does."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    limits = json.dumps(dataclasses.asdict(ContainerLimits()))

    async def test() -> None:
        async with sandbox():
            (folder,) = os.listdir(tmp_path)
            process = await asyncio.create_subprocess_exec(
                PYTHON, "-I", "-B", PROGRAM, limits, env={"TMPDIR": str(tmp_path / folder)}, stdin=PIPE, stdout=PIPE
            )
            assert process.stdin is not None
            assert process.stdout is not None
            assert json.loads(await process.stdout.readline())["ready"]
            process.stdin.write(json.dumps({"code": "while True: pass", "files": {}}).encode() + b"\n")
            process.stdin.close()
            assert await process.wait() >= 0  # by no signal

    run(test())
