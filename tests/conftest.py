"""Fixtures for tests of several rooms, and what has to be registered before any test module is imported."""

from __future__ import annotations

import gc
import os
import signal
import sys
import warnings
from collections import Counter
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from coverage import Coverage
from hypothesis import HealthCheck, settings
from pytest_rerunfailures import StatusDB

from tests.stages import STAGES, TESTS, stage_of, stages_in
from tests.thoroughness import REPEATABLE, examples

TRACED = pytest.StashKey[bool]()

# Characters shown of a failure that was repeated: what a test says at its end.
_MOST_SHOWN = 4000
# No example is wrong for taking long: that depends on the machine.
_HEALTH = [HealthCheck.too_slow]
settings.register_profile(
    "any machine", deadline=None, max_examples=examples(100), derandomize=REPEATABLE, suppress_health_check=_HEALTH
)
settings.load_profile("any machine")

# Its asserts are read by tests in several folders: they should explain themselves there too.
pytest.register_assert_rewrite("tests.server.running_gateway")


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Let programs under test be ended by SIGHUP as usual, also where pytest itself was started with nohup.

    Let each worker count by itself what it repeats: asking the main process, for tests whose worker crashed, takes 40 ms for
    each test. End the tracing that pytest-cov starts before it knows that a process is a worker: it would go on whenever the
    worker's own is paused."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    if hasattr(config, "workerinput"):
        if early := Coverage.current():
            early.stop()
        config.failures_db.sock.close()  # type: ignore[attr-defined]
        config.failures_db = StatusDB()  # type: ignore[attr-defined]


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out the files of stages that `-m` does not choose, and folders without others, whose fixtures import clients:
    importing them takes longer than many tests."""
    chosen = set(config.option.markexpr.split(" or "))
    if not chosen <= set(STAGES.values()):
        return None
    if collection_path.is_dir():
        files = list(collection_path.rglob("test_*.py"))
        return True if files and not any(chosen & stages_in(file) for file in files) else None
    return True if collection_path.match("test_*.py") and not chosen & stages_in(collection_path) else None


def _function(item: pytest.Item) -> tuple[Path, str]:
    return item.path, getattr(item, "originalname", item.name)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark each test with its stage, before `-m` chooses by it. Beside others, whose load may slow down processes and
    connections, a test that is not pure may fail once; the summary names it."""
    beside_others = hasattr(config, "workerinput")  # by pytest-xdist
    seen: Counter[tuple[Path, str]] = Counter()
    for item in items:
        stage = stage_of(item.path)
        item.add_marker("outside" if item.get_closest_marker("slow") else stage)
        function = _function(item)
        seen[function] += 1
        item.stash[TRACED] = stage == "pure" and _counts(item, seen[function])
        if stage != "pure" and beside_others:
            item.add_marker(pytest.mark.flaky(reruns=1))
        elif sys.version_info < (3, 11, 8):  # whose `ast.parse` raises this now and then, for nothing (fixed in CPython 3.11.8)
            item.add_marker(pytest.mark.flaky(reruns=2, only_rerun="SystemError: AST constructor"))


def _counts(item: pytest.Item, number: int) -> bool:
    """Tell whether a pure test, the one with this number of its function, counts for the coverage.

    The first ones do, and one in ten of the others, which repeat them with other data; of a property test, which has data
    of its own, the first alone."""
    if item.get_closest_marker("untraced") or item.path.parent == TESTS:  # which looks at other files
        return False
    if getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
        return number == 1
    return number <= 100 or number % 10 == 0


def _tracing(config: pytest.Config) -> Any:
    """Return what pauses and resumes the measurement of the coverage; None without it."""
    return getattr(config.pluginmanager.get_plugin("_cov"), "cov_controller", None)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Trace what imports run in one process alone, and nothing behind that but some tests: a traced one takes four times as
    long. Spare the garbage collector the objects of thousands of tests, which all stay: going through them again and again
    took a fifth of the time, of the collection and of the tests."""
    tracing = _tracing(session.config)
    if tracing and os.environ.get("PYTEST_XDIST_WORKER", "gw0") != "gw0":
        tracing.pause()
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(50_000, 10, 10)  # that of Python 3.11, 700, costs tests of the gateway 9 % more
        gc.enable()
        if tracing:
            tracing.pause()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Trace the tests that count for the coverage."""
    tracing = _tracing(item.config) if item.stash[TRACED] else None
    if tracing is None:
        return (yield)
    tracing.resume()
    try:
        return (yield)
    finally:
        tracing.pause()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    """Drop what a test that has failed leaves open: pytest and a plugin keep its frames until later tests run,
    which would be blamed for it, though it may pass when it is repeated."""
    result = yield
    if getattr(sys, "last_traceback", None) is not None:
        for name in ("last_type", "last_value", "last_traceback", "last_exc"):
            vars(sys).pop(name, None)
        vars(item).get("_rerun_condition_excinfos", {}).clear()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            gc.collect()
    return result


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say why tests were repeated; why tests were skipped, and how many for each reason, which names what installs the missing
    part."""
    for report in terminalreporter.stats.get("rerun", []):
        terminalreporter.section(f"repeated: {report.nodeid}")
        terminalreporter.write_line(report.longreprtext[-_MOST_SHOWN:])
    skipped = terminalreporter.stats.get("skipped", [])
    reasons = Counter(report.longrepr[2].removeprefix("Skipped: ") for report in skipped)
    if reasons:
        terminalreporter.section(f"skipped: {len(skipped)}")
    for reason, count in reasons.most_common():
        terminalreporter.write_line(f"{count:5d}  {reason}")
