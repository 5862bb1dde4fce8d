"""The checker checked: builds without one safeguard, and it has to find what is wrong with each of them."""

import signal

from tests.scenarios.arena import NEVER, Arena
from tests.scenarios.checker import check, healed
from tests.scenarios.processes import until
from tests.scenarios.sender import Mix, make_event

SEED = 7


def test_acknowledged_before_the_commit(arena: Arena) -> None:
    """Whoever says yes before the commit loses events when killed, and the checker names them."""
    sender = arena.sender(seed=SEED, rate=500.0)
    for _ in range(4):
        goal = len(sender.tally.acknowledged) + 60
        process = arena.shop("both", broken="acknowledge_before_commit", crashes_max=NEVER)
        until(lambda: len(sender.tally.acknowledged) >= goal, 20.0, "events are acknowledged")  # noqa: B023
        process.kill()
    arena.shop("both", crashes_max=NEVER)
    sender.finish()
    report = check(arena.url, arena.log)
    assert report.lost, str(report)


def test_marked_apart_from_the_effect(arena: Arena) -> None:
    """Whoever commits the effect before the mark books twice when killed between them."""
    sender = arena.sender(seed=SEED, mix=Mix(batch=0.0))
    for nth in (1, 5, 9):
        process = arena.shop("both", broken="mark_apart", failpoints=f"settle.before_commit=kill@{nth}")
        assert process.wait() == -signal.SIGKILL
    arena.shop("both", crashes_max=NEVER)
    sender.finish()
    report = check(arena.url, arena.log)
    assert report.doubled, str(report)


def test_no_check_in_the_work_transaction(arena: Arena) -> None:
    """Whoever works on an event without asking whether it is still his books it twice when he was stopped."""
    arena.shop("receiver")
    arena.send(*[make_event(number, "invoice.paid", seed=SEED) for number in range(12)])
    zombie = arena.shop("worker", broken="no_check", failpoints="handle.before_begin=stop", lease=0.5, concurrency=1)
    until(lambda: zombie.stopped, 10.0, "the worker stops")
    arena.shop("worker", lease=0.5)
    until(lambda: healed(arena.url), 20.0, "another worker finishes")
    zombie.signal(signal.SIGCONT)
    zombie.terminate()
    report = check(arena.url, arena.log)
    assert report.doubled, str(report)


def test_no_key(arena: Arena) -> None:
    """Whoever forgets what makes two deliveries one event books duplicates."""
    process = arena.shop("both", broken="no_key")
    sender = arena.sender(seed=SEED, events_max=60, mix=Mix(duplicate=0.5))
    sender.acknowledge(40)
    sender.finish()
    report = check(arena.url, arena.log)
    assert report.doubled, str(report)
    process.kill()
