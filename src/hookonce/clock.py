"""What time it is: the machine's clock, and one that tests set."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Wall time for signatures and due times; durations use time.monotonic() instead."""

    def time(self) -> float:
        """Seconds since the epoch."""
        ...

    @property
    def override(self) -> float | None:
        """The time that statements must use, or None to let the database's own clock decide."""
        ...


class SystemClock:
    """The real thing: statements are told nothing, so the database's clock decides."""

    time = staticmethod(time.time)
    override: float | None = None


class SetClock:
    """A clock that stands still until it is moved, for tests and simulations."""

    def __init__(self, now: float = 1_800_000_000.0) -> None:
        self.now = now

    def time(self) -> float:
        return self.now

    @property
    def override(self) -> float | None:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds
