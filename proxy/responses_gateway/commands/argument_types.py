"""Types of numeric arguments for argparse: a number out of range is wrong usage."""

from __future__ import annotations

import math
from argparse import ArgumentTypeError


def positive(text: str) -> float:
    """Parse a number above 0."""
    number = not_negative(text)
    if number == 0:
        raise ArgumentTypeError(f"must be above 0, not {text}")
    return number


def not_negative(text: str) -> float:
    """Parse a number that is 0 or more."""
    try:
        number = float(text)
    except ValueError:
        raise ArgumentTypeError(f"must be a number, not {text!r}") from None
    if not math.isfinite(number) or not 0 <= number <= 1e6:
        raise ArgumentTypeError(f"must be between 0 and 1000000, not {text}")
    return number


def count(text: str) -> int:
    """Parse a whole number above 0."""
    if not (text.isascii() and text.isdigit()) or not 0 < len(text) < 19 or int(text) == 0:
        raise ArgumentTypeError(f"must be a whole number above 0, not {text!r}")
    return int(text)


def port(text: str) -> int:
    """Parse the number of a port; 0 stands for a free one."""
    if not (text.isascii() and text.isdigit()) or not len(text) < 6 or int(text) > 65535:
        raise ArgumentTypeError(f"must be a port between 0 and 65535, not {text!r}")
    return int(text)
