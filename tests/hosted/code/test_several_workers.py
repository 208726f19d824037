"""A gateway with two workers: code finds its container again, whichever worker gets the request."""

from __future__ import annotations

import fcntl
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil

from responses_gateway.hosted.code.container import ContainerLimits
from responses_gateway.hosted.code.sandbox import SandboxOptions
from responses_gateway.hosted.code.worker_sandbox import WorkerSandbox
from responses_gateway.simulator import serving
from tests.hosted.code.sandboxes import KEY, PYTHON, needs_sandbox
from tests.hosted.code.test_through_the_gateway import asking, model
from tests.server.gateway_process import Program, program
from tests.server.running_gateway import Answer, RawClient, assert_error, post, run
from tests.waiting import until

pytestmark = needs_sandbox

FLAGS = ("--workers", "2", "--store", "none", "--no-adapt", "--code-interpreter", "sandbox")
KEYS = "alice=a-key-of-sixteen-characters,bob=another-key-of-sixteen-characters"
ALICE = {"Authorization": "Bearer a-key-of-sixteen-characters"}
BOB = {"Authorization": "Bearer another-key-of-sixteen-characters"}


@asynccontextmanager
async def two_workers(*flags: str, **variables: str) -> AsyncIterator[Program]:
    """Run a gateway with two workers that run code. Nothing that it has started is left behind."""
    async with serving(model()) as url:
        python = ("--code-interpreter", f"sandbox:{PYTHON}")
        async with program("--backend", url, *FLAGS, *python, *flags, **variables) as running:
            processes = processes_of(running)
            try:
                yield running
            finally:
                processes |= processes_of(running)
                if running.process.returncode is None:
                    running.signal(signal.SIGTERM)
                    await running.exit()
                await until(lambda: not [each for each in processes if lives(each)], "no process is left")
            assert "Traceback" not in running.said


def processes_of(running: Program) -> set[psutil.Process]:
    """Return all processes below the gateway's."""
    try:
        return set(psutil.Process(running.process.pid).children(recursive=True))
    except psutil.NoSuchProcess:
        return set()


def sandbox_processes(running: Program) -> list[psutil.Process]:
    """Return the processes that have the containers: there should be one."""
    return [
        each
        for each in processes_of(running)
        if lives(each) and "responses_gateway.hosted.code.sandbox_process" in each.cmdline()
    ]


def lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


async def at_worker(running: Program, number: int, code: str, container: Any = None, **fields: Any) -> Answer:
    """Have code run by a request to one of the two workers: the other one sleeps."""
    other = running.workers[1 - number]
    os.kill(other, signal.SIGSTOP)
    try:
        return await post(running, asking(code, container), **fields)
    finally:
        os.kill(other, signal.SIGCONT)


def printed(answer: Answer) -> str:
    outputs = answer.final["output"][0]["outputs"]
    return "".join(output["logs"] for output in outputs)


def container_id(answer: Answer) -> str:
    return str(answer.final["output"][0]["container_id"])


def test_both_workers_have_the_same_containers_and_each_tenant_its_own() -> None:
    async def test() -> None:
        async with two_workers(RESPONSES_GATEWAY_API_KEYS=KEYS) as running:
            first = await at_worker(running, 0, "x = 6; open('kept', 'w').write('yes')", headers=ALICE)
            container = container_id(first)
            again = await at_worker(running, 1, "print(open('kept').read()); x", container, headers=ALICE)
            assert printed(again) == "yes\n6"
            earlier = first.final["output"][0]
            question = [earlier, {"role": "user", "content": "x + 1"}]
            auto = await at_worker(running, 1, "", headers=ALICE, input=question)
            assert (printed(auto), container_id(auto)) == ("7", container)
            assert_error(await at_worker(running, 1, "x", container, headers=BOB), 400, "container_not_found")
            assert len(sandbox_processes(running)) == 1

    run(test())


def test_the_number_of_containers_is_that_of_all_workers() -> None:
    async def test() -> None:
        async with two_workers("--code-interpreter-containers", "2") as running:
            first = container_id(await at_worker(running, 0, "x = 1"))
            second = container_id(await at_worker(running, 1, "x = 2"))  # a client may have half of the containers
            for number in (0, 1):
                assert_error(await at_worker(running, number, "x", first), 400, "container_not_found")
                assert printed(await at_worker(running, number, "x", second)) == "2"

    run(test())


def test_containers_outlive_workers_that_die_and_those_that_are_replaced() -> None:
    async def test() -> None:
        async with two_workers() as running:
            container = container_id(await post(running, asking("x = 6")))
            for pid in running.workers:
                os.kill(pid, signal.SIGKILL)
            await running.says("worker died", times=2)
            await until(lambda: len(running.workers) == 2)
            assert printed(await post(running, asking("x", container))) == "6"
            running.signal(signal.SIGUSR2)
            await running.says(" rolled ")
            assert printed(await post(running, asking("x", container))) == "6"

    run(test())


def test_a_client_that_leaves_ends_the_code() -> None:
    async def test() -> None:
        async with two_workers("--hosted-call-timeout", "3600") as running:
            [process] = sandbox_processes(running)
            client = await RawClient.connect(running)
            await client.post(asking("while True: pass"))
            await client.read_until(b"code_interpreter_call.interpreting")
            await until(process.children)
            [code] = process.children()
            client.close()
            await until(lambda: not lives(code))

    run(test())


def test_a_sandbox_that_is_killed_is_replaced_and_its_containers_are_gone() -> None:
    async def test() -> None:
        async with two_workers() as running:
            container = container_id(await post(running, asking("x = 6")))
            for process in sandbox_processes(running):
                process.kill()
                await until(lambda process=process: not lives(process))
            assert_error(await at_worker(running, 0, "x", container), 400, "container_not_found")
            fresh = container_id(await at_worker(running, 1, "x = 7"))
            assert printed(await at_worker(running, 0, "x", fresh)) == "7"
            assert len(sandbox_processes(running)) == 1

    run(test())


def test_code_may_contain_any_text_and_files(tmp_path: Path) -> None:
    async def test() -> None:
        lock = os.open(tmp_path, os.O_RDONLY)
        fcntl.flock(lock, fcntl.LOCK_EX)  # as the parent of workers does
        box = WorkerSandbox(tmp_path, SandboxOptions("test", str(PYTHON), ContainerLimits(), 2, 3600))
        await box.start()
        try:
            assert not await box.has(KEY)
            outcome = await box.run("open('in').read() + '\U0001f600'", KEY, {"in": b"\xc3\xa9"})
            assert (outcome.logs, outcome.error) == ("'\xe9\U0001f600'\n", None)
            outcome = await box.run("'\ud83d'", KEY, {})
            assert "surrogates not allowed" in outcome.logs
            assert await box.has(KEY)
        finally:
            await box.close()
            os.close(lock)

    run(test())


def test_nothing_outlives_a_gateway_that_is_killed() -> None:
    async def test() -> None:
        async with two_workers() as running:
            await post(running, asking("x = 6"))
            running.signal(signal.SIGKILL)
            await running.exit()

    run(test())


def test_a_sandbox_that_cannot_start_stops_the_gateway_and_says_why() -> None:
    async def test() -> None:
        python = ("--code-interpreter", "sandbox:/no/python")
        async with program("--backend", "http://127.0.0.1:9", *FLAGS, *python, starts=False) as running:
            assert await running.exit() == 2
            assert "set code_interpreter to sandbox:PATH" in running.said

    run(test())
