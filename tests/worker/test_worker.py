"""The worker: retries, time limits, leases, crashes, outages and the end, each on a real database."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any, Self

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hookonce import Discard, Event, Park, Retry
from hookonce.errors import HandlerTimeout, Unavailable
from hookonce.failpoints import armed
from hookonce.flow.lookup import counted
from hookonce.storage.backend import Backend
from hookonce.worker import loop as worker_loop
from tests.flow.box import WAIT_SECONDS, Box, acme, until, wrote


class Death(BaseException):
    """What a handler raises to play a worker that dies: nothing is settled."""


class Running:
    """A worker at work beside the test."""

    def __init__(self, worker: Any, *, grace: float = 5.0) -> None:
        self.worker = worker
        self.stop = asyncio.Event()
        self.task = asyncio.ensure_future(worker.run(self.stop, grace_seconds=grace))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.end()

    async def end(self) -> None:
        self.stop.set()
        await asyncio.wait_for(self.task, WAIT_SECONDS)


class Flaky:
    """A real backend whose steps fail while `broken` says so."""

    def __init__(self, inner: Backend) -> None:
        self.inner = inner
        self.broken: Callable[[], bool] = lambda: False
        self.refused = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    async def run(self, operation: Any, **rest: Any) -> Any:
        if self.broken():
            self.refused += 1
            operation.close()
            raise Unavailable("the network is away")
        return await self.inner.run(operation, **rest)


def finished(box: Box) -> bool:
    return set(box.place.states()) == {"processed"}


# retries


async def test_a_failure_is_tried_again_when_it_is_due(box: Box) -> None:
    """Nothing of the failed attempt stays; the next runs after the wait, not before, and a third never."""
    attempts: list[int] = []

    @box.source.on("*", backoff=[300])
    def fail_once(event: Event, conn: Any) -> None:
        attempts.append(event.attempt)
        wrote(conn, event.id)
        if event.attempt == 1:
            raise ZeroDivisionError("once")

    await box.send()
    await box.drain()
    assert (box.place.states(), box.place.effects()) == (["retrying"], [])
    assert box.place.receipt("attempts, last_error") == (1, "ZeroDivisionError: once")
    box.clock.advance(299)
    await box.drain()
    assert attempts == [1]
    box.clock.advance(77)
    await box.drain()
    assert (attempts, box.place.states(), box.place.effects()) == ([1, 2], ["processed"], ["evt_1"])
    assert box.place.receipt("attempts, last_error, result") == (2, None, "applied")
    assert (await box.send()).verdict == "duplicate"
    box.clock.advance(10_000)
    await box.drain()
    assert attempts == [1, 2]


async def test_giving_up_keeps_everything(box: Box) -> None:
    """After its last attempt an event has failed: body and every error are there, and no worker takes it again."""

    @box.source.on("*", attempts=3, backoff=1)
    def fail(event: Event) -> None:
        raise ValueError(f"attempt {event.attempt}")

    await box.send()
    for _ in range(6):
        await box.drain()
        box.clock.advance(10)
    assert box.place.receipt("state, result, attempts") == ("failed", "gave_up", 3)
    rows = box.place.sql("SELECT attempt, state, error, counted FROM hookonce_attempt ORDER BY id")
    assert [(row[0], row[1], row[2], bool(row[3])) for row in rows] == [
        (1, "retrying", "ValueError: attempt 1", True),
        (2, "retrying", "ValueError: attempt 2", True),
        (3, "failed", "ValueError: attempt 3", True),
    ]
    assert len(box.place.bodies()) == 1
    assert box.inbox.counters.handled["acme", "gave_up"] == 1


async def test_a_handler_answers_by_value(box: Box) -> None:
    """Retry after so long, park and run once more, discard for good: each undoes what was written."""
    ran: list[tuple[str, int]] = []

    @box.source.on("*")
    def answer(event: Event, conn: Any) -> None:
        ran.append((event.id, event.attempt))
        wrote(conn, event.id)
        if event.type == "retry" and event.attempt == 1:
            raise Retry("not now", after=40)
        if event.type == "park":
            raise Park(key="invoice 7", wait=50)
        if event.type == "park once" and event.attempt == 1:
            raise Park(wait=50)
        if event.type == "discard":
            raise Discard("not ours")

    kinds = ["retry", "park", "park once", "discard"]
    for number, kind in enumerate(kinds):
        await box.send(f"evt_{number}", kind)
    await box.drain()
    assert box.place.states() == ["retrying", "waiting", "waiting", "discarded"]
    assert box.place.effects() == []
    box.clock.advance(39)
    await box.drain()
    assert len(ran) == 4
    box.clock.advance(2)
    await box.drain()
    assert box.place.states() == ["processed", "waiting", "waiting", "discarded"]
    box.clock.advance(10)
    await box.drain()
    assert box.place.states() == ["processed", "failed", "processed", "discarded"]
    assert box.place.receipt("result, last_error", "evt_1") == ("too_early", "Park: waiting for invoice 7")
    assert box.place.receipt("result", "evt_3") == ("discarded",)
    assert box.place.effects() == ["evt_0", "evt_2"]


async def test_infrastructure_is_not_the_handlers_fault(box: Box) -> None:
    """Errors of the database are tried again for ever, uncounted."""
    away = [True]

    @box.source.on("*", attempts=1)
    def apply(event: Event, conn: Any) -> None:
        if away[0]:
            raise Unavailable("somebody else's database is away")
        wrote(conn, event.id)

    await box.send()
    for _ in range(4):
        await box.drain()
        assert box.place.receipt("state, attempts") == ("retrying", 0)
        box.clock.advance(5)
    away[0] = False
    await box.drain()
    assert box.place.receipt("state, attempts") == ("processed", 1)
    assert {bool(row[0]) for row in box.place.sql("SELECT counted FROM hookonce_attempt")} == {False}


# time limits


@pytest.mark.parametrize("how", ["asleep", "in a statement"])
async def test_a_handler_that_takes_too_long_loses_its_connection(box: Box, how: str) -> None:
    """It is undone and counted, the next event runs meanwhile, and what the late one writes afterwards is void."""
    let_go = threading.Event()
    late: list[str] = []
    endless = {
        "postgres": "SELECT pg_sleep(60)",
        "sqlite": "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c WHERE x < 0",
    }

    @box.source.on("slow", timeout=0.3, backoff=60)
    def slow(event: Event, conn: Any) -> None:
        wrote(conn, "slow")
        if how == "asleep":
            let_go.wait(WAIT_SECONDS)
            try:
                wrote(conn, "late")
            except Exception as error:
                late.append(type(error).__name__)
                raise
        else:
            conn.execute(endless[box.dialect]).fetchall()

    @box.source.on("quick")
    def quick(event: Event, conn: Any) -> None:
        wrote(conn, "quick")

    await box.send("evt_1", "slow")
    await box.send("evt_2", "quick")
    began = time.monotonic()
    await box.drain(concurrency=2)
    assert time.monotonic() - began < 6
    assert box.place.states() == ["retrying", "processed"]
    assert box.place.receipt("attempts") == (1,)
    assert "HandlerTimeout" in box.place.receipt("last_error")[0]
    let_go.set()
    if how == "asleep":
        await until(lambda: late)
    assert box.place.effects() == ["quick"]


async def test_an_async_handler_that_takes_too_long(pg_box: Box) -> None:
    """On the loop as in a thread: cancelled, undone, counted, and the next event runs."""

    @pg_box.source.on("slow", timeout=0.3, backoff=60)
    async def slow(event: Event, conn: Any) -> None:
        await conn.execute("INSERT INTO effect (note) VALUES ('slow')")
        await asyncio.sleep(60)

    @pg_box.source.on("stuck", timeout=0.3, backoff=60)
    async def stuck(event: Event, conn: Any) -> None:
        await conn.execute("SELECT pg_sleep(60)")

    @pg_box.source.on("quick")
    async def quick(event: Event, conn: Any) -> None:
        await conn.execute("INSERT INTO effect (note) VALUES ('quick')")

    for number, kind in enumerate(["slow", "stuck", "quick"]):
        await pg_box.send(f"evt_{number}", kind)
    await pg_box.drain()
    assert pg_box.place.states() == ["retrying", "retrying", "processed"]
    assert pg_box.place.effects() == ["quick"]


async def test_a_late_event_in_a_group_is_found(box: Box) -> None:
    """One of a group of quick ones hangs beyond the limit and its lease: it is tried alone, and the others finish."""
    hung: list[int] = []

    @box.source.on("*", timeout=0.4, backoff=600)
    def mostly_quick(event: Event, conn: Any) -> None:
        wrote(conn, event.id)
        if event.id == "evt_3":
            hung.append(1)
            stop_at = time.monotonic() + 5
            while time.monotonic() < stop_at and len(hung) < 20:
                conn.execute("SELECT 1")
                time.sleep(0.01)

    await box.send_many(6)
    await box.grouped(lease_seconds=0.5)
    assert box.place.receipt("state, attempts, crashes", "evt_3") == ("retrying", 1, 0)
    assert box.place.effects() == ["evt_1", "evt_2", "evt_4", "evt_5", "evt_6"]
    assert len(hung) == 2
    assert [row[0] for row in box.place.sql("SELECT attempts FROM hookonce_receipt ORDER BY id")] == [1] * 6


# where handlers run


async def test_sync_handlers_run_in_threads_and_async_ones_on_the_loop(pg_box: Box) -> None:
    """Each colour in its place, side by side."""
    places: dict[str, Any] = {}

    @pg_box.source.on("sync")
    def in_thread(event: Event, conn: Any) -> None:
        places["sync"] = threading.current_thread().name
        wrote(conn, "sync")

    @pg_box.source.on("async")
    async def on_loop(event: Event, conn: Any) -> None:
        places["async"] = asyncio.get_running_loop()
        await conn.execute("INSERT INTO effect (note) VALUES ('async')")

    await pg_box.send("evt_1", "sync")
    await pg_box.send("evt_2", "async")
    await pg_box.grouped()
    assert places == {"sync": "hookonce-lane", "async": asyncio.get_running_loop()}
    assert pg_box.place.effects() == ["async", "sync"]


async def test_injection_reaches_the_handler(box: Box) -> None:
    """By name or by annotation, the event and the connection of the transaction come where they are asked for."""
    seen: list[bool] = []

    @box.source.on("a")
    def swapped(conn: Any, what: Event, limit: int = 3) -> None:
        seen.append(what.type == "a" and hasattr(conn, "execute") and limit == 3)

    @box.source.on("b", batch=5)
    def many(events: list[Event], connection: Any) -> None:
        seen.append(all(event.type == "b" for event in events) and hasattr(connection, "execute"))

    await box.send("evt_1", "a")
    await box.send("evt_2", "b")
    await box.drain()
    assert seen == [True, True] and finished(box)


async def test_many_workers_never_run_one_event_twice(box: Box) -> None:
    """Three workers on one database: every event applied once, whoever got it."""

    @box.source.on("*")
    def apply(event: Event, conn: Any) -> None:
        wrote(conn, event.id)

    names = await box.send_many(60)
    workers = [Running(box.worker(concurrency=3)) for _ in range(3)]
    await until(lambda: finished(box), what="all processed")
    for worker in workers:
        await worker.end()
    assert box.place.effects() == sorted(names)
    assert box.place.sql("SELECT sum(attempts), sum(crashes) FROM hookonce_receipt") == [(60, 0)]


HISTORY = 6


@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    order=st.permutations(range(1, HISTORY + 1)),
    again=st.lists(st.tuples(st.integers(0, 2 * HISTORY), st.integers(1, HISTORY)), max_size=8),
    pauses=st.sets(st.integers(0, 2 * HISTORY), max_size=4),
)
async def test_any_order_with_any_duplicates_converges(
    box: Box, order: list[int], again: list[tuple[int, int]], pauses: set[int]
) -> None:
    """Six versions of one object in any order, any of them repeated, worked on now and then: always the sixth."""

    def newest(event: Event, conn: Any) -> None:
        wrote(conn, event.id)
        conn.execute(f"UPDATE thing SET value = {event['data.v']:d} WHERE id = 1 AND value < {event['data.v']:d}")

    if not box.source.handlers:
        box.source.on("*")(newest)
    example = f"evt_{next(box.numbers)}"
    place = box.place
    place.sql("UPDATE thing SET value = 0 WHERE id = 1")
    place.sql("DELETE FROM effect")
    deliveries = list(order)
    for position, version in again:
        deliveries.insert(position, version)
    for number, version in enumerate(deliveries):
        await box.send(f"{example}_{version}", v=version)
        if number in pauses:
            await box.drain()
    await box.drain()
    assert place.sql("SELECT value FROM thing WHERE id = 1") == [(HISTORY,)]
    assert place.effects() == [f"{example}_{version}" for version in range(1, HISTORY + 1)]


async def test_a_duplicate_at_another_server_while_the_first_is_at_work(box: Box) -> None:
    """One server is inside the handler; the copy that comes to the other changes nothing, and its worker finds nothing."""
    entered, leave = threading.Event(), threading.Event()

    def slow(event: Event, conn: Any) -> None:
        wrote(conn, event.id)
        entered.set()
        assert leave.wait(WAIT_SECONDS)

    servers = [box, Box(box.place, box.clock, box.place.inbox(acme(), clock=box.clock))]
    for server in servers:
        server.source.on("*")(slow)
    await servers[0].send()
    try:
        working = asyncio.ensure_future(servers[0].drain())
        await until(entered.is_set)
        copy = asyncio.ensure_future(servers[1].send())
        if box.dialect == "postgres":  # on SQLite, with one writer, the copy waits for the handler
            assert (await asyncio.wait_for(copy, WAIT_SECONDS)).verdict == "duplicate"
            await servers[1].drain()
    finally:
        leave.set()
    await working
    assert (await copy).verdict == "duplicate"
    await servers[1].drain()
    assert (box.place.effects(), box.place.count("receipt"), box.place.count("attempt")) == (["evt_1"], 1, 0)
    await servers[1].close()


async def test_a_deadlock_between_two_handlers_is_nobodys_fault(pg_box: Box) -> None:
    """Two workers take two rows in opposite order: one is told to try again, both are applied at their first attempt."""
    both = threading.Barrier(2, timeout=WAIT_SECONDS)
    runs: list[str] = []

    @pg_box.source.on("*", attempts=1)
    def apply(event: Event, conn: Any) -> None:
        first, second = (1, 2) if event.id == "evt_1" else (2, 1)
        conn.execute(f"UPDATE thing SET value = value + 1 WHERE id = {first}")
        runs.append(event.id)
        if len(runs) <= 2:
            both.wait()
        conn.execute(f"UPDATE thing SET value = value + 1 WHERE id = {second}")

    await pg_box.send("evt_1")
    await pg_box.send("evt_2")
    workers = [Running(pg_box.worker(concurrency=1, lease_seconds=0.5)) for _ in range(2)]
    await until(lambda: finished(pg_box))
    for worker in workers:
        await worker.end()
    assert pg_box.place.sql("SELECT id, value FROM thing ORDER BY id") == [(1, 2), (2, 2)]
    assert len(runs) == 3
    assert pg_box.place.sql("SELECT sum(attempts) FROM hookonce_receipt") == [(2,)]
    assert pg_box.place.count("attempt") == 0


# leases and crashes


async def test_what_cannot_begin_goes_back_uncounted(box: Box) -> None:
    """One lane is busy: what waits behind it is handed back after half of the lease, for somebody with a free lane."""
    let_go = threading.Event()

    @box.source.on("*", timeout=WAIT_SECONDS)
    def apply(event: Event, conn: Any) -> None:
        if event.id == "evt_1":
            let_go.wait(WAIT_SECONDS)
        wrote(conn, event.id)

    names = await box.send_many(4)
    async with Running(box.worker(concurrency=1, group=1, lease_seconds=0.6)):
        if box.dialect == "sqlite":  # the handler holds the only writer's turn: nothing can be given back meanwhile
            await until(lambda: "processing" in box.place.states())
            let_go.set()
        else:
            await until(lambda: box.place.states() == ["processing", "received", "received", "received"])
            rows = box.place.sql("SELECT attempts, token, crashes FROM hookonce_receipt ORDER BY id")
            assert rows == [(1, 1, 0), *[(0, 1, 0)] * 3]
            async with Running(box.worker(concurrency=2)):
                await until(lambda: box.place.states().count("processed") == 3)
            let_go.set()
        await until(lambda: finished(box))
    assert box.place.effects() == sorted(names)
    assert box.place.sql("SELECT sum(attempts), sum(crashes) FROM hookonce_receipt") == [(4, 0)]


async def test_a_dead_workers_events_are_taken_over(box: Box) -> None:
    """Claimed and never heard of again: after the lease, not before, somebody else runs them, and the crash is counted."""

    @box.source.on("*")
    def apply(event: Event, conn: Any) -> None:
        wrote(conn, event.id)

    names = await box.send_many(3)
    assert len(await box.claim(lease=10.0)) == 3
    box.clock.advance(9)
    await box.drain()
    assert box.place.effects() == []
    box.clock.advance(2)
    await box.drain()
    assert box.place.effects() == sorted(names)
    assert box.place.sql("SELECT state, attempts, crashes, token FROM hookonce_receipt") == [("processed", 2, 1, 2)] * 3


async def test_draining_ends_when_nothing_is_left_behind(pg_box: Box) -> None:
    """One suspect is in hand at a time; that it ends while we look for other work is no reason to leave the next one."""
    box = pg_box
    applied: list[str] = []
    looking = threading.Event()

    @box.source.on("*")
    def apply(event: Event, conn: Any) -> None:
        wrote(conn, event.id)
        if event.id == "evt_1":
            assert looking.wait(WAIT_SECONDS)
        applied.append(event.id)

    class Slow(Flaky):
        """Once the innocent one is done: answers only when the suspect has ended as well."""

        async def run(self, operation: Any, **rest: Any) -> Any:
            result = await self.inner.run(operation, **rest)
            if applied:
                looking.set()
                await until(lambda: not worker._running)
            return result

    suspects = await box.send_many(2)
    assert len(await box.claim()) == 2
    box.clock.advance(11)
    innocent = await box.send_many(1)
    worker = box.worker(backend=Slow(box.backend()))
    await asyncio.wait_for(worker.drain(), WAIT_SECONDS)
    assert box.place.effects() == sorted(suspects + innocent)


async def test_a_crash_loop_ends_and_harms_no_innocent(box: Box) -> None:
    """The event that kills its worker three times has failed; those that were claimed beside it are processed."""
    deaths: list[int] = []

    @box.source.on("*", attempts=20)
    def apply(event: Event, conn: Any) -> None:
        wrote(conn, event.id)
        if event.id == "evt_2":
            deaths.append(event.attempt)
            raise Death

    names = await box.send_many(4)
    assert len(await box.claim()) == 4  # the first death, before anything of the batch had begun
    for _ in range(5):
        box.clock.advance(11)
        with contextlib.suppress(Death):
            await box.drain(lease_seconds=10.0)
    assert box.place.receipt("state, result, crashes", "evt_2") == ("failed", "crash_loop", 3)
    assert "died" in box.place.receipt("last_error", "evt_2")[0]
    assert len(deaths) == 2
    assert box.place.effects() == sorted(set(names) - {"evt_2"})
    assert box.place.sql("SELECT max(crashes) FROM hookonce_receipt WHERE event_id <> 'evt_2'") == [(1,)]


async def test_a_claim_that_was_taken_over_writes_nothing(box: Box) -> None:
    """Paused inside the handler's turn until somebody else finished: its mark is refused, the effect is there once."""
    runs: list[int] = []

    @box.source.on("*")
    def apply(event: Event, conn: Any) -> None:
        runs.append(event.attempt)
        wrote(conn, event.id)

    await box.send()

    def lose() -> None:
        # Between T1 and T2 this worker slept beyond its lease, and another one was quicker.
        box.place.sql("UPDATE hookonce_receipt SET token = token + 1, claim_id = 'another', attempts = attempts + 1")

    with armed("handle.before_begin", lose):
        await box.drain()
    assert (runs, box.place.effects()) == ([], [])
    assert box.inbox.counters.handled["acme", "lost"] == 1
    box.clock.advance(11)
    await box.drain()
    assert box.place.effects() == ["evt_1"] and finished(box)


# outages, hints and the end


async def test_a_lost_hint_costs_a_moment(box: Box) -> None:
    """Nobody wakes the worker: it finds the event by looking."""

    @box.source.on("*")
    def apply(event: Event, conn: Any) -> None:
        wrote(conn, event.id)

    async with Running(box.worker()) as running:
        await until(lambda: not running.worker.busy)
        await box.send()
        await until(lambda: finished(box), seconds=5)
    assert box.place.effects() == ["evt_1"]


async def test_a_hint_is_taken(lite_box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    """With polling out of the way an event that is accepted in this process is worked on at once."""
    monkeypatch.setattr(worker_loop, "POLL_IDLE_SECONDS", 600.0)

    @lite_box.source.on("*")
    def apply(event: Event, conn: Any) -> None:
        wrote(conn, event.id)

    async with Running(lite_box.inbox.worker(lite_box.backend())):
        for number in range(3):
            await lite_box.send(f"evt_{number}")
            await until(lambda number=number: len(lite_box.place.effects()) == number + 1, seconds=5)


async def test_outcomes_are_written_after_an_outage(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    """The database was away when a failure had to be written: it is written later, and is no crash."""
    monkeypatch.setattr(worker_loop, "OUTAGE_SECONDS", 0.01)
    flaky = Flaky(box.backend())
    failed: list[int] = []
    flaky.broken = lambda: bool(failed) and flaky.refused < 5

    @box.source.on("*", backoff=60)
    def fail(event: Event) -> None:
        failed.append(1)
        raise ZeroDivisionError

    await box.send()
    async with Running(box.worker(backend=flaky)):
        await until(lambda: box.place.states() == ["retrying"])
    assert flaky.refused == 5
    assert box.place.receipt("attempts, crashes, last_error") == (1, 0, "ZeroDivisionError")
    assert box.place.count("attempt") == 1


async def test_a_worker_outlives_an_outage(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever it asks fails for a while: it asks again, and goes on."""
    monkeypatch.setattr(worker_loop, "OUTAGE_SECONDS", 0.01)
    flaky = Flaky(box.backend())
    flaky.broken = lambda: flaky.refused < 4

    @box.source.on("*")
    def apply(event: Event, conn: Any) -> None:
        wrote(conn, event.id)

    await box.send()
    async with Running(box.worker(backend=flaky)):
        await until(lambda: finished(box))
    assert box.place.effects() == ["evt_1"]


async def test_stopping_finishes_what_began_and_hands_back_the_rest(box: Box) -> None:
    """After a clean stop no claim is left: what ran is processed, what waited is received again, uncounted."""
    began, let_go = threading.Event(), threading.Event()

    @box.source.on("*", timeout=WAIT_SECONDS)
    def apply(event: Event, conn: Any) -> None:
        began.set()
        let_go.wait(WAIT_SECONDS)
        wrote(conn, event.id)

    names = await box.send_many(5)
    running = Running(box.worker(concurrency=1, group=1))
    await until(began.is_set)
    running.stop.set()
    if box.dialect == "postgres":  # on SQLite the running handler holds the writer's turn
        await until(lambda: box.place.states() == ["processing", *["received"] * 4])
    let_go.set()
    await running.end()
    assert box.place.states() == ["processed", *["received"] * 4]
    assert box.place.effects() == names[:1]
    left = box.place.sql("SELECT attempts, crashes, claim_id FROM hookonce_receipt WHERE state = 'received'")
    assert left == [(0, 0, None)] * 4


async def test_who_does_not_end_within_the_grace_loses_the_connection(box: Box) -> None:
    """The stop is not held up by a handler: it is undone, its event goes back, and the next writer gets through."""
    began, let_go = threading.Event(), threading.Event()
    ended: list[str] = []

    @box.source.on("*", timeout=WAIT_SECONDS)
    def apply(event: Event, conn: Any) -> None:
        wrote(conn, "too late")
        began.set()
        let_go.wait(WAIT_SECONDS)
        ended.append(event.id)

    await box.send()
    running = Running(box.worker(), grace=0.1)
    await until(began.is_set)
    await running.end()
    assert (await asyncio.wait_for(box.send("evt_2"), 3)).verdict == "accepted"
    assert box.place.receipt("state, attempts, crashes, claim_id") == ("received", 0, 0, None)
    let_go.set()
    await until(lambda: ended)
    assert box.place.effects() == []


async def test_an_async_handler_is_cancelled_at_the_end_of_the_grace(pg_box: Box) -> None:
    """On the loop as in a thread."""
    began = asyncio.Event()
    cancelled: list[bool] = []

    @pg_box.source.on("*", timeout=WAIT_SECONDS)
    async def apply(event: Event, conn: Any) -> None:
        await conn.execute("INSERT INTO effect (note) VALUES ('too late')")
        began.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    await pg_box.send()
    running = Running(pg_box.worker(), grace=0.1)
    await began.wait()
    await running.end()
    assert cancelled == [True]
    assert pg_box.place.receipt("state, attempts, crashes") == ("received", 0, 0)
    assert pg_box.place.effects() == []


async def test_a_time_limit_says_what_happened() -> None:
    """The error that a handler's author reads names the limit."""
    assert "HO125" in str(HandlerTimeout("the handler ran longer than 2 s"))


# the sum


async def test_the_stages_add_up(box: Box) -> None:
    """Accepted is processed + pending + dead, by the counters of the doors, of the workers and by the rows themselves."""

    @box.source.on("fails", attempts=1)
    def fails(event: Event) -> None:
        raise ValueError

    @box.source.on("later")
    def later(event: Event) -> None:
        raise Retry(after=60)

    @box.source.on("parked")
    def parked(event: Event) -> None:
        raise Park(wait=60)

    @box.source.on("never")
    def never(event: Event) -> None:
        raise Discard("no")

    @box.source.on("good")
    def good(event: Event, conn: Any) -> None:
        wrote(conn, event.id)

    for kind in ("fails", "later", "parked", "never", "good", "good", "nobody"):
        for name in await box.send_many(1, kind):
            assert (await box.send(name, kind)).verdict == "duplicate"
    await box.drain()
    await box.send_many(2, "good")
    rows = await box.backend().read(counted(now=box.clock.override))
    by_state = {state: count for _, state, count in rows.states}
    assert by_state == {"processed": 3, "failed": 1, "retrying": 1, "waiting": 1, "discarded": 1, "received": 2}
    counters = box.inbox.counters
    processed = counters.handled["acme", "applied"] + counters.handled["acme", "skipped"]
    dead = counters.handled["acme", "gave_up"] + counters.handled["acme", "discarded"]
    pending = by_state["received"] + by_state["retrying"] + by_state["waiting"]
    assert (processed, dead, pending) == (by_state["processed"], by_state["failed"] + by_state["discarded"], 4)
    assert counters.received["acme", "accepted"] == processed + pending + dead == 9
    assert counters.received["acme", "duplicate"] == 7
    assert rows.deliveries == (("acme", "duplicate", 7),)
