"""Several events in one transaction: they commit together or not, and no neighbour pays for another."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from hookonce import Discard, Event
from hookonce.failpoints import armed
from tests.flow.box import Box, wrote


@contextlib.contextmanager
def commits() -> Iterator[list[int]]:
    """Count the transactions in which handlers ran to their end."""
    seen: list[int] = []
    with armed("settle.before_commit", lambda: seen.append(1), onwards=True):
        yield seen


def by_attempts(box: Box) -> list[tuple[Any, ...]]:
    return box.place.sql("SELECT event_id, state, attempts, crashes FROM hookonce_receipt ORDER BY id")


async def test_quick_events_share_a_transaction(box: Box) -> None:
    """Ten quick events behind one worker: one commit for nine of them, each applied once."""

    @box.source.on("*")
    def apply(event: Event, conn: Any) -> None:
        wrote(conn, event.id)

    names = await box.send_many(10)
    with commits() as seen:
        await box.grouped()
    assert box.place.effects() == sorted(names)
    assert len(seen) <= 3
    assert {row[1:] for row in by_attempts(box)} == {("processed", 1, 0)}


async def test_groups_can_be_switched_off(box: Box) -> None:
    """With group = 1 every event has a transaction of its own."""

    @box.source.on("*")
    def apply(event: Event, conn: Any) -> None:
        wrote(conn, event.id)

    await box.send_many(5)
    with commits() as seen:
        await box.grouped(1)
    assert len(seen) == 5


async def test_unknown_handlers_are_not_grouped(box: Box) -> None:
    """Until a handler has shown that it is quick each of its events runs alone."""

    @box.source.on("*")
    def apply(event: Event, conn: Any) -> None:
        wrote(conn, event.id)

    await box.send_many(2)
    with commits() as together:
        await box.drain(concurrency=1)
    assert len(together) == 2


async def test_one_that_fails_is_undone_alone(box: Box) -> None:
    """Its writes are gone, its attempt is counted, and the others of its group are committed in the same transaction."""
    bad = ("evt_2", "evt_4")

    @box.source.on("*", backoff=60)
    def apply(event: Event, conn: Any) -> None:
        wrote(conn, event.id)
        if event.id == "evt_2":
            raise ZeroDivisionError
        if event.id == "evt_4":
            raise Discard("not ours")

    names = await box.send_many(8)
    with commits() as seen:
        await box.grouped()
    assert box.place.effects() == sorted(set(names) - set(bad))
    assert len(seen) <= 3
    states = {row[0]: row[1:] for row in by_attempts(box)}
    assert states["evt_2"] == ("retrying", 1, 0) and states["evt_4"] == ("discarded", 1, 0)
    assert all(states[name] == ("processed", 1, 0) for name in names if name not in bad)


async def test_a_group_that_cannot_commit_runs_again_one_by_one(pg_box: Box) -> None:
    """A constraint that is checked at COMMIT undoes the group: alone, only the one to blame fails."""
    pg_box.place.sql("CREATE TABLE parent (id integer PRIMARY KEY)")
    pg_box.place.sql("CREATE TABLE child (parent integer REFERENCES parent DEFERRABLE INITIALLY DEFERRED)")

    @pg_box.source.on("*", backoff=60)
    def apply(event: Event, conn: Any) -> None:
        wrote(conn, event.id)
        if event.id == "evt_3":
            conn.execute("INSERT INTO child VALUES (7)")

    names = await pg_box.send_many(6)
    await pg_box.grouped()
    assert pg_box.place.effects() == sorted(set(names) - {"evt_3"})
    assert [row[1:] for row in by_attempts(pg_box) if row[0] == "evt_3"] == [("retrying", 1, 0)]
    assert [row[2] for row in by_attempts(pg_box)] == [1] * 6


def commit_method(conn: Any) -> None:
    conn.commit()


def rollback_method(conn: Any) -> None:
    conn.rollback()


def commit_text(conn: Any) -> None:
    conn.execute("COMMIT")


def rollback_in_many(conn: Any) -> None:
    conn.execute("/* tidy */ rollback")


def swallowed_commit(conn: Any) -> None:
    with contextlib.suppress(Exception):
        conn.execute("COMMIT")


def swallowed_error(conn: Any) -> None:
    with contextlib.suppress(Exception):
        conn.execute("INSERT INTO no_such_table VALUES (1)")


HOSTILE: dict[str, tuple[Callable[[Any], None], dict[str, str]]] = {
    # what it does -> where its event ends, for each database
    "conn.commit()": (commit_method, {"sqlite": "failed", "postgres": "failed"}),
    "conn.rollback()": (rollback_method, {"sqlite": "failed", "postgres": "failed"}),
    "COMMIT": (commit_text, {"sqlite": "failed", "postgres": "failed"}),
    "rollback": (rollback_in_many, {"sqlite": "failed", "postgres": "failed"}),
    "COMMIT, swallowed": (swallowed_commit, {"sqlite": "processed", "postgres": "processed"}),
    "error, swallowed": (swallowed_error, {"sqlite": "processed", "postgres": "retrying"}),
}


@pytest.mark.parametrize("what", HOSTILE)
async def test_a_hostile_handler_harms_no_neighbour(box: Box, what: str) -> None:
    """In the middle of a group it ends the transaction or swallows an error: exactly one effect of each neighbour."""
    act, ends = HOSTILE[what]

    @box.source.on("*", backoff=60)
    def apply(event: Event, conn: Any) -> None:
        wrote(conn, event.id)
        if event.id == "evt_3":
            act(conn)

    names = await box.send_many(6)
    await box.grouped()
    ended = {row[0]: row[1] for row in by_attempts(box)}
    end = ended.pop("evt_3")
    assert set(ended.values()) == {"processed"}
    # A COMMIT that was refused and swallowed did no harm on either database; whether that is misuse, the lane decides.
    assert end in {ends[box.dialect], *(("failed",) if "swallowed" in what else ())}
    expected = sorted(names if end == "processed" else set(names) - {"evt_3"})
    assert box.place.effects() == expected
    for _ in range(3):
        box.clock.advance(100)
        await box.grouped()
    assert [note for note in box.place.effects() if note != "evt_3"] == [n for n in sorted(names) if n != "evt_3"]


async def test_a_batch_runs_in_one_call(box: Box) -> None:
    """A handler with batch= gets many events at once, in one transaction."""
    sizes: list[int] = []

    @box.source.on("*", batch=4)
    def apply(events: list[Event], conn: Any) -> None:
        sizes.append(len(events))
        for event in events:
            wrote(conn, event.id)

    names = await box.send_many(10)
    with commits() as seen:
        await box.drain(concurrency=1)
    assert box.place.effects() == sorted(names)
    assert sorted(sizes) == [2, 4, 4] and len(seen) == 3


@pytest.mark.parametrize("poison", [1, 5, 8])
async def test_a_batch_halves_until_the_poison_is_alone(box: Box, poison: int) -> None:
    """One of eight makes the batch fail: it ends alone and counted once, the seven others are applied once."""
    calls: list[int] = []

    @box.source.on("*", batch=8, attempts=1)
    def apply(events: list[Event], conn: Any) -> None:
        calls.append(len(events))
        for event in events:
            wrote(conn, event.id)
            if event.id == f"evt_{poison}":
                raise ZeroDivisionError

    names = await box.send_many(8)
    await box.drain(concurrency=1)
    assert box.place.effects() == sorted(set(names) - {f"evt_{poison}"})
    ended = {row[0]: row[1:] for row in by_attempts(box)}
    assert ended.pop(f"evt_{poison}") == ("failed", 1, 0)
    assert set(ended.values()) == {("processed", 1, 0)}
    assert sorted(calls) == [1, 1, 2, 2, 4, 4, 8]


async def test_events_without_a_handler_go_along(box: Box) -> None:
    """Those that nobody takes are marked in the same transaction."""

    @box.source.on("known")
    def apply(event: Event, conn: Any) -> None:
        wrote(conn, event.id)

    for number in range(10):
        await box.send(f"evt_{number}", "known" if number % 2 else "unknown")
    with commits() as seen:
        await box.grouped()
    assert len(seen) <= 3
    results = box.place.sql("SELECT result, count(*) FROM hookonce_receipt GROUP BY result ORDER BY result")
    assert results == [("applied", 5), ("skipped", 5)]


async def test_groups_of_several_workers(pg_box: Box) -> None:
    """Groups and single turns on many lanes at once: one effect for each event."""

    @pg_box.source.on("*", backoff=1)
    def apply(event: Event, conn: Any) -> None:
        wrote(conn, event.id)
        if event.attempt == 1 and event.id.endswith("7"):
            raise ZeroDivisionError

    names = await pg_box.send_many(80)
    await pg_box.drain(concurrency=4)
    pg_box.clock.advance(10)
    await pg_box.drain(concurrency=4)
    assert pg_box.place.effects() == sorted(names)
    assert set(pg_box.place.states()) == {"processed"}
