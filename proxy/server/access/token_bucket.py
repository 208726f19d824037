"""Token buckets: how much of something is allowed in a minute. No clock and no I/O: the time is passed in."""

from __future__ import annotations

# In seconds: limits are per minute.
MINUTE = 60.0


class Bucket:
    """Holds a minute's worth when it is full, and fills at that rate.

    What is taken may be more than there is (a response's tokens are known when it has ended): then the level is below zero,
    and nothing is left until it has risen again. Times are in seconds of any clock that does not go backward."""

    __slots__ = ("_at", "_level", "limit")

    def __init__(self, limit: int, now: float) -> None:
        """Full. `limit`: most that may be had in a minute, at least 1."""
        self.limit = limit
        self._level = float(limit)
        self._at = now

    @property
    def state(self) -> tuple[float, float]:
        """The level, and the time of it: what several processes share."""
        return self._level, self._at

    @state.setter
    def state(self, state: tuple[float, float]) -> None:
        level, at = state
        self._level = min(level, float(self.limit))
        self._at = at

    def take(self, amount: float, now: float) -> None:
        """Take so much out, even if it is not there."""
        self._fill(now)
        self._level -= amount

    def remaining(self, now: float) -> int:
        """Return the whole units that are there, at least 0."""
        self._fill(now)
        return max(0, int(self._level + _ROUNDING))

    def seconds_until(self, amount: float, now: float) -> float:
        """Return the seconds until so much is there, 0 if it is; `amount` is at most the limit."""
        self._fill(now)
        return max(0.0, (amount - self._level) * MINUTE / self.limit)

    def seconds_until_full(self, now: float) -> float:
        """Return the seconds until the bucket is full."""
        return self.seconds_until(self.limit, now)

    def _fill(self, now: float) -> None:
        if now > self._at:
            self._level = min(float(self.limit), self._level + (now - self._at) * self.limit / MINUTE)
            self._at = now


# A client that was told to come back in a second may find the bucket short of a unit by a rounding error.
_ROUNDING = 1e-6


def duration(seconds: float) -> str:
    """Return a duration as in the `x-ratelimit-reset-…` headers: `120ms`, `1s`, `6m0s`, `1h0m0s`; rounded up."""
    milliseconds = -int(-seconds * 1000 // 1)
    if milliseconds < 1000:
        return f"{milliseconds}ms" if milliseconds > 0 else "0s"
    whole = -(-milliseconds // 1000)
    minutes_in_all, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes_in_all, 60)
    if hours:
        return f"{hours}h{minutes}m{rest}s"
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"
