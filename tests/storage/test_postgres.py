"""What only PostgreSQL can do to us: plans, isolation levels, weak commits, warnings, lost connections."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import AsyncIterator
from typing import Any

import psycopg
import pytest
from psycopg import sql

from hookonce.clock import SystemClock
from hookonce.errors import Conflict, NotDurable, Unavailable
from hookonce.failpoints import armed
from hookonce.flow.accept import Acceptor
from hookonce.flow.claim import claim_due
from hookonce.flow.handle import Limits, Turn, run_async
from hookonce.flow.settle import settle
from hookonce.model import Outcome, State, Verdict
from hookonce.storage.migrate import migrate, require_current
from hookonce.storage.operation import Operation, Rows, Statement, Value
from hookonce.storage.postgres import PostgresBackend
from hookonce.storage.statements import load
from tests.servers.postgres import PostgresServer
from tests.storage.conftest import make_world
from tests.storage.world import RUNNERS, WAIT_SECONDS, Move, Runner, World, arrival, maybe, runs, writes

PROCESSED = 20_000
ON_POSTGRES = [runner for runner in RUNNERS if runner.dialect == "postgres"]


@pytest.fixture(params=ON_POSTGRES, ids=str)
async def own(request: pytest.FixtureRequest, own_postgres: str) -> AsyncIterator[World]:
    """Every runner on PostgreSQL, in a database whose settings may be changed."""
    world = make_world(request.param, own_postgres)
    yield world
    for backend in world.backends:
        await backend.close()
    if world.engine is not None:
        await maybe(world.engine.dispose())


def setting(dsn: str, name: str, value: str) -> None:
    """Change a setting for every later connection to this database."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(
            sql.SQL("ALTER DATABASE {} SET {} = {}").format(
                sql.Identifier(conn.info.dbname), sql.Identifier(name), sql.Literal(value)
            )
        )


def test_the_claim_reads_the_due_index(own_postgres: str) -> None:
    """With 20,000 processed receipts and a few due ones the claim is an index scan that ends where "due" ends."""
    values = {"now": None, "limit": 10, "claim_id": "x", "lease_seconds": 10, "crashes_max": 3, "error": "x"}
    with psycopg.connect(own_postgres, autocommit=True) as conn:
        conn.execute(
            "INSERT INTO hookonce_receipt (key, source, body_digest, secret_id, correlation_id, address, received_at, state,"
            " due_at) SELECT sha256(n::text::bytea), 's', '', 'x', 'c', 'a', now(), CASE WHEN n % 1000 = 0 THEN 'received'"
            " WHEN n % 1500 = 0 THEN 'processing' ELSE 'processed' END, now() - make_interval(secs => n)"
            f" FROM generate_series(1, {PROCESSED}) AS n"
        )
        conn.execute("ANALYZE hookonce_receipt")
        for name in ("receipt_claim", "receipt_claim_suspect"):
            text = load("postgres", "pyformat")[name].text
            plan = "\n".join(line for (line,) in conn.execute(f"EXPLAIN {text}".encode(), values))
            assert "Index Scan using hookonce_receipt_due" in plan, plan
            assert "Seq Scan on hookonce_receipt" not in plan, plan
            assert "Index Cond: (due_at <= " in plan, plan


@pytest.mark.parametrize("name", ["work_lock", "work_mark", "receipt_release", "receipt_settle"])
def test_rows_are_found_by_id_whatever_the_statistics_say(own_postgres: str, name: str) -> None:
    """Analyzed when nothing was due, a queue of many is not read for the few rows that a worker has in hand."""
    values = {
        "id": 5,
        "token": 1,
        "claim_id": "x",
        "xid": "1",
        "now": None,
        "limit_ms": "1",
        "idle_ms": "1",
        "state": "retrying",
        "result": None,
        "error": None,
        "delay_seconds": 1.0,
        "counted": 1,
    }
    rows = (
        "INSERT INTO hookonce_receipt (key, source, body_digest, secret_id, correlation_id, address, received_at, state,"
        " due_at) SELECT sha256((n || '{0}')::bytea), 's', '', 'x', 'c', 'a', now(), '{0}', now()"
        " FROM generate_series(1, {1}) AS n"
    )
    with psycopg.connect(own_postgres, autocommit=True) as conn:
        conn.execute("ALTER TABLE hookonce_receipt SET (autovacuum_enabled = off)")
        conn.execute(rows.format("processed", PROCESSED).encode())
        conn.execute("ANALYZE hookonce_receipt")
        conn.execute(rows.format("received", 1_000).encode())
        block = load("postgres", "pyformat")[name]
        many = {column: [values[column]] for column, _ in block.columns}
        plan = "\n".join(line for (line,) in conn.execute(f"EXPLAIN {block.text}".encode(), {**values, **many}))
    assert "hookonce_receipt_pkey" in plan, plan
    assert "hookonce_receipt_due" not in plan, plan


async def test_the_suite_of_steps_under_serializable(own: World) -> None:
    """With SERIALIZABLE as the database's default, four receivers and four workers at once still do their work."""
    setting(own.where, "default_transaction_isolation", "serializable")
    acceptors = [Acceptor(own.another(), SystemClock()) for _ in range(4)]
    futures = [acceptor.submit(arrival(n)) for acceptor in acceptors for n in range(60)]
    stored = await asyncio.gather(*futures)
    assert sum(one.verdict is Verdict.ACCEPTED for one in stored) == 60
    found: list[int] = []

    async def work(backend: PostgresBackend) -> None:
        while claims := await backend.run(claim_due(limit=4, lease_seconds=60, now=None), single=True):
            for claim in claims:
                found.append(claim.id)
                outcome = Outcome(state=State.RETRYING, error="later", delay_seconds=3600)
                assert await backend.run(settle(claim, outcome, seconds=0, now=None))

    await asyncio.gather(*(work(backend) for backend in own.backends))  # type: ignore[arg-type]
    assert [(number,) for number in sorted(found)] == own.sql("SELECT id FROM hookonce_receipt ORDER BY id")
    await own.accept(arrival(1000))
    (claim,) = await own.claim()
    await own.handle(own.turn(claim, writes("a")))
    assert own.effects() == ["a"]


LEVEL = """
CREATE TABLE seen (what text, level text);
CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN INSERT INTO seen VALUES (TG_TABLE_NAME, current_setting('synchronous_commit')); RETURN NULL; END $$;
CREATE CONSTRAINT TRIGGER note AFTER INSERT OR UPDATE ON hookonce_receipt DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION note();
CREATE CONSTRAINT TRIGGER note AFTER INSERT ON hookonce_delivery DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION note();
CREATE CONSTRAINT TRIGGER note AFTER INSERT ON effect DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION note();
"""


@pytest.mark.parametrize(("weak", "strong"), [("off", "on"), ("local", "on"), ("remote_apply", "remote_apply")])
async def test_a_weak_setting_does_not_weaken_a_promise(own: World, weak: str, strong: str) -> None:
    """Whatever the role has for synchronous_commit: accept, duplicate and T2 commit with at least "on"."""
    with psycopg.connect(own.where, autocommit=True) as conn:
        conn.execute(LEVEL)
    setting(own.where, "synchronous_commit", weak)
    await own.accept(arrival(1))
    await own.accept(arrival(1))
    assert own.sql("SELECT DISTINCT what, level FROM seen ORDER BY 1") == [
        ("hookonce_delivery", strong),
        ("hookonce_receipt", strong),
    ]
    (claim,) = await own.claim()
    own.sql("TRUNCATE seen")
    await own.handle(own.turn(claim, writes("a")))
    assert own.sql("SELECT DISTINCT what, level FROM seen ORDER BY 1") == [
        ("effect", strong),
        ("hookonce_receipt", strong),
    ]


WARN = """
CREATE FUNCTION warn() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN RAISE WARNING 'canceling wait for synchronous replication due to user request'; RETURN NULL; END $$;
CREATE CONSTRAINT TRIGGER warn AFTER INSERT ON {table} DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION warn();
"""


async def test_a_warning_at_commit_is_no_promise(own: World) -> None:
    """The server says COMMIT and warns that the standby may not have it: the arrival is not acknowledged."""
    with psycopg.connect(own.where, autocommit=True) as conn:
        conn.execute(WARN.format(table="hookonce_receipt").encode())
    with pytest.raises(NotDurable, match="canceling wait"):
        await own.accept(arrival(1))
    assert (await own.accept(arrival(1)))[0].verdict is Verdict.DUPLICATE  # sent again, and durable by now


async def test_a_warning_at_the_commit_of_a_handler_is_told(own: World) -> None:
    """T2 as well: whoever asks hears NotDurable, not "applied"."""
    with psycopg.connect(own.where, autocommit=True) as conn:
        conn.execute(WARN.format(table="effect").encode())
    claim = await own.one_claim()
    with pytest.raises(NotDurable, match="canceling wait"):
        await own.handle(own.turn(claim, writes("a")))


async def test_a_commit_that_was_a_rollback_is_told(server: World) -> None:
    """A transaction that failed unseen ends with COMMIT and without an error, and is rolled back: not "applied"."""
    claim = await server.one_claim()
    lane = await server.lane()
    with armed("settle.before_commit", lambda: lane._conn.pgconn.exec_(b"SELECT 1 / 0")), pytest.raises(NotDurable):
        await server.handle(server.turn(claim, writes("a")), lane=lane)
    await lane.close()
    assert (server.effects(), server.states()) == ([], ["processing"])


