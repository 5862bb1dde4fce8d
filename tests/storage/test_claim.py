"""Stages claim and settle on every database: whose turn it is, and what becomes of an attempt."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from dataclasses import replace

import psycopg
import pytest

from hookonce.flow.claim import claim_due, disown, release
from hookonce.flow.settle import settle
from hookonce.model import Outcome, Result, State
from hookonce.storage.operation import Operation, Statement
from tests.storage.world import World, arrival, writes

ALL_PLANS_BUT_LOOPS = ("hashjoin", "mergejoin", "material", "sort", "hashagg")


async def test_never_more_than_the_limit(plain: World) -> None:
    """A batch is as large as asked for, and the next one goes on where it ended."""
    await plain.accept(*(arrival(number) for number in range(7)))
    sizes = [len(await plain.claim(3)) for _ in range(4)]
    assert sizes == [3, 3, 1, 0]


async def test_oldest_first(plain: World) -> None:
    """What is due longest is claimed first, whatever its id."""
    await plain.accept(*(arrival(number) for number in range(4)))
    late = "due_at - make_interval(secs => 5 - id)" if plain.dialect == "postgres" else "due_at - (5 - id)"
    plain.sql(f"UPDATE hookonce_receipt SET due_at = {late} WHERE id <> 2")
    order = [(await plain.claim(1))[0].id for _ in range(4)]
    assert order == [1, 3, 4, 2]


async def test_nothing_before_it_is_due(plain: World) -> None:
    """A retry waits for its time."""
    claim = await plain.one_claim()
    outcome = Outcome(state=State.RETRYING, error="x", delay_seconds=3600)
    assert await plain.backend.run(settle(claim, outcome, seconds=0.1, now=None))
    assert await plain.claim() == []


async def test_a_claim_holds_a_lease(plain: World) -> None:
    """Token, claim id, attempt and lease are written before any handler runs."""
    claim = await plain.one_claim()
    assert (claim.token, claim.attempts, claim.crashes) == (1, 1, 0)
    assert plain.receipt("state, token, claim_id, attempts") == ("processing", 1, claim.claim_id, 1)
    assert plain.sql("SELECT 1 FROM hookonce_receipt WHERE lease_until > received_at AND due_at > received_at") == [
        (1,)
    ]
    assert await plain.claim() == []


async def test_claims_are_unique_among_threads(plain: World) -> None:
    """Six workers in threads claim at once: every event goes to exactly one."""
    await plain.accept(*(arrival(number) for number in range(200)))
    found: list[int] = []

    async def work() -> None:
        backend = plain.factory()
        while claims := await backend.run(claim_due(limit=7, lease_seconds=60, now=None), single=True):
            found.extend(claim.id for claim in claims)
        await backend.close()

    threads = [threading.Thread(target=lambda: asyncio.run(work())) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        await asyncio.to_thread(thread.join)
    assert sorted(found) == list(range(1, 201))


CLAIMER = """
import asyncio, sys
from hookonce.flow.claim import claim_due
from hookonce.storage.connect import backend_factory

async def main():
    backend = backend_factory(sys.argv[1])()
    print("ready", flush=True)
    sys.stdin.readline()
    while claims := await backend.run(claim_due(limit=5, lease_seconds=60, now=None), single=True):
        print(*(claim.id for claim in claims), flush=True)
    await backend.close()

asyncio.run(main())
"""


async def test_claims_are_unique_among_processes(plain: World) -> None:
    """Three processes that start at the same moment share the work without overlap."""
    await plain.accept(*(arrival(number) for number in range(100)))
    url = plain.where if plain.dialect == "postgres" else f"sqlite:///{plain.where}"
    children = [
        subprocess.Popen([sys.executable, "-c", CLAIMER, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    for child in children:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
    outputs = await asyncio.gather(*(asyncio.to_thread(child.communicate, "go\n", 60) for child in children))
    assert sorted(int(word) for out, _ in outputs for word in out.split()) == list(range(1, 101))


async def test_locked_rows_are_skipped(pg: World) -> None:
    """A row in somebody's hands is not waited for."""
    await pg.accept(arrival(1), arrival(2))
    with psycopg.connect(pg.where) as holder:
        holder.execute("SELECT 1 FROM hookonce_receipt WHERE id = 1 FOR NO KEY UPDATE")
        claims = await asyncio.wait_for(pg.claim(), 10)
    assert [claim.id for claim in claims] == [2]


