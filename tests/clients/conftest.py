"""Gateway and simulator for the programs of users. `scripts/install-clients` installs the libraries; without them these tests
are skipped. Every stream that a program caused is judged at its end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AsyncExitStack

import pytest

from responses_gateway.simulator import SimulatorOptions
from tests.clients.client_programs import Output, absence, run
from tests.codex.servers import Background, Stage, open_stage


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    servers = Background()
    stack = AsyncExitStack()
    stage = servers.run(stack.enter_async_context(open_stage(SimulatorOptions(), None, {})))
    yield stage
    servers.run(stack.aclose())
    servers.stop()
    assert stage.complaints() == []


@pytest.fixture(scope="module")
def summarising_stage() -> Iterator[Stage]:
    """Serve a gateway that gives reasoning as a summary to clients that do not ask for one."""
    servers = Background()
    stack = AsyncExitStack()
    overrides = {"reasoning_summary": "always"}
    stage = servers.run(stack.enter_async_context(open_stage(SimulatorOptions(), None, overrides)))
    yield stage
    servers.run(stack.aclose())
    servers.stop()
    assert stage.complaints() == []


@pytest.fixture(scope="module")
def output(request: pytest.FixtureRequest, stage: Stage) -> Output:
    """Return what the program of the module (its `PROGRAM`) printed: it runs once for all tests."""
    program = request.module.PROGRAM
    reason = absence(program)
    if reason is not None:
        pytest.skip(reason)
    return run(program, stage.url)


@pytest.fixture
def got(request: pytest.FixtureRequest, output: Output) -> object:
    """Return the result of the action that the test is named after: `test_parse` looks at `parse`."""
    result = output.results[request.node.name.removeprefix("test_")]
    if isinstance(result, dict) and "thrown" in result:
        pytest.fail(result["thrown"])
    return result
