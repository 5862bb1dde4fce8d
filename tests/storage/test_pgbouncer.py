"""Behind PgBouncer in transaction mode, in the old version that knows nothing of prepared statements."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from hookonce.clock import SystemClock
from hookonce.flow.accept import Acceptor
from hookonce.flow.claim import claim_due, claim_suspect, release
from hookonce.flow.settle import settle
from hookonce.model import Outcome, State, Verdict
from hookonce.storage.connect import backend_factory
from hookonce.storage.migrate import require_current
from hookonce.storage.postgres import PostgresBackend
from tests.servers.pgbouncer import PgBouncer
from tests.servers.postgres import PostgresServer
from tests.storage.world import Runner, World, arrival, writes

EVENTS = 120


@pytest.fixture(scope="module")
def bouncer(postgres: PostgresServer) -> Iterator[PgBouncer]:
    """A pooler with four connections to the server."""
    with PgBouncer(postgres, server_connections=4) as pooler:
        yield pooler


@pytest.fixture
def behind(bouncer: PgBouncer, own_postgres: str) -> str:
    """Address of a migrated database through the pooler."""
    return bouncer.dsn(own_postgres.rpartition("/")[2])


async def test_the_pooler_is_recognised(behind: str) -> None:
    """Without being told: the process id that the pooler hands out is not the server's."""
    backend = PostgresBackend(behind)
    assert (await backend.facts())["pooler"] == "yes"
    await require_current(backend)
    await backend.close()


async def test_the_whole_flow_through_the_pooler(behind: str, own_postgres: str) -> None:
    """Three receivers and six workers over four connections: every event once, no error, nothing left behind."""
    backends = [PostgresBackend(behind) for _ in range(3)]
    acceptors = [Acceptor(backend, SystemClock()) for backend in backends]
    stored = await asyncio.gather(*[a.submit(arrival(n)) for a in acceptors for n in range(EVENTS)])
    assert sum(one.verdict is Verdict.ACCEPTED for one in stored) == EVENTS

    async def work(number: int) -> None:
        world = World(Runner("pooled", "postgres", colour="async" if number % 2 else "sync"), behind, lambda: backend)
        backend = PostgresBackend(behind)
        slot = await world.slot()
        from hookonce.flow.handle import Limits

        while claims := await backend.run(claim_due(limit=5, lease_seconds=60, now=None), single=True):
            *worked, last = claims
            for claim in worked:
                await slot.run([world.turn(claim, writes(f"{claim.id}"))], Limits(seconds=20))
            if last.attempts == 1 and last.id % 2:
                outcome = Outcome(state=State.RETRYING, error="once more", delay_seconds=0)
                assert await backend.run(settle(last, outcome, seconds=0, now=None))
            elif last.token < 4 and last.attempts == 1:
                assert await backend.run(release([last], now=None), single=True) == 1
            else:
                await slot.run([world.turn(last, writes(f"{last.id}"))], Limits(seconds=20))
        assert await backend.run(claim_suspect(lease_seconds=1, crashes_max=3, now=None), single=True) is None
        await slot.close()
        await backend.close()

    await asyncio.gather(*(work(number) for number in range(6)))
    for backend in backends:
        await backend.close()
    direct = World(Runner("direct", "postgres"), own_postgres, lambda: PostgresBackend(own_postgres))
    assert direct.states() == ["processed"] * EVENTS
    assert len(direct.effects()) == EVENTS
    assert direct.sql("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'") == [(0,)]
    assert direct.sql("SELECT count(*) FROM pg_prepared_statements") == [(0,)]


@pytest.mark.parametrize("driver", ["psycopg", "psycopg-async", "asyncpg"])
async def test_session_lanes_through_the_pooler(behind: str, own_postgres: str, driver: str) -> None:
    """An application that has told its own engine of the pooler gets its handlers through it as well."""
    url = behind.replace("postgresql", f"postgresql+{driver.partition('-')[0]}", 1)
    engine: object
    if driver == "psycopg":
        engine, colour = create_engine(url, poolclass=NullPool, connect_args={"prepare_threshold": None}), "sync"
    elif driver == "psycopg-async":
        engine, colour = create_async_engine(url, poolclass=NullPool, connect_args={"prepare_threshold": None}), "async"
    else:
        arguments = {"statement_cache_size": 0, "prepared_statement_name_func": lambda: ""}
        engine = create_async_engine(
            f"{url}?prepared_statement_cache_size=0", poolclass=NullPool, connect_args=arguments
        )
        colour = "async"
    runner = Runner(driver, "postgres", "sqlalchemy", colour)  # type: ignore[arg-type]
    world = World(runner, own_postgres, backend_factory(engine), engine)
    for number in range(5):
        await world.accept(arrival(number))
        (claim,) = await world.claim()
        await world.handle(world.turn(claim, writes(f"{number}")))
    assert world.effects() == ["0", "1", "2", "3", "4"]
    await world.backend.close()
