"""Fixtures for tests of several rooms, and what has to be registered before any test module is imported."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from proxy.backend.transport import aiohttp_internals as client_internals
from proxy.server.http import aiohttp_internals as server_internals

# The tests of the translation. They alone count for its coverage: tracing all others would take minutes.
TRANSLATION = [Path(__file__).parent / room for room in ("request", "stream", "parsers", "wire", "conformance")]

# No example is wrong for taking long: that depends on the machine.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")

# Its asserts are read by tests in several folders: they should explain themselves there too.
pytest.register_assert_rewrite("tests.server.running_gateway")


def pytest_configure() -> None:
    """Let programs under test be ended by SIGHUP as usual, also where pytest itself was started with nohup."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave all tests but those of the translation out of the measurement of coverage.

    Beside others, whose load may slow down processes and connections, such a test may fail once; the summary names it."""
    beside_others = hasattr(config, "workerinput")  # by pytest-xdist
    measured = config.pluginmanager.hasplugin("_cov")
    for item in items:
        if any(room in item.path.parents for room in TRANSLATION):
            continue
        if measured:
            item.add_marker("no_cover")
        if beside_others:
            item.add_marker(pytest.mark.flaky(reruns=1))


@pytest.fixture(params=["private", "public"])
def aiohttp_api(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run a test with aiohttp's private parts, and with its public API alone."""
    if request.param == "public":
        monkeypatch.setattr(client_internals, "is_supported", lambda _connector: False)
        monkeypatch.setattr(server_internals, "is_supported", lambda: False)
    return str(request.param)
