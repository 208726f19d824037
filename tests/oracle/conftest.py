"""The oracle runs where vLLM is installed (`make oracle`), and is not collected anywhere else."""

from __future__ import annotations

import logging
import warnings
from importlib.util import find_spec

import pytest

INSTALLED = find_spec("vllm") is not None
collect_ignore_glob = [] if INSTALLED else ["test_*.py"]


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "oracle: compares our parsers with those of an installed vLLM")
    config.addinivalue_line("markers", "flaky: nothing is repeated where the plugin for that is not installed")
    if INSTALLED:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import vllm.parser  # noqa: F401, PLC0415
        logging.disable(logging.WARNING)  # vLLM reports each output that it cannot parse


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, exitstatus: int) -> None:
    """Print the table of scores; `tests/oracle/README.md` has it."""
    if not INSTALLED or exitstatus not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        return
    from tests.oracle import scores, test_oracle  # noqa: PLC0415

    terminalreporter.write_line(scores.table(test_oracle.CASES))
