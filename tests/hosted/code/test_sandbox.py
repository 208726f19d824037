"""Code in the sandbox: what it prints, keeps and writes, and when its container ends."""

from __future__ import annotations

import asyncio
import base64
import os
import signal
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path

import pytest

from responses_gateway.hosted.code.container import ContainerLimits, SandboxUnavailable
from responses_gateway.hosted.code.runner import ContainerKey
from responses_gateway.hosted.code.sandbox import Sandbox, SandboxOptions
from responses_gateway.hosted.interface import ToolFailure
from responses_gateway.own_folder import OwnFolder
from tests.hosted.code.sandboxes import (
    KEY,
    LOOPS,
    PYTHON,
    Loop,
    alive,
    begin_endless,
    child_pid,
    execute,
    needs_sandbox,
    run,
    sandbox,
)
from tests.waiting import until

ROOT = Path(__file__).parents[3]


@needs_sandbox
def test_it_is_a_notebook() -> None:
    async def test() -> None:
        async with sandbox() as box:
            assert (await execute(box, "x = 20\nprint('one')\nx + 1")).logs == "one\n21\n"
            assert (await execute(box, "def f(y):\n    return x * y\nf(2)")).logs == "40\n"
            assert (await execute(box, "import asyncio\nawait asyncio.sleep(0, 'waited')")).logs == "'waited'\n"
            assert (await execute(box, "_ + '!'")).logs == "'waited!'\n"
            assert (await execute(box, "None")).logs == ""
            assert (await execute(box, "")).logs == ""

    run(test())


@needs_sandbox
def test_an_exception_is_a_traceback_with_the_line_and_nothing_of_ours() -> None:
    async def test() -> None:
        async with sandbox() as box:
            await execute(box, "def f(x):\n    return 1 / x")
            outcome = await execute(box, "import sys\nprint('before')\nf(0)")
            assert outcome.error is None
            assert outcome.logs.startswith("before\nTraceback (most recent call last):\n")
            assert "return 1 / x" in outcome.logs
            assert "<string>" not in outcome.logs
            assert outcome.logs.endswith("ZeroDivisionError: division by zero\n")
            assert "SyntaxError" in (await execute(box, "def f(:")).logs
            assert (await execute(box, "exit()")).logs == ""
            assert (await execute(box, "raise SystemExit('wrong')")).logs == "SystemExit: wrong\n"
            assert "EOFError" in (await execute(box, "input()")).logs
            assert "division" in (await execute(box, "f(0)")).logs  # nothing was lost by all that

    run(test())


@needs_sandbox
def test_files_go_in_and_out_and_images_are_shown() -> None:
    png = b"\x89PNG\r\n\x1a\n" + zlib.compress(b"pixels")

    async def test() -> None:
        async with sandbox(image_bytes=1000) as box:
            code = f"open('plot.png', 'wb').write({png!r}); open('fake.png', 'w').write('text'); open('a.txt', 'w').close()"
            outcome = await execute(box, f"print(open('in.csv').read())\n{code}", files={"in.csv": b"a,b"})
            assert outcome.logs == "a,b\n"
            assert outcome.files == ["/mnt/data/a.txt", "/mnt/data/fake.png", "/mnt/data/plot.png"]
            assert outcome.images == [f"data:image/png;base64,{base64.b64encode(png).decode()}"]
            assert "images" in outcome.losses[0]  # the one that is none
            again = await execute(box, "open('b.txt', 'w').close()", files={"late.csv": b""})
            assert (again.files, again.images, again.losses) == (["/mnt/data/b.txt"], [], [])
            large = await execute(box, f"open('large.png', 'wb').write({png!r} + bytes(2000))")
            assert (large.files, large.images) == (["/mnt/data/large.png"], [])
            assert "1000 bytes" in large.losses[0]

    run(test())


