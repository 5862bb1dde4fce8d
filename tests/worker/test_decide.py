"""What follows from an attempt, as a table; and when the next one is."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hookonce import Backoff, Discard, Park, Retry
from hookonce.errors import (
    Busy,
    Conflict,
    DiskFailure,
    HandlerError,
    HandlerMisuse,
    HandlerTimeout,
    NotDurable,
    SchemaError,
    StorageError,
    Unavailable,
    Unreadable,
)
from hookonce.flow.settle import APPLIED, ERROR_CHARS_MAX, SKIPPED, decide, describe
from hookonce.model import EDGES, Claim, ClaimId, ReceiptId, Result, State
from hookonce.registry import Handler

FIXED = (10.0, 60.0, 300.0)


def claim(attempts: int = 1, last_result: str | None = None) -> Claim:
    return Claim(ReceiptId(1), 1, ClaimId("c"), "acme", "a", None, attempts, 0, 0, last_result, "evt_1", None, "x")


def handler(**settings: Any) -> Handler:
    given = {"attempts_max": 3, "backoff": Backoff(fixed=FIXED, jitter=0.0)}
    return Handler(function=lambda event: None, source="acme", pattern="*", **{**given, **settings})


TABLE = [
    # what the attempt ended with, which attempt, -> state, result, delay, counted
    (ZeroDivisionError(), 1, State.RETRYING, None, 10.0, True),
    (ZeroDivisionError(), 2, State.RETRYING, None, 60.0, True),
    (ZeroDivisionError(), 3, State.FAILED, Result.GAVE_UP, 0.0, True),
    (ZeroDivisionError(), 9, State.FAILED, Result.GAVE_UP, 0.0, True),
    (HandlerTimeout("slow"), 1, State.RETRYING, None, 10.0, True),
    (HandlerTimeout("slow"), 3, State.FAILED, Result.GAVE_UP, 0.0, True),
    (HandlerError("swallowed"), 2, State.RETRYING, None, 60.0, True),
    (Retry(), 1, State.RETRYING, None, 10.0, True),
    (Retry(after=7), 2, State.RETRYING, None, 7.0, True),
    (Retry(after=timedelta(minutes=5)), 1, State.RETRYING, None, 300.0, True),
    (Retry(after=0), 1, State.RETRYING, None, 0.0, True),
    (Retry(after=7), 3, State.FAILED, Result.GAVE_UP, 0.0, True),
    (Park(), 1, State.WAITING, Result.TOO_EARLY, 3_600.0, True),
    (Park(key="invoice 7", wait=30), 1, State.WAITING, Result.TOO_EARLY, 30.0, True),
    (Park(wait=timedelta(minutes=1)), 3, State.WAITING, Result.TOO_EARLY, 60.0, True),
    (Discard("not ours"), 1, State.DISCARDED, Result.DISCARDED, 0.0, True),
    (Discard("not ours"), 3, State.DISCARDED, Result.DISCARDED, 0.0, True),
    (HandlerMisuse("commit"), 1, State.FAILED, Result.MISUSE, 0.0, True),
    (Unreadable("no JSON"), 1, State.FAILED, Result.UNREADABLE, 0.0, True),
    (Unavailable("away"), 1, State.RETRYING, None, 2.0, False),
    (Unavailable("away"), 3, State.RETRYING, None, 2.0, False),
    (Unavailable("away"), 99, State.RETRYING, None, 2.0, False),
    (Conflict("deadlock"), 3, State.RETRYING, None, 2.0, False),
    (NotDurable("warning"), 3, State.RETRYING, None, 2.0, False),
    (Busy("queue"), 3, State.RETRYING, None, 2.0, False),
    (DiskFailure("EIO"), 3, State.RETRYING, None, 2.0, False),
    (SchemaError("no table"), 3, State.RETRYING, None, 2.0, False),
    (StorageError("anything"), 3, State.RETRYING, None, 2.0, False),
]


@pytest.mark.parametrize(
    ("error", "attempts", "state", "result", "delay", "counted"),
    TABLE,
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None,
)
def test_what_follows(
    error: Exception, attempts: int, state: State, result: Result | None, delay: float, counted: bool
) -> None:
    """Every way in which an attempt can end has its outcome, on an edge that exists, with the error kept."""
    outcome = decide(error, claim(attempts), handler(), 0.0)
    assert (outcome.state, outcome.result, outcome.delay_seconds, outcome.counted) == (state, result, delay, counted)
    assert outcome.state in EDGES[State.PROCESSING]
    assert outcome.error is not None and type(error).__name__ in outcome.error


def test_parked_twice_is_too_early_for_good() -> None:
    """An event that was parked runs once more; if it is still too early it fails and waits for a person."""
    outcome = decide(Park(), claim(2, last_result="too_early"), handler(), 0.0)
    assert (outcome.state, outcome.result) == (State.FAILED, Result.TOO_EARLY)
    assert decide(Park(), claim(2, last_result=None), handler(), 0.0).state is State.WAITING


def test_success_has_two_names() -> None:
    """Applied by a handler, or skipped for want of one: processed in both cases."""
    assert (APPLIED.state, APPLIED.result) == (State.PROCESSED, Result.APPLIED)
    assert (SKIPPED.state, SKIPPED.result) == (State.PROCESSED, Result.SKIPPED)


def test_infrastructure_waits_are_spread() -> None:
    """After an outage not everybody comes back at the same moment."""
    delays = {decide(Unavailable("away"), claim(), handler(), chance).delay_seconds for chance in (0.0, 0.5, 1.0)}
    assert delays == {2.0, 3.0, 4.0}


@given(text=st.text(max_size=300))
def test_errors_are_one_printable_line(text: str) -> None:
    """Whatever a handler raises, its text fits a column and a log line."""
    shown = describe(ValueError(text * 20))
    assert shown.isprintable() and len(shown) <= ERROR_CHARS_MAX
    shown.encode()


@given(
    attempt=st.integers(1, 10_000),
    chance=st.floats(0, 1),
    first=st.floats(0, 1e4),
    factor=st.floats(1, 10),
    most=st.floats(0, 1e6),
    jitter=st.floats(0, 3),
)
def test_jitter_only_adds(attempt: int, chance: float, first: float, factor: float, most: float, jitter: float) -> None:
    """The wait is never shorter than the schedule says and never longer than its jitter allows."""
    without = Backoff(first_seconds=first, factor=factor, max_seconds=most, jitter=0.0).delay(attempt, chance)
    with_jitter = Backoff(first_seconds=first, factor=factor, max_seconds=most, jitter=jitter).delay(attempt, chance)
    assert without <= most
    assert without <= with_jitter <= without * (1 + jitter) * 1.000001


@pytest.mark.parametrize(
    ("given", "delays"),
    [
        (None, [5.0, 10.0, 20.0, 40.0, 80.0]),
        (300, [300.0] * 5),
        (0.5, [0.5] * 5),
        ([1, 2, 3], [1.0, 2.0, 3.0, 3.0, 3.0]),
        ((60.0,), [60.0] * 5),
        (Backoff(first_seconds=1.0, factor=3.0, max_seconds=10.0), [1.0, 3.0, 9.0, 10.0, 10.0]),
    ],
)
def test_schedules_as_users_write_them(given: Any, delays: list[float]) -> None:
    """Nothing, a number, a list, or a Backoff: five waits of each."""
    assert [Backoff.of(given).delay(attempt, 0.0) for attempt in range(1, 6)] == delays