async def test_a_living_holder_is_not_a_suspect(pg: World) -> None:
    """However long the lease is over: as long as the row lock is held, nobody takes the event over."""
    await pg.accept(arrival(1))
    await pg.claim(lease=-1)
    with psycopg.connect(pg.where) as holder:
        holder.execute("SELECT 1 FROM hookonce_receipt WHERE id = 1 FOR NO KEY UPDATE")
        assert await asyncio.wait_for(pg.claim_suspect(), 10) is None
    assert (await pg.claim_suspect()).claim.id == 1


async def test_the_limit_holds_under_any_plan(own_postgres: str) -> None:
    """With every join but the nested loop switched off, a claim of 5 is still a claim of 5 (F16)."""
    import asyncio as _asyncio

    from hookonce.clock import SystemClock
    from hookonce.flow.accept import Acceptor
    from hookonce.storage.postgres import PostgresBackend

    with psycopg.connect(own_postgres, autocommit=True) as conn:
        for switch in ALL_PLANS_BUT_LOOPS:
            conn.execute(f"ALTER ROLE postgres IN DATABASE {conn.info.dbname} SET enable_{switch} = off".encode())
    backend = PostgresBackend(own_postgres)
    acceptor = Acceptor(backend, SystemClock())
    await _asyncio.gather(*[acceptor.submit(arrival(number)) for number in range(60)])
    for _ in range(3):
        assert len(await backend.run(claim_due(limit=5, lease_seconds=60, now=None), single=True)) == 5
    await backend.close()


# -- crashes ----------------------------------------------------------------------------------------------------


async def test_a_dead_worker_is_counted_and_the_third_time_ends_it(plain: World) -> None:
    """Each takeover counts one crash and grows the token; at three the event fails as a crash loop."""
    await plain.accept(arrival(1))
    (first,) = await plain.claim(lease=-1)
    one = await plain.claim_suspect(lease=-1)
    assert (one.claim.crashes, one.claim.attempts, one.claim.token, one.given_up) == (1, 2, first.token + 1, False)
    two = await plain.claim_suspect(lease=-1)
    assert (two.claim.crashes, two.given_up) == (2, False)
    three = await plain.claim_suspect(lease=-1)
    assert (three.claim.crashes, three.given_up) == (3, True)
    assert plain.receipt("state, result, attempts") == ("failed", "crash_loop", 3)
    assert await plain.claim_suspect() is None


async def test_suspects_are_taken_one_at_a_time(plain: World) -> None:
    """If one of them kills the worker again, no other is blamed for it; the ordinary claim leaves them alone."""
    await plain.accept(*(arrival(number) for number in range(3)))
    await plain.claim(lease=-1)
    assert await plain.claim() == []
    taken = [(await plain.claim_suspect()).claim.id for _ in range(3)]
    assert sorted(taken) == [1, 2, 3]
    assert await plain.claim_suspect() is None


async def test_who_has_seen_a_worker_die_stays_a_suspect(plain: World) -> None:
    """An event that was taken over and is to be tried again is claimed by itself, not in the midst of others."""
    await plain.accept(arrival(1))
    await plain.claim(lease=-1)
    claim = (await plain.claim_suspect()).claim
    assert await plain.backend.run(settle(claim, Outcome(state=State.RETRYING, error="x"), seconds=0, now=None))
    assert await plain.claim() == []
    assert (await plain.claim_suspect()).claim.crashes == 1


async def test_a_lease_that_holds_is_left_alone(plain: World) -> None:
    """Before its lease is over a claim is nobody's business."""
    await plain.one_claim()
    assert await plain.claim_suspect() is None


# -- release, settle, operate -----------------------------------------------------------------------------------


async def test_release_gives_the_attempt_back(plain: World) -> None:
    """What was claimed and not begun goes back uncounted; the token stays grown."""
    await plain.accept(arrival(1), arrival(2))
    claims = await plain.claim()
    assert await plain.backend.run(release(claims, now=None), single=True) == 2
    assert plain.receipt("state, attempts, token, claim_id") == ("received", 0, 1, None)
    again = await plain.claim()
    assert [claim.token for claim in again] == [2, 2]
    assert await plain.backend.run(release(claims, now=None), single=True) == 0