@needs_sandbox
def test_after_the_time_limit_files_are_kept() -> None:
    async def test() -> None:
        async with sandbox(timeout=3) as box:
            outcome = await execute(box, "x = 1; open('kept', 'w').write('yes'); print('begun')\nwhile True: pass")
            assert outcome.logs == "begun\n"
            assert outcome.error == "The code was stopped after 3 seconds. Its variables are lost, its files are kept."
            outcome = await execute(box, "print(open('kept').read())\nx")
            assert outcome.logs.startswith("yes\n")
            assert "NameError" in outcome.logs

    run(test())


@needs_sandbox
def test_each_tenant_has_containers_of_its_own() -> None:
    async def test() -> None:
        async with sandbox() as box:
            other = ContainerKey("bob", KEY.id)
            await execute(box, "secret = 1; open('secret', 'w').close()")
            assert not await box.has(other)
            assert "NameError" in (await execute(box, "secret", other)).logs
            assert (await execute(box, "import os; os.listdir()", other)).logs == "[]\n"
            assert (await execute(box, "secret")).logs == "1\n"

    run(test())


@needs_sandbox
def test_calls_of_one_container_wait_for_each_other_and_others_do_not() -> None:
    async def test() -> None:
        async with sandbox() as box:
            await execute(box, "import time\nrunning = 0")
            code = "running += 1\ntime.sleep(0.2)\nprint(running)\nrunning -= 1"
            outcomes = await asyncio.gather(*[execute(box, code) for _ in range(3)])
            assert [outcome.logs for outcome in outcomes] == ["1\n"] * 3
            endless = asyncio.create_task(execute(box, "while True: pass"))
            assert (await execute(box, "1", ContainerKey("bob", "cntr_2"))).logs == "1\n"
            assert not endless.done()
            endless.cancel()
            await asyncio.wait([endless])

    run(test())


@needs_sandbox
@pytest.mark.parametrize("loop", LOOPS)
def test_a_cancelled_call_ends_its_process(loop: Loop) -> None:
    async def test() -> None:
        async with sandbox() as box:
            await execute(box, "x = 1")
            pid = child_pid()
            endless = await begin_endless(box)
            endless.cancel()
            with pytest.raises(asyncio.CancelledError):
                await endless
            await until(lambda: not alive(pid))
            assert "NameError" in (await execute(box, "x")).logs  # the container begins anew

    run(test(), loop)


@needs_sandbox
def test_an_idle_container_ends() -> None:
    async def test() -> None:
        async with sandbox(idle=0.05) as box:
            await execute(box, "x = 1")
            await until(lambda: box.containers == 0)
            assert not await box.has(KEY)
            assert "NameError" in (await execute(box, "x")).logs

    run(test())


@needs_sandbox
def test_one_tenant_ends_its_own_containers_only() -> None:
    async def test() -> None:
        async with sandbox(containers=4) as box:
            bob = ContainerKey("bob", "cntr_b")
            await execute(box, "1", bob)
            alices = [ContainerKey("alice", f"cntr_{number}") for number in range(4)]
            for key in alices:
                await execute(box, "1", key)
            assert [await box.has(key) for key in alices] == [False, False, True, True]
            assert await box.has(bob)
            await execute(box, "1", alices[2])  # used again: the other one is the oldest now
            await execute(box, "1", ContainerKey("alice", "cntr_9"))
            assert [await box.has(key) for key in alices] == [False, False, True, False]

    run(test())


@needs_sandbox
def test_where_all_containers_are_in_use_the_model_is_told() -> None:
    async def test() -> None:
        async with sandbox(containers=1) as box:
            endless = asyncio.create_task(execute(box, "while True: pass"))
            await until(lambda: box.containers == 1)
            with pytest.raises(ToolFailure, match="in use"):
                await execute(box, "1", ContainerKey("bob", "cntr_2"))
            endless.cancel()
            await asyncio.wait([endless])
            assert (await execute(box, "1", ContainerKey("bob", "cntr_2"))).logs == "1\n"

    run(test())


