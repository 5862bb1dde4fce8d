"""Stage accept: what waits at the same moment shares a commit, and nobody is told anything that is not durable."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import psycopg
import pytest

from hookonce import StorageError
from hookonce.clock import SystemClock
from hookonce.errors import Busy, RowRefused, Unavailable
from hookonce.failpoints import armed
from hookonce.flow.accept import GROUP_MAX, Acceptor, readable, receipts_insert
from hookonce.model import Arrival, Facts, Stored
from hookonce.storage.backend import Backend
from hookonce.storage.connect import backend_factory
from hookonce.storage.operation import Many, Operation, Step
from tests.flow.box import Place, until

Hook = Callable[[int], Awaitable[None]]


class Watched:
    """A real store, and somebody who counts, delays and breaks what passes on its way to it."""

    def __init__(self, inner: Backend) -> None:
        self.inner = inner
        self.bodies_apart = inner.bodies_apart
        self.groups_max = inner.groups_max
        self.steps: list[list[Step]] = []
        self.withins: list[float | None] = []
        self.under_way = 0
        self.most_under_way = 0
        self.before: Hook | None = None
        self.after: Hook | None = None

    @property
    def inserts(self) -> list[list[bytes]]:
        """The keys of each transaction that inserted receipts."""
        return [
            [bytes(row[0]) for row in step.rows]  # type: ignore[arg-type]
            for steps in self.steps
            for step in steps
            if isinstance(step, Many) and step.name == "receipt_insert"
        ]

    async def run(self, operation: Operation[Any], *, within: float | None = None, **rest: Any) -> Any:
        steps: list[Step] = []
        self.steps.append(steps)
        self.withins.append(within)
        number = len(self.steps)
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        try:
            if self.before is not None:
                await self.before(number)
            result = await self.inner.run(_noted(operation, steps), within=within, **rest)
            if self.after is not None:
                await self.after(number)
            return result
        finally:
            self.under_way -= 1

    async def close(self) -> None:
        await self.inner.close()


def _noted(operation: Operation[Any], steps: list[Step]) -> Operation[Any]:
    try:
        step = next(operation)
        while True:
            steps.append(step)
            step = operation.send((yield step))
    except StopIteration as end:
        return end.value


@pytest.fixture
async def store(place: Place) -> AsyncIterator[Watched]:
    """A watched store on both databases in turn, one group at a time."""
    watched = Watched(backend_factory(place.url)())
    watched.groups_max = 1
    yield watched
    await watched.close()


def acceptor(store: Watched, **settings: Any) -> Acceptor:
    return Acceptor(store, SystemClock(), **settings)


def arrival(
    number: int, *, body: bytes = b"{}", guard: bytes | None = None, key: bytes | None = None, delivery: str = ""
) -> Arrival:
    return Arrival(
        key=hashlib.sha256(b"key %d" % number).digest() if key is None else key,
        guard=guard and hashlib.sha256(guard).digest(),
        source="acme",
        facts=Facts(event_id=f"evt_{number}", type="thing", delivery_id=delivery or None),
        body=body,
        headers=b"a: b\r\n",
        body_digest=hashlib.sha256(body).digest(),
        secret_id="abc",
        correlation_id=f"c{number}",
        address="203.0.113.1",
    )


async def outcome(future: asyncio.Future[Stored]) -> str:
    """The verdict, or the name of the error."""
    try:
        return (await asyncio.wait_for(asyncio.shield(future), 15)).verdict.value
    except StorageError as error:
        return type(error).__name__


async def outcomes(futures: list[asyncio.Future[Stored]]) -> list[str]:
    return [await outcome(future) for future in futures]


def gate(store: Watched, number: int = 1) -> asyncio.Event:
    """Hold the `number`-th transaction back until the event is set."""
    opened = asyncio.Event()

    async def hold(this: int) -> None:
        if this == number:
            await opened.wait()

    store.before = hold
    return opened


# groups


async def test_what_waits_shares_the_next_commit(place: Place, store: Watched) -> None:
    """While one commit is under way everything that comes gathers, and leaves in one transaction."""
    opened = gate(store)
    which = acceptor(store)
    futures = [which.submit(arrival(0))]
    await until(lambda: store.under_way == 1)
    for number in range(1, 101):
        futures.append(which.submit(arrival(number)))
        await asyncio.sleep(0)
    assert len(store.steps) == 1 and not any(future.done() for future in futures)
    opened.set()
    assert await outcomes(futures) == ["accepted"] * 101
    assert [len(keys) for keys in store.inserts] == [1, 100]
    assert place.count("receipt") == place.count("body") == 101


async def test_a_group_is_bounded(store: Watched) -> None:
    """However many wait, one commit takes GROUP_MAX of them."""
    opened = gate(store)
    which = acceptor(store)
    futures = [which.submit(arrival(0))]
    await until(lambda: store.under_way == 1)
    futures += [which.submit(arrival(number)) for number in range(1, GROUP_MAX + 11)]
    opened.set()
    assert await outcomes(futures) == ["accepted"] * (GROUP_MAX + 11)
    assert [len(keys) for keys in store.inserts] == [1, GROUP_MAX, 10]


async def test_keys_are_sorted_in_every_group(store: Watched) -> None:
    """Two receivers that insert the same events in the same order cannot wait for each other in a ring."""
    which = acceptor(store)
    await outcomes([which.submit(arrival(number)) for number in range(50)])
    (keys,) = store.inserts
    assert keys == sorted(keys) and len(keys) == 50


async def test_groups_in_flight_follow_the_latency_of_commits(pg: Place) -> None:
    """With quick commits one group travels, with slow ones as many as the store allows, and never more."""
    store = Watched(backend_factory(pg.url)())
    opened = asyncio.Event()

    async def hold(_: int) -> None:
        await opened.wait()

    store.before = hold
    which = acceptor(store)
    futures = []
    for number in range(40):
        futures.append(which.submit(arrival(number)))
        await asyncio.sleep(0)
    assert store.most_under_way == 1
    which._commit_seconds = 1.0
    for number in range(40, 80):
        futures.append(which.submit(arrival(number)))
        await asyncio.sleep(0)
    assert store.most_under_way == store.groups_max == 4
    opened.set()
    assert await outcomes(futures) == ["accepted"] * 80
    assert which._commit_seconds > 0
    await store.close()


async def test_every_group_tells_the_store_how_long_is_left(store: Watched) -> None:
    """No statement may take longer than what is left of the budget of the first who waits."""
    which = acceptor(store, budget=2.0)
    await outcomes([which.submit(arrival(1)), which.submit(arrival(1))])
    assert len(store.withins) == 2
    assert all(within is not None and 0 < within <= 2.0 for within in store.withins)


# verdicts


async def test_of_the_same_event_in_one_group_the_first_is_accepted(place: Place, store: Watched) -> None:
    """Ten of one event in one commit: the first is new, the others are duplicates with a row each."""
    which = acceptor(store)
    futures = [which.submit(arrival(1)) for _ in range(10)]
    assert await outcomes(futures) == ["accepted"] + ["duplicate"] * 9
    assert len({(await future).receipt_id for future in futures}) == 1
    assert (place.count("receipt"), place.verdicts()) == (1, ["duplicate"] * 9)


async def test_the_same_event_through_two_acceptors(place: Place) -> None:
    """Two receivers that get the same events at the same moment accept each once, whatever the order."""
    stores = [Watched(backend_factory(place.url)()) for _ in range(2)]
    doors = [acceptor(one) for one in stores]
    futures = [door.submit(arrival(number)) for number in range(60) for door in doors]
    futures += [door.submit(arrival(number)) for number in reversed(range(60)) for door in doors]
    told = await outcomes(futures)
    assert (told.count("accepted"), told.count("duplicate")) == (60, 180)
    assert (place.count("receipt"), place.count("delivery")) == (60, 180)
    for one in stores:
        await one.close()


async def test_another_body_under_a_known_id_is_evidence(place: Place, store: Watched) -> None:
    """The first body wins; the other is kept beside it, in the same group and in a later one."""
    which = acceptor(store)
    first = [which.submit(arrival(1, body=b"first")), which.submit(arrival(1, body=b"second"))]
    assert await outcomes(first) == ["accepted", "mismatch"]
    assert await outcome(which.submit(arrival(1, body=b"third"))) == "mismatch"
    assert await outcome(which.submit(arrival(1, body=b"first"))) == "duplicate"
    assert place.bodies() == [b"first"]
    kept = place.sql("SELECT raw FROM hookonce_delivery ORDER BY id")
    assert [raw and bytes(raw) for (raw,) in kept] == [b"second", b"third", None]


async def test_a_guard_catches_a_replay_in_the_same_group(place: Place, store: Watched) -> None:
    """Two ids over the same signed bytes: one event, in one group as in two."""
    which = acceptor(store)
    told = await outcomes([which.submit(arrival(number, guard=b"g")) for number in (1, 2, 3)])
    assert sorted(told) == ["accepted", "suspect_replay", "suspect_replay"]
    assert await outcome(which.submit(arrival(4, guard=b"g"))) == "suspect_replay"
    assert place.count("receipt") == 1


async def test_an_arrival_can_be_held(place: Place, store: Watched) -> None:
    """What is put on hold waits for a person, and no worker finds it."""
    held = arrival(1)
    held.hold = "older than our memory"
    assert await outcome(acceptor(store).submit(held)) == "accepted"
    (row,) = place.sql("SELECT state, due_at > received_at FROM hookonce_receipt")
    assert (row[0], bool(row[1])) == ("waiting", True)


# failures


async def test_a_refused_row_fails_alone(place: Place, store: Watched) -> None:
    """The database refuses two of forty: those two are told, everybody else is stored."""
    which = acceptor(store)
    futures = [which.submit(arrival(number, key=b"short" if number in (7, 31) else None)) for number in range(40)]
    told = await outcomes(futures)
    # Both have the same key, so the second is looked up as a duplicate of nothing and inserted again.
    assert [number for number, one in enumerate(told) if one != "accepted"] == [7, 31]
    assert told[7] == "RowRefused"
    assert place.count("receipt") == 38


async def test_a_row_that_is_refused_alone_is_told_so(store: Watched) -> None:
    """A single refused row is RowRefused, and the next one is stored."""
    which = acceptor(store)
    with pytest.raises(RowRefused):
        await which.submit(arrival(1, key=b"short"))
    assert await outcome(which.submit(arrival(2))) == "accepted"


async def test_the_queue_is_bounded(place: Place, store: Watched) -> None:
    """One more than may wait is refused at once; the others are stored when the database goes on."""
    opened = gate(store)
    which = acceptor(store, waiting_max=5)
    futures = [which.submit(arrival(0))]
    await until(lambda: store.under_way == 1)
    futures += [which.submit(arrival(number)) for number in range(1, 6)]
    for number in (6, 7):
        with pytest.raises(Busy):
            which.submit(arrival(number))
    opened.set()
    assert await outcomes(futures) == ["accepted"] * 6
    assert place.count("receipt") == 6


async def test_nobody_waits_longer_than_the_budget(place: Place, store: Watched) -> None:
    """With a database that stands still those in the queue are told so in time, and leave nothing behind."""
    opened = gate(store)
    which = acceptor(store, budget=0.2)
    first = which.submit(arrival(0))
    await until(lambda: store.under_way == 1)
    began = time.monotonic()
    futures = [which.submit(arrival(number)) for number in range(1, 20)]
    assert await outcomes(futures) == ["Busy"] * 19
    assert 0.15 < time.monotonic() - began < 2.0
    opened.set()
    assert await outcome(first) == "accepted"
    await which.drain()
    assert place.count("receipt") == 1
    assert await outcome(which.submit(arrival(20))) == "accepted"


async def test_a_locked_table_is_answered_in_time(pg: Place) -> None:
    """PostgreSQL behind somebody's lock: unavailable within the budget, and well again afterwards."""
    store = Watched(backend_factory(pg.url)())
    which = acceptor(store, budget=0.5)
    assert await outcome(which.submit(arrival(0))) == "accepted"
    with psycopg.connect(pg.where) as blocker:
        blocker.execute("LOCK TABLE hookonce_receipt IN ACCESS EXCLUSIVE MODE")
        began = time.monotonic()
        told = await outcomes([which.submit(arrival(number)) for number in range(1, 10)])
        assert set(told) <= {"Unavailable", "Busy"}
        assert time.monotonic() - began < 3.0
    assert await outcome(which.submit(arrival(20))) == "accepted"
    await store.close()


