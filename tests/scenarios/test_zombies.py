"""Workers that stop and come back, or die in the middle: leases, row locks and the fence, with real signals."""

import signal
import time

import pytest

from tests.scenarios.arena import Arena
from tests.scenarios.checker import healed
from tests.scenarios.processes import until
from tests.scenarios.sender import Sent, make_event

LEASE = 0.5


def events(count: int, event_type: str = "invoice.paid", *, seed: int = 5, **extra: object) -> list[Sent]:
    return [make_event(number, event_type, seed=seed, extra=extra) for number in range(count)]


def lease_over(arena: Arena, seconds: float) -> bool:
    """Whether the youngest lease has been over for so long, by the clock that decides about leases."""
    now = "(julianday('now') - 2440587.5) * 86400.0" if arena.is_sqlite else "clock_timestamp()"
    margin = f"{seconds}" if arena.is_sqlite else f"interval '{seconds} s'"
    return bool(
        arena.one(f"SELECT max(lease_until) + {margin} < {now} FROM hookonce_receipt WHERE state = 'processing'")
    )


@pytest.mark.parametrize(
    ("point", "event_type"),
    [
        ("claim.after_claim", "invoice.paid"),
        ("handle.before_begin", "invoice.paid"),
        ("settle.before_failure", "payout.created"),
    ],
)
def test_a_stopped_worker_comes_back(arena: Arena, point: str, event_type: str) -> None:
    """Stopped between two transactions for longer than its lease, a worker finds its events done and writes nothing."""
    receiver = arena.shop("receiver")
    arena.send(*events(20, event_type))
    # One lane: on PostgreSQL another one would be stopped with its row locks, and hold what must be taken over.
    zombie = arena.shop("worker", failpoints=f"{point}=stop", lease=LEASE, concurrency=1)
    until(lambda: zombie.stopped, 10.0, lambda: f"the worker stops at {point}")
    other = arena.shop("worker", lease=LEASE)
    until(lambda: healed(arena.url), 20.0, "another worker finishes what the stopped one holds")
    before = arena.rows("SELECT id, state, token, attempts, crashes FROM hookonce_receipt ORDER BY id")
    zombie.signal(signal.SIGCONT)
    counted = zombie.terminate()
    arena.check()
    assert arena.rows("SELECT id, state, token, attempts, crashes FROM hookonce_receipt ORDER BY id") == before
    if point != "claim.after_claim":
        assert sum(number for name, number in counted.items() if name.endswith("lost")) > 0, counted
    other.terminate()
    receiver.terminate()


def test_a_worker_stopped_inside_its_transaction_keeps_its_event(on_postgres: Arena) -> None:
    """The row lock holds whoever holds it: nobody takes the event, others go on, and afterwards it is finished."""
    arena = on_postgres
    arena.shop("receiver")
    sender = arena.send(*events(1))
    stopped = arena.shop("worker", failpoints="handle.before_handler=stop", lease=LEASE)
    until(lambda: stopped.stopped, 10.0, "the worker stops inside its transaction")
    arena.shop("worker", lease=LEASE)
    until(lambda: lease_over(arena, 4 * LEASE), 20.0, "the lease is long over")
    sender.add(*[make_event(number, "push", seed=6) for number in range(20)])
    sender.finish()
    until(lambda: arena.states() == {"processing": 1, "processed": 20}, 10.0, "the others go on")
    assert arena.rows("SELECT token, crashes FROM hookonce_receipt WHERE state = 'processing'") == [(1, 0)]
    stopped.signal(signal.SIGCONT)
    until(lambda: healed(arena.url), 10.0, "it finishes")
    report = arena.check()
    assert (report.processed, report.crashes) == (21, 0)


def test_killed_inside_its_transaction_after_its_lease(arena: Arena) -> None:
    """Once the lease is over, death inside the transaction is noticed by the database: taken over in less than 2 s."""
    arena.shop("receiver")
    arena.send(*events(1, "payout.paid", seconds=50, slow_once=True))
    worker = arena.shop("worker", lease=LEASE)
    until(lambda: arena.states() == {"processing": 1}, 10.0, "it is being worked on")
    arena.shop("worker", lease=LEASE)
    until(lambda: lease_over(arena, 2 * LEASE), 20.0, "the lease is over")
    assert arena.one("SELECT token FROM hookonce_receipt") == 1
    worker.kill()
    seconds = until(lambda: arena.one("SELECT token FROM hookonce_receipt") == 2, 10.0, "it is taken over")
    print(f"\ntaken over after {seconds * 1000:.0f} ms")
    assert seconds < 2.0
    until(lambda: healed(arena.url), 20.0, "it is processed")
    report = arena.check()
    assert (report.processed, report.crashes) == (1, 1)


def test_a_handler_far_longer_than_its_lease(arena: Arena) -> None:
    """A living handler may take ten times its lease: nobody runs its event a second time."""
    lease = 0.3
    arena.shop("receiver")
    arena.send(*events(1, "payout.paid", seconds=10 * lease))
    workers = [arena.shop("worker", lease=lease) for _ in range(2)]
    began = time.monotonic()
    until(lambda: healed(arena.url), 30.0, "it ends")
    assert time.monotonic() - began > 5 * lease
    report = arena.check()
    assert (report.processed, report.crashes) == (1, 0)
    assert arena.rows("SELECT attempts, token FROM hookonce_receipt") == [(1, 1)]
    for worker in workers:
        worker.terminate()