@needs_sandbox
@pytest.mark.parametrize("loop", LOOPS)
def test_closing_ends_all_that_runs_and_removes_the_folder(loop: Loop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    async def test() -> None:
        async with sandbox() as box:
            await execute(box, "1")
            pid = child_pid()
            endless = await begin_endless(box)
            waiting = asyncio.create_task(execute(box, "1"))
            await asyncio.sleep(0)  # it begins to wait for its turn
            assert len(os.listdir(tmp_path)) == 1
        assert not alive(pid)
        assert os.listdir(tmp_path) == []
        assert (await endless).error is not None
        with pytest.raises(ToolFailure):
            await waiting
        with pytest.raises(ToolFailure, match="shut down"):
            await execute(box, "1")

    run(test(), loop)


_PROGRAM = """
import asyncio, sys
from responses_gateway.hosted.code.container import ContainerLimits
from responses_gateway.hosted.code.sandbox import SandboxOptions
from responses_gateway.hosted.code.runner import ContainerKey
from responses_gateway.hosted.code.sandbox import Sandbox

async def main():
    box = Sandbox(SandboxOptions("test", sys.argv[1], ContainerLimits(timeout=3600), 1, 3600))
    await box.start()
    key = ContainerKey("", "cntr_1")
    await box.run("1", key, {})
    print("running", flush=True)
    await box.run("while True: pass", key, {})

asyncio.run(main())
"""


@needs_sandbox
def test_nothing_is_left_of_a_gateway_that_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": os.pathsep.join([str(ROOT / "proxy"), str(ROOT)])}
    command = [sys.executable, "-c", _PROGRAM, str(PYTHON)]

    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) as gateway:
        assert gateway.stdout is not None
        assert gateway.stdout.readline() == b"running\n"
        pid = child_pid(gateway.pid)
        gateway.send_signal(signal.SIGKILL)
    run(until(lambda: not alive(pid)))
    left = list(tmp_path.iterdir())
    assert len(left) == 1
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folder = OwnFolder("responses-gateway-sandbox-")  # of the next one
    assert list(tmp_path.iterdir()) == [folder.path]
    folder.remove()


def test_a_python_that_is_not_there_is_named() -> None:
    async def test() -> None:
        with pytest.raises(SandboxUnavailable, match=r"/no/python cannot be run .*set code_interpreter to sandbox:PATH"):
            await Sandbox(SandboxOptions("test", "/no/python", ContainerLimits(), 1, 1)).start()

    run(test())


def test_a_python_without_pyeryx_is_named(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path], check=True)

    async def test() -> None:
        with pytest.raises(SandboxUnavailable, match=r"pyeryx is not installed for .*the extra `sandbox`"):
            await Sandbox(SandboxOptions("test", str(tmp_path / "bin" / "python"), ContainerLimits(), 1, 1)).start()

    run(test())


def test_a_program_that_is_no_python_is_named() -> None:
    async def test() -> None:
        with pytest.raises(SandboxUnavailable, match=r"did not start with /bin/true: it needs Python 3.12"):
            await Sandbox(SandboxOptions("test", "/bin/true", ContainerLimits(), 1, 1)).start()

    run(test())


_WITHOUT_EXECUTABLE_MEMORY = """#!{python} -I
import ctypes, os, sys
if ctypes.CDLL(None).prctl(65, 1, 0, 0, 0):  # as systemd's MemoryDenyWriteExecute
    sys.exit("not supported")
os.execv({python!r}, [{python!r}, *sys.argv[1:]])
"""


@needs_sandbox
def test_a_service_that_may_not_load_code_is_told_so(tmp_path: Path) -> None:
    wrapper = tmp_path / "python"
    wrapper.write_text(_WITHOUT_EXECUTABLE_MEMORY.format(python=str(PYTHON)))
    wrapper.chmod(0o755)
    if subprocess.run([wrapper, "-c", ""], capture_output=True, check=False).returncode:
        pytest.skip("this kernel cannot forbid executable memory")

    async def test() -> None:
        with pytest.raises(SandboxUnavailable, match="MemoryDenyWriteExecute=no"):
            await Sandbox(SandboxOptions("test", str(wrapper), ContainerLimits(), 1, 1)).start()

    run(test())