async def test_who_leaves_changes_nothing(place: Place, store: Watched) -> None:
    """A request that is cancelled while its group is under way, or waiting for one, is stored all the same."""
    opened = gate(store)
    which = acceptor(store)
    futures = [which.submit(arrival(0))]
    await until(lambda: store.under_way == 1)
    futures += [which.submit(arrival(number)) for number in range(1, 5)]
    for gone in (futures[0], futures[2]):
        gone.cancel()
    opened.set()
    await which.drain()
    assert which.idle and place.count("receipt") == 5
    assert await outcomes([futures[1], futures[3], futures[4]]) == ["accepted"] * 3


@pytest.mark.parametrize(("committed", "told"), [(True, "duplicate"), (False, "accepted")])
async def test_an_ambiguous_commit_is_answered_truthfully(
    place: Place, store: Watched, committed: bool, told: str
) -> None:
    """The connection broke around COMMIT: the insert runs once more and finds out, and there is one receipt each."""

    async def breaks(number: int) -> None:
        if number == 1:
            raise Unavailable("the connection was cut")

    if committed:
        store.after = breaks
    else:
        store.before = breaks
    which = acceptor(store)
    assert await outcomes([which.submit(arrival(number)) for number in range(5)]) == [told] * 5
    assert place.count("receipt") == place.count("body") == 5
    assert place.count("delivery") == (5 if committed else 0)
    assert len(store.inserts) == (2 if committed else 1)