async def test_a_server_that_goes_away_is_unavailable(server: World) -> None:
    """A connection that was cut is an outage, not a bug; the next step opens a new one."""
    await server.accept(arrival(1))
    server.sql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'hookonce'"
        " AND datname = current_database()"
    )
    try:
        await server.backend.run(claim_due(limit=1, lease_seconds=10, now=None), single=True)
    except Unavailable:
        await server.backend.run(claim_due(limit=1, lease_seconds=10, now=None), single=True)
    assert server.states() == ["processing"]


async def test_a_lane_survives_the_loss_of_its_connection(pg: World) -> None:
    """The server ends the connection between two events: the second is worked on a new one, at the latest when retried."""
    await pg.accept(arrival(1), arrival(2))
    first, second = await pg.claim()
    slot = await pg.slot()
    await slot.run([pg.turn(first, writes("1"))], Limits(seconds=10))
    pg.sql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
        " AND pid <> pg_backend_pid()"
    )
    for _ in range(3):
        try:
            await slot.run([pg.turn(second, writes("2"))], Limits(seconds=10))
            break
        except Unavailable:
            continue
    await slot.close()
    assert pg.effects() == ["1", "2"]


async def test_a_read_only_server_is_unavailable(own_postgres: str) -> None:
    """After a failover the old primary may answer read-only: the sender is asked to come again."""
    setting(own_postgres, "default_transaction_read_only", "on")
    backend = PostgresBackend(own_postgres)
    with pytest.raises(Unavailable):
        await Acceptor(backend, SystemClock()).submit(arrival(1))
    await backend.close()


async def test_nothing_of_a_session_is_left(server: World) -> None:
    """No advisory lock, no listening channel, no temporary table: what a pooler could not keep apart."""
    claim = await server.one_claim()
    await server.handle(server.turn(claim, writes("a")))
    assert server.sql("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'") == [(0,)]
    session = await server.backend._take()  # type: ignore[attr-defined]
    assert await session.query("SELECT count(*) FROM pg_listening_channels()") == [("0",)]
    await server.backend._give_back(session)  # type: ignore[attr-defined]


async def test_a_conflict_between_handlers_is_a_conflict(pg: World) -> None:
    """Two handlers that lock the same rows in opposite order: one gets through, the other is told to try again."""
    pg.sql("INSERT INTO effect VALUES ('x'), ('y')")
    await pg.accept(arrival(1), arrival(2))
    first, second = await pg.claim()
    slots = [await pg.slot(), await pg.slot()]
    text = "UPDATE effect SET note = note WHERE note = '{}'"
    both: Any = asyncio.Barrier(2) if pg.runner.colour == "async" else threading.Barrier(2)
    met = Move(lambda _: both.wait())
    turns = [
        pg.turn(first, runs(text.format("x")), met, runs(text.format("y"))),
        pg.turn(second, runs(text.format("y")), met, runs(text.format("x"))),
    ]
    done = await asyncio.gather(
        *(slot.run([turn], Limits(seconds=20)) for slot, turn in zip(slots, turns, strict=True)), return_exceptions=True
    )
    for slot in slots:
        await slot.close()
    assert [type(one) for one in done if isinstance(one, BaseException)] == [Conflict]
    assert sorted(pg.states()) == ["processed", "processing"]


async def test_the_pooler_is_not_seen_where_there_is_none(server: World) -> None:
    """A direct connection is recognised as one, and uses prepared statements."""
    assert (await server.backend.facts())["pooler"] == "no"


async def test_lookups_run(server: World) -> None:
    """Every read-only statement of the command line is valid SQL on this server."""
    await server.accept(arrival(1))

    def ask(name: str) -> Operation[Rows]:
        wanted = load("postgres", "numeric_dollar")[name].placeholders
        values: dict[str, Value] = {**dict.fromkeys(wanted), "limit": 5, "id": 1}
        return (yield Statement(name, {key: values[key] for key in wanted}))

    for name in ("state_counts", "duplicate_counts", "oldest_open", "receipt_list", "receipt_show"):
        assert await server.backend.read(ask(name)) is not None


def test_runner_list_is_complete() -> None:
    """Whoever adds a runner adds it to the list that every test walks through."""
    assert len(RUNNERS) == 10
    assert all(isinstance(runner, Runner) for runner in RUNNERS)


async def test_another_server_takes_over(postgres: PostgresServer, server: World) -> None:
    """The server restarts under us: what was accepted is there, and the same backend goes on."""
    await server.accept(arrival(1))
    postgres.stop_immediate()
    with pytest.raises(Unavailable):
        await server.backend.run(claim_due(limit=1, lease_seconds=10, now=None), single=True)
    postgres.start()
    (claim,) = await server.claim()
    lane = await server.backend.async_lane()
    await run_async([Turn(claim, None)], lane, Limits(seconds=10))
    await lane.close()
    assert server.states() == ["processed"]