async def test_a_claim_that_nobody_heard_of_is_handed_back(plain: World) -> None:
    """Known by its id alone: handed back uncounted, other claims are left alone, and asking again does nothing."""
    await plain.accept(arrival(1), arrival(2))
    unheard, other = await plain.claim(1), await plain.claim(1)
    ids = [unheard[0].claim_id]
    assert await plain.backend.run(disown(ids, now=None), single=True) == 1
    assert plain.sql("SELECT id, state, attempts, crashes, token FROM hookonce_receipt ORDER BY id") == [
        (unheard[0].id, "received", 0, 0, 1),
        (other[0].id, "processing", 1, 0, 1),
    ]
    assert await plain.backend.run(disown(ids, now=None), single=True) == 0


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        (Outcome(state=State.RETRYING, error="boom", delay_seconds=5), ("retrying", None, "boom", 1)),
        (Outcome(state=State.RETRYING, error="db", delay_seconds=5, counted=False), ("retrying", None, "db", 0)),
        (Outcome(state=State.FAILED, result=Result.GAVE_UP, error="boom"), ("failed", "gave_up", "boom", 1)),
        (Outcome(state=State.WAITING, result=Result.TOO_EARLY, delay_seconds=60), ("waiting", "too_early", None, 1)),
        (Outcome(state=State.DISCARDED, result=Result.DISCARDED), ("discarded", "discarded", None, 1)),
    ],
)
async def test_settle_writes_the_outcome_and_the_attempt(
    plain: World, outcome: Outcome, expected: tuple[object, ...]
) -> None:
    """State, result, error and whether it counts are written together with a row of the attempt."""
    claim = await plain.one_claim()
    assert await plain.backend.run(settle(claim, outcome, seconds=0.25, now=None))
    assert plain.receipt("state, result, last_error, attempts") == expected
    assert plain.receipt("claim_id, lease_until") == (None, None)
    ((attempt, seconds, state, counted),) = plain.sql("SELECT attempt, seconds, state, counted FROM hookonce_attempt")
    assert (attempt, seconds, state, bool(counted)) == (1, 0.25, outcome.state.value, outcome.counted)


async def test_settle_of_a_lost_claim_writes_nothing(plain: World) -> None:
    """Neither state nor attempt row: the event belongs to somebody else."""
    claim = await plain.one_claim()
    stale = replace(claim, token=claim.token - 1)
    assert not await plain.backend.run(settle(stale, Outcome(state=State.FAILED), seconds=0, now=None))
    assert plain.receipt("state") == ("processing",)
    assert plain.sql("SELECT * FROM hookonce_attempt") == []


def replay(receipt_id: int, from_state: str) -> Operation[bool]:
    """The statement behind `hookonce replay`."""
    rows = yield Statement("receipt_replay", {"id": receipt_id, "from_state": from_state, "now": None})
    return bool(rows)


async def test_replay_keeps_the_token(world: World) -> None:
    """The next generation starts with no attempts and the old token: no old holder can come back."""
    claim = await world.one_claim()
    await world.handle(world.turn(claim, writes("a")))
    assert await world.backend.run(replay(1, "processed"))
    assert world.receipt("state, token, generation, attempts, result") == ("received", claim.token, 1, 0, None)
    (again,) = await world.claim()
    assert (again.token, again.generation) == (claim.token + 1, 1)


async def test_replay_asks_for_the_state_that_was_seen(plain: World) -> None:
    """Replaying what changed meanwhile, what is open, or what has no body any more does nothing."""
    claim = await plain.one_claim()
    assert not await plain.backend.run(replay(1, "processing"))
    await plain.backend.run(settle(claim, Outcome(state=State.FAILED), seconds=0, now=None))
    assert not await plain.backend.run(replay(1, "processed"))
    plain.sql("DELETE FROM hookonce_body")
    assert not await plain.backend.run(replay(1, "failed"))


def discard(receipt_id: int, from_state: str) -> Operation[bool]:
    """The statement behind `hookonce discard`."""
    rows = yield Statement("receipt_discard", {"id": receipt_id, "from_state": from_state})
    return bool(rows)


async def test_discard_ends_an_event_for_good(plain: World) -> None:
    """A discarded event is never claimed; one that is being processed or done cannot be discarded."""
    await plain.accept(arrival(1), arrival(2))
    assert await plain.backend.run(discard(1, "received"))
    (claim,) = await plain.claim()
    assert claim.id == 2
    assert not await plain.backend.run(discard(2, "processing"))
    assert plain.receipt("state, result") == ("discarded", "discarded")
