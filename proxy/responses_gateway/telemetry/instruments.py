"""Metrics as values: what is counted, under which name. Each room defines those that it counts, and `Metrics` counts them.

Every label has a bounded set of values; times are in seconds, sizes in bytes. Names have no prefix here."""

from __future__ import annotations

from typing import Literal

import msgspec

# Upper bounds of buckets, in seconds.
LATENCY_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
DURATION_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800)


class Counter(msgspec.Struct, frozen=True, eq=False):
    """A number that only grows."""

    name: str
    text: str
    labels: tuple[str, ...] = ()


class Gauge(msgspec.Struct, frozen=True, eq=False):
    """A number that goes up and down. `together`: what the values of several living processes become."""

    name: str
    text: str
    labels: tuple[str, ...] = ()
    together: Literal["livesum", "livemin", "livemax"] = "livesum"


class Histogram(msgspec.Struct, frozen=True, eq=False):
    """How often values were how large. `buckets` are the upper bounds; larger values fall into one more bucket."""

    name: str
    text: str
    buckets: tuple[float, ...]
    labels: tuple[str, ...] = ()


# Those that several rooms count.
DEFECTS = Counter("defects_total", "Failures of the gateway itself.")
ACCESS_REFUSALS = Counter(
    "access_refusals_total",
    "Requests refused because of a missing or wrong key, a limit, a used quota, a host name, or a web page of another origin.",
    ("reason",),
)
STORE_UP = Gauge("store_up", "1 while the store, or Redis, can be reached.", ("kind",), together="livemin")


def key_label(name: str) -> str:
    """Return the label for a client: the name of its key; for others, of whom there may be any number, who knows (`jwt`)."""
    return name.partition(":")[0]