async def test_an_outage_is_told_after_two_attempts(place: Place, store: Watched) -> None:
    """Twice unavailable is an answer: nobody is told that something is stored."""

    async def breaks(_: int) -> None:
        raise Unavailable("no connection")

    store.before = breaks
    which = acceptor(store)
    assert await outcomes([which.submit(arrival(number)) for number in range(5)]) == ["Unavailable"] * 5
    assert len(store.steps) == 2
    store.before = None
    assert await outcome(which.submit(arrival(1))) == "accepted"


async def test_a_duplicate_is_answered_after_its_own_commit(place: Place, store: Watched) -> None:
    """Where the row of a duplicate cannot be written the sender is not told that we have the event."""
    which = acceptor(store)
    assert await outcome(which.submit(arrival(1))) == "accepted"

    async def breaks(number: int) -> None:
        if number == 3:
            raise Unavailable("no connection")

    store.before = breaks
    assert await outcomes([which.submit(arrival(1)), which.submit(arrival(2))]) == ["Unavailable", "accepted"]
    assert place.count("delivery") == 0


async def test_a_receipt_that_was_just_deleted_is_inserted_again(place: Place, store: Watched) -> None:
    """The row in the way is gone before it is looked up: the event is stored again, never taken for known."""
    which = acceptor(store)
    assert await outcome(which.submit(arrival(1))) == "accepted"

    def purge() -> None:
        place.sql("DELETE FROM hookonce_body")
        place.sql("DELETE FROM hookonce_receipt")

    with armed("accept.before_deliveries", purge):
        assert await outcome(which.submit(arrival(1))) == "accepted"
    assert (place.count("receipt"), place.count("body"), place.count("delivery")) == (1, 1, 0)


