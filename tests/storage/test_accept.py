"""Stage accept on every database: new, known, suspect and refused arrivals, in groups and at once."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import psycopg
import pytest

from hookonce.clock import SystemClock
from hookonce.errors import Conflict, RowRefused, StorageError, Unavailable
from hookonce.flow.accept import Acceptor, deliveries_insert, receipts_insert
from hookonce.flow.handle import Limits, Turn, run_async
from hookonce.model import Verdict
from hookonce.registry import Handler
from hookonce.storage.operation import Many, Operation, Rows, Step
from hookonce.storage.sqlite import WriterTurn
from tests.storage.world import World, arrival

REPOSITORY = Path(__file__).parents[2]
T = TypeVar("T")


async def test_new_arrivals_are_kept_whole(world: World) -> None:
    """Receipt and body are there, byte for byte, under one id."""
    (stored,) = await world.accept(arrival(1, body=b"\x00\xff{}"))
    assert stored.verdict is Verdict.ACCEPTED
    rows = world.sql(
        "SELECT r.id, r.state, r.event_id, b.raw, b.headers FROM hookonce_receipt r"
        " JOIN hookonce_body b ON b.receipt_id = r.id"
    )
    assert [tuple(bytes(v) if isinstance(v, memoryview) else v for v in row) for row in rows] == [
        (stored.receipt_id, "received", "evt_1", b"\x00\xff{}", b"x: y")
    ]


async def test_a_second_arrival_is_a_duplicate(world: World) -> None:
    """The same key and body again: the same receipt, and a delivery row."""
    (first,) = await world.accept(arrival(1))
    (second,) = await world.accept(arrival(1))
    assert (second.verdict, second.receipt_id) == (Verdict.DUPLICATE, first.receipt_id)
    assert first.since is None
    assert abs((second.since or 0.0) - time.time()) < 60.0
    assert world.sql("SELECT receipt_id, verdict, raw FROM hookonce_delivery") == [
        (first.receipt_id, "duplicate", None)
    ]


async def test_another_body_under_a_known_id_is_a_mismatch(plain: World) -> None:
    """The first body wins; the other is kept as evidence."""
    await plain.accept(arrival(1))
    (second,) = await plain.accept(arrival(1, body=b"other"))
    assert second.verdict is Verdict.MISMATCH
    ((raw,),) = plain.sql("SELECT raw FROM hookonce_delivery")
    assert bytes(raw) == b"other"
    ((raw,),) = plain.sql("SELECT raw FROM hookonce_body")
    assert bytes(raw) == b"{}"


async def test_a_known_signed_body_under_another_id_is_suspect(plain: World) -> None:
    """The guard finds a replay whose id was changed: no second receipt."""
    (first,) = await plain.accept(arrival(1, guard=b"signature"))
    (second,) = await plain.accept(arrival(2, guard=b"signature"))
    assert (second.verdict, second.receipt_id) == (Verdict.SUSPECT_REPLAY, first.receipt_id)
    assert len(plain.states()) == 1


async def test_duplicates_within_a_group(plain: World) -> None:
    """Of equal arrivals in one commit exactly one is new, and all of them name its receipt."""
    stored = await plain.accept(*[arrival(1) for _ in range(5)], arrival(2), arrival(1, body=b"other"))
    assert [one.verdict for one in stored] == [
        Verdict.ACCEPTED,
        *[Verdict.DUPLICATE] * 4,
        Verdict.ACCEPTED,
        Verdict.MISMATCH,
    ]
    assert len({one.receipt_id for one in stored}) == 2


async def test_keys_travel_in_order(plain: World) -> None:
    """Rows are inserted sorted by key, so that two receivers never wait for each other in a ring."""
    seen: list[Step] = []
    acceptor = Acceptor(Spy(plain, seen), SystemClock())  # type: ignore[arg-type]
    futures = [acceptor.submit(arrival(number)) for number in range(50)]
    await asyncio.gather(*futures)
    for step in seen:
        if isinstance(step, Many) and step.name == "receipt_insert":
            keys = [row[0] for row in step.rows]
            assert keys == sorted(keys)  # type: ignore[type-var]
    assert sum(len(step.rows) for step in seen if isinstance(step, Many) and step.name == "receipt_insert") == 50


class Spy:
    """A backend that writes down the steps."""

    def __init__(self, world: World, seen: list[Step]) -> None:
        self._backend = world.backend
        self._seen = seen
        self.bodies_apart = self._backend.bodies_apart
        self.groups_max = self._backend.groups_max

    async def run(self, operation: Operation[T], **how: Any) -> T:
        return await self._backend.run(_noting(operation, self._seen), **how)


def _noting(operation: Operation[T], seen: list[Step]) -> Generator[Step, Rows, T]:
    try:
        step = next(operation)
        while True:
            seen.append(step)
            step = operation.send((yield step))
    except StopIteration as end:
        result: T = end.value
        return result


async def test_a_refused_row_fails_alone(plain: World) -> None:
    """One arrival that the database refuses is answered so; its neighbours are accepted."""
    acceptor = Acceptor(plain.backend, SystemClock())
    arrivals = [arrival(number) for number in range(9)]
    arrivals[4] = arrival(4, key=b"too short")
    futures = [acceptor.submit(one) for one in arrivals]
    answers = await asyncio.gather(*futures, return_exceptions=True)
    assert isinstance(answers[4], RowRefused)
    assert [one.verdict for one in answers if not isinstance(one, BaseException)] == [Verdict.ACCEPTED] * 8
    assert len(plain.states()) == 8


async def test_many_receivers_at_once_accept_each_event_once(plain: World) -> None:
    """Four receivers get the same hundred events in different orders: each event is new exactly once."""
    acceptors = [Acceptor(plain.another(), SystemClock()) for _ in range(4)]
    futures = []
    for turn, acceptor in enumerate(acceptors):
        for number in range(100):
            futures.append(acceptor.submit(arrival((number * (2 * turn + 1) + 25 * turn) % 100)))
    stored = await asyncio.gather(*futures)
    assert sum(one.verdict is Verdict.ACCEPTED for one in stored) == 100
    assert sum(one.verdict is Verdict.DUPLICATE for one in stored) == 300
    assert len(plain.states()) == 100


ACCEPTERS = """
import asyncio, sys
from hookonce.clock import SystemClock
from hookonce.flow.accept import Acceptor
from hookonce.storage.connect import backend_factory
from tests.storage.world import arrival

