"""How long a backend says to wait."""

from __future__ import annotations

import pytest

from responses_gateway.backend.transport.client import seconds_to_wait

NOON = 1445427000.0  # 2015-10-21 11:30:00 UTC


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("7", 7),
        ("0", 0),
        ("1.5", 1.5),
        ("86400", 86400),
        ("Wed, 21 Oct 2015 11:31:00 GMT", 60),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 0),
        ("Wed, 21 Oct 2065 07:28:00 GMT", None),
        ("86401", None),
        ("9" * 400, None),
        ("1e999", None),
        ("-3", None),
        ("\u00b2", None),
        ("soon", None),
        ("", None),
        ("nan", None),
    ],
)
def test_a_number_or_a_date_that_makes_sense(value: str, seconds: float | None) -> None:
    assert seconds_to_wait(value, NOON) == seconds
