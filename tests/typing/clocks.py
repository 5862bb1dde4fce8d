"""Both clocks fit wherever a clock is asked for. Only type-checked, never run."""

from typing import assert_type

from hookonce.clock import Clock, SetClock, SystemClock


def ask(clock: Clock) -> float:
    """Use a clock as the flow does."""
    assert_type(clock.override, float | None)
    return clock.time()


ask(SystemClock())
ask(SetClock(now=0.0))
