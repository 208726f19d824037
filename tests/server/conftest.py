"""The tests of the server: asserts in the harness say what they saw."""

import pytest

pytest.register_assert_rewrite("tests.server.harness")
