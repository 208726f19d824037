"""What must be said before any test module is imported."""

import pytest

# Its asserts are read by tests in several folders: they should explain themselves there too.
pytest.register_assert_rewrite("tests.server.harness")
