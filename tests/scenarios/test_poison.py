"""An event that takes its process with it: counted, given up after three times, and nobody else is blamed for it."""

import signal

import pytest

from hookonce import Inbox
from hookonce.flow.operate import Act, act
from tests.scenarios.arena import Arena
from tests.scenarios.checker import healed
from tests.scenarios.processes import Shop, until
from tests.scenarios.sender import Sent, make_event

LEASE = 0.4
DEATHS_MAX = 12


def run_until_healed(arena: Arena, **options: object) -> int:
    """Start a worker as often as it dies, as a supervisor would. Returns how often it died."""
    for deaths in range(DEATHS_MAX):
        worker: Shop = arena.shop("worker", lease=LEASE, **options)
        until(lambda: not worker.alive or healed(arena.url), 30.0, lambda: f"it ends, or dies\n{worker.tail()}")  # noqa: B023
        if worker.alive:
            worker.terminate()
            return deaths
        assert worker.wait() == -signal.SIGKILL, worker.tail()
    raise AssertionError(f"the worker died {DEATHS_MAX} times: {arena.states()}")


@pytest.mark.parametrize("place", [0, 7])
@pytest.mark.parametrize("seconds", [0.0, 0.1])
def test_an_event_that_kills_its_process(arena: Arena, place: int, seconds: float) -> None:
    """It is failed after three deaths; its batch mates, quick or slow, are all processed; repaired, a replay books it."""
    events: list[Sent] = [make_event(number, "payout.paid", seed=9, extra={"seconds": seconds}) for number in range(16)]
    killer = make_event(100, "shop.killer", seed=9)
    events.insert(place, killer)
    arena.shop("receiver")
    for event in events:  # one after the other, so that the order of claiming is known
        if event is events[0]:
            sender = arena.send(event)
        else:
            sender.add(event)
            sender.finish()
    deaths = run_until_healed(arena)
    report = arena.check(killers=[killer.id])
    assert (report.processed, deaths) == (16, 3)
    row = arena.rows("SELECT id, state, result, crashes FROM hookonce_receipt WHERE event_id = ?", killer.id)
    assert row[0][1:] == ("failed", "crash_loop", 3)

    replay(arena, row[0][0])
    assert run_until_healed(arena, environment={"SHOP_KILLER": "repaired"}) == 0
    report = arena.check()
    assert (report.processed, report.acknowledged) == (17, 17)


def test_two_events_that_kill_their_process(arena: Arena) -> None:
    """Two of them in one batch: both are given up, and nobody between them."""
    events = [make_event(number, "payout.paid", seed=10, extra={"seconds": 0.05}) for number in range(14)]
    killers = [make_event(number, "shop.killer", seed=10) for number in (100, 101)]
    arena.shop("receiver")
    arena.send(killers[0], *events[:7], killers[1], *events[7:])
    deaths = run_until_healed(arena)
    report = arena.check(killers=[killer.id for killer in killers])
    assert report.processed == 14
    assert deaths <= 6


def replay(arena: Arena, receipt_id: int) -> None:
    """As a person at the command line does it."""
    import asyncio

    order = Act(action="replay", actor="scenario", reason="repaired")
    inbox = Inbox(arena.url)
    standing = asyncio.run(inbox.with_backend(lambda backend: backend.run(act(receipt_id, order, now=None))))
    assert not standing.refusal, standing.refusal