async def test_a_statement_that_is_cancelled_is_an_outage(own_postgres: str) -> None:
    """A role's statement_timeout, or an administrator: our own step is tried again, no handler is blamed."""
    setting(own_postgres, "statement_timeout", "100ms")
    backend = PostgresBackend(own_postgres)
    with psycopg.connect(own_postgres) as holder:
        holder.execute("LOCK TABLE hookonce_receipt IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(Unavailable, match="statement timeout"):
            await backend.run(claim_due(limit=1, lease_seconds=10, now=None), single=True)
    assert await backend.run(claim_due(limit=1, lease_seconds=10, now=None), single=True) == []
    await backend.close()


async def test_a_step_that_stands_still_lets_go_of_its_rows(server: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that is stopped between two statements of ours keeps a row for IDLE_SECONDS, not for ever (F24)."""
    monkeypatch.setattr("hookonce.storage.postgres.IDLE_SECONDS", 0.1)
    await server.accept(arrival(1))

    def stands_still() -> Operation[None]:
        yield Statement("receipt_replay", {"id": 1, "from_state": "received", "now": None})
        yield Statement("receipt_discard", {"id": 1, "from_state": "received"})  # takes the row
        deadline = time.monotonic() + WAIT_SECONDS
        while server.sql("SELECT count(*) FROM pg_stat_activity WHERE state = 'idle in transaction'") != [(0,)]:
            assert time.monotonic() < deadline, "the server waits for ever"
            threading.Event().wait(0.01)
        yield Statement("migration_last")

    with pytest.raises(Unavailable):
        await server.backend.run(stands_still())
    assert server.states() == ["received"]
    assert len(await server.claim()) == 1


@pytest.mark.parametrize("colour", ["sync", "async"])
async def test_the_server_itself_looks_after_lanes(own_postgres: str, colour: str) -> None:
    """A worker that lost the network in its transaction: the server finds out in seconds, whatever was on its way (F24)."""
    backend = PostgresBackend(own_postgres)
    lane: Any = backend.lane() if colour == "sync" else await backend.async_lane()
    await maybe(lane.begin())
    names = ("tcp_keepalives_idle", "tcp_keepalives_interval", "tcp_keepalives_count", "tcp_user_timeout")
    text = f"SELECT {', '.join(f'current_setting({name!r})' for name in names)}"
    row = await maybe((await maybe(lane.given("conn").execute(text))).fetchone())
    assert row == ("5", "2", "3", "8000")
    await maybe(lane.rollback())
    await maybe(lane.close())
    await backend.close()


async def test_an_interrupted_step_leaves_no_open_transaction(server: World) -> None:
    """Cancelled at any of its statements, a step takes its connection with it: the next one gets a clean one (F07)."""
    await server.accept(arrival(1))

    def two_steps() -> Operation[None]:
        yield Statement("receipt_discard", {"id": 1, "from_state": "received"})
        yield Statement("receipt_attempts", {"id": 1, "limit": 1})

    for turns in range(8):
        task = asyncio.ensure_future(server.backend.run(two_steps()))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait({task})
        if not task.cancelled():
            break
        assert server.states() == ["received"]
    for _ in range(4):
        session = await server.backend._take()  # type: ignore[attr-defined]
        assert session.usable
        assert await session.query("SELECT pg_current_xact_id_if_assigned() IS NULL") == [("t",)]
        await server.backend._give_back(session)  # type: ignore[attr-defined]


async def test_of_several_hosts_the_one_that_writes_is_taken(own_postgres: str) -> None:
    """An address with several hosts, as clusters have it: the first does not answer, the second takes the event (F44)."""
    info = psycopg.conninfo.conninfo_to_dict(own_postgres)
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # and does not listen
        hosts = {"host": f"127.0.0.1,{info['host']}", "port": f"{nobody.getsockname()[1]},{info['port']}"}
        several = psycopg.conninfo.make_conninfo(own_postgres, **hosts, target_session_attrs="read-write")
        backend = PostgresBackend(several)
        stored = await Acceptor(backend, SystemClock()).submit(arrival(1))
        lane = backend.lane()
        lane.begin()
        lane.rollback()
        lane.close()
        await backend.close()
    assert stored.verdict is Verdict.ACCEPTED


async def test_starting_writes_nothing(own_postgres: str) -> None:
    """On a current schema a start only looks: no DDL that would queue behind a long reader and stop everybody (F46)."""
    setting(own_postgres, "default_transaction_read_only", "on")
    backend = PostgresBackend(own_postgres)
    with psycopg.connect(own_postgres) as reader:
        reader.execute("SELECT count(*) FROM hookonce_receipt")  # and stays in its transaction
        assert await migrate(backend) == []
        await require_current(backend)
    await backend.close()
