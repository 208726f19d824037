"""Numbers on the command line that make no sense are told before anything begins."""

from __future__ import annotations

import pytest

from responses_gateway.cli import main


@pytest.mark.parametrize(
    "argv",
    [
        ["simulate", "--port", "65536"],
        ["simulate", "--port", "-1"],
        ["simulate", "--port", "x"],
        ["simulate", "--tokens-per-second", "-1"],
        ["simulate", "--tokens-per-second", "nan"],
        ["simulate", "--first-token-seconds", "inf"],
        ["simulate", "--first-token-seconds", "soon"],
        ["simulate", "--tokens-per-delta", "0"],
        ["simulate", "--tokens-per-delta", "1.5"],
        ["simulate", "--max-model-len", "-5"],
        ["simulate", "--max-model-len", "9" * 30],
        ["demo", "--tokens-per-second", "-1"],
        ["check", "http://127.0.0.1:9", "--timeout", "0"],
        ["check", "http://127.0.0.1:9", "--timeout", "-1"],
        ["check", "http://127.0.0.1:9", "--timeout", "nan"],
        ["doctor", "http://127.0.0.1:9", "--timeout", "inf"],
    ],
)
def test_a_number_out_of_range_is_wrong_usage(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(argv) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert f"argument {argv[-2]}: must be " in said.err