async def test_a_bug_in_a_group_is_an_answer(store: Watched) -> None:
    """Whatever is raised while a group is written, whoever waits is told, and the next group is written."""

    async def breaks(number: int) -> None:
        if number == 1:
            raise ZeroDivisionError

    store.before = breaks
    which = acceptor(store)
    assert await outcome(which.submit(arrival(1))) == "Unavailable"
    assert await outcome(which.submit(arrival(1))) == "accepted"


async def test_closing_answers_what_waits(place: Place) -> None:
    """Close waits for the groups: what was taken in is stored and told."""
    which = Acceptor(backend_factory(place.url)(), SystemClock())
    futures = [which.submit(arrival(number)) for number in range(20)]
    await which.close()
    assert all(future.done() for future in futures)
    assert place.count("receipt") == 20


async def test_bodies_are_written_with_their_receipts(place: Place, store: Watched) -> None:
    """The body belongs to the same transaction: a failure after the receipts leaves neither."""
    real = store.inner.run

    async def cut_short(operation: Operation[Any], **rest: Any) -> Any:
        def broken() -> Operation[Any]:
            rows = yield next(operation)
            raise RuntimeError(len(rows))

        return await real(broken(), **{**rest, "single": False})

    with pytest.raises(RuntimeError):
        await cut_short(receipts_insert([arrival(1)], now=None, bodies_apart=store.bodies_apart))
    assert (place.count("receipt"), place.count("body")) == (0, 0)


def test_foreign_text_fits_its_column() -> None:
    """Bounded, printable, no NUL, no half characters; ordinary text as it is."""
    for text in ("evt_1", "é", "", "x" * 512):
        assert readable(text) == text
    assert readable(None) is None
    for text in ("\x00", "\ud800", "a\nb", "\u2028", "\x1b[31m", "x" * 513, "\x00" * 1_000_000):
        shown = readable(text)
        assert shown is not None and shown.isprintable() and len(shown) <= 512 and shown != text
        shown.encode()