async def main():
    acceptors = [Acceptor(backend_factory(sys.argv[1])(), SystemClock()) for _ in range(2)]
    print("ready", flush=True)
    sys.stdin.readline()
    told = await asyncio.gather(*(acceptor.submit(arrival(1)) for _ in range(25) for acceptor in acceptors))
    print(*(one.verdict.value for one in told))
    for acceptor in acceptors:
        await acceptor.close()

asyncio.run(main())
"""


async def test_one_event_through_many_processes(plain: World) -> None:
    """Four processes, 50 copies each, started at the same moment: accepted once, everybody else a duplicate, no error."""
    url = plain.where if plain.dialect == "postgres" else f"sqlite:///{plain.where}"
    children = [
        subprocess.Popen(
            [sys.executable, "-c", ACCEPTERS, url],
            cwd=REPOSITORY,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(4)
    ]
    for child in children:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
    outputs = await asyncio.gather(*(asyncio.to_thread(child.communicate, "go\n", 60) for child in children))
    assert [child.returncode for child in children] == [0] * 4
    assert sorted(word for out, _ in outputs for word in out.split()) == ["accepted", *["duplicate"] * 199]
    assert plain.sql("SELECT count(*), (SELECT count(*) FROM hookonce_delivery) FROM hookonce_receipt") == [(1, 199)]


async def test_a_duplicate_does_not_wait_for_the_handler(server: World) -> None:
    """A row that a worker holds is answered at once; on SQLite, with one writer, the handler's time is bounded instead."""
    claim = await server.one_claim()
    entered, leave = asyncio.Event(), asyncio.Event()
    lane = await server.backend.async_lane()

    async def function(event: object) -> None:
        entered.set()
        await leave.wait()

    handler = Handler(function=function, source="test", pattern="*")
    running = asyncio.ensure_future(run_async([Turn(claim, handler)], lane, Limits(seconds=20)))
    await asyncio.wait_for(entered.wait(), 10)
    (stored,) = await asyncio.wait_for(server.accept(arrival(1)), 5)
    leave.set()
    await running
    await lane.close()
    assert stored.verdict is Verdict.DUPLICATE


