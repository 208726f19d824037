"""Fixtures for tests of several rooms, and what has to be registered before any test module is imported."""

from __future__ import annotations

import pytest

from proxy.backend.transport import aiohttp_internals as client_internals
from proxy.server.http import aiohttp_internals as server_internals

# Its asserts are read by tests in several folders: they should explain themselves there too.
pytest.register_assert_rewrite("tests.server.harness")


@pytest.fixture(params=["private", "public"])
def aiohttp_api(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run a test with aiohttp's private parts, and with its public API alone."""
    if request.param == "public":
        monkeypatch.setattr(client_internals, "is_supported", lambda _connector: False)
        monkeypatch.setattr(server_internals, "is_supported", lambda: False)
    return str(request.param)