async def test_a_receipt_that_vanished_is_inserted_again(plain: World) -> None:
    """Retention deleted the row between insert and look-up: the arrival is neither "duplicate" nor lost, but new."""

    class Deleting(Spy):
        """Deletes the receipt after the insert found it and before it is looked up."""

        async def run(self, operation: Operation[T], **how: Any) -> T:
            if operation.__name__ == deliveries_insert.__name__ and not self._seen:  # type: ignore[attr-defined]
                self._seen.append(Many("deleted", ()))
                plain.sql("DELETE FROM hookonce_receipt")
            return await self._backend.run(operation, **how)

    await plain.accept(arrival(1))
    stored = await Acceptor(Deleting(plain, []), SystemClock()).submit(arrival(1))  # type: ignore[arg-type]
    assert stored.verdict is Verdict.ACCEPTED
    assert plain.sql("SELECT id FROM hookonce_receipt") == [(stored.receipt_id,)]


async def test_a_conflict_is_tried_again() -> None:
    """Deadlocks and serialization failures are nobody's fault: the group is sent again until it gets through."""

    class Colliding:
        """Fails with a conflict four times before each answer."""

        bodies_apart, groups_max, runs = False, 1, 0

        async def run(self, operation: Operation[Any], **_: Any) -> Any:
            self.runs += 1
            if self.runs % 5:
                raise Conflict("40001")
            step = next(operation)
            assert isinstance(step, Many)
            with pytest.raises(StopIteration) as end:
                operation.send([(1, step.rows[0][0])] if step.name == "receipt_insert" else [])
            return end.value.value

        async def close(self) -> None:
            """Nothing to close."""

    stored = await Acceptor(Colliding(), SystemClock()).submit(arrival(1))
    assert stored.verdict is Verdict.ACCEPTED


async def test_an_ambiguous_end_is_answered_truthfully(plain: World) -> None:
    """The connection broke after COMMIT: the same insert once more finds the row, and says duplicate, never new twice."""

    class Cut(Spy):
        """Commits, and reports the first time that it does not know."""

        async def run(self, operation: Operation[T], **how: Any) -> T:
            result = await self._backend.run(operation, **how)
            if not self._seen:
                self._seen.append(Many("cut", ()))
                raise Unavailable("connection lost")
            return result

    stored = await Acceptor(Cut(plain, []), SystemClock()).submit(arrival(1))  # type: ignore[arg-type]
    assert stored.receipt_id == 1
    assert plain.states() == ["received"]


async def test_an_operation_that_fails_leaves_nothing(plain: World) -> None:
    """An error between the steps of an operation undoes its first step."""

    def broken() -> Operation[None]:
        yield from receipts_insert([arrival(1)], now=None, bodies_apart=plain.backend.bodies_apart)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await plain.backend.run(broken())
    assert plain.states() == []
    assert (await plain.accept(arrival(1)))[0].verdict is Verdict.ACCEPTED


async def test_no_answer_within_the_budget_is_an_error(plain: World) -> None:
    """A database that does not answer is a storage error within the time given, and leaves nothing behind."""
    in_the_way = _locked_table(plain.where) if plain.dialect == "postgres" else WriterTurn.of(Path(plain.where))()
    operation = receipts_insert([arrival(1)], now=None, bodies_apart=plain.backend.bodies_apart)
    with in_the_way, pytest.raises(StorageError):
        await asyncio.wait_for(plain.backend.run(operation, within=0.2, urgent=True, single=True), 3)
    assert (await plain.accept(arrival(1)))[0].verdict is Verdict.ACCEPTED


@contextmanager
def _locked_table(where: str) -> Iterator[None]:
    with psycopg.connect(where) as conn:
        conn.execute("LOCK TABLE hookonce_receipt")
        yield
