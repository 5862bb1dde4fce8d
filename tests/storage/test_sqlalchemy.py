"""Handlers on the application's own SQLAlchemy: what may be given, what they may do, what the application keeps."""

from __future__ import annotations

import contextlib
import logging
import sqlite3
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, event, select, text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, scoped_session, sessionmaker
from sqlalchemy.pool import NullPool

from hookonce.errors import ConfigurationError, HandlerError, HandlerMisuse, Unavailable
from hookonce.flow.handle import Limits, Turn, run_async, run_sync
from hookonce.storage.connect import backend_factory
from hookonce.storage.sqlalchemy import AsyncSessionLane, SessionLane, configure_sqlite
from hookonce.storage.sqlite import WriterTurn
from tests.storage.world import SWALLOWED, Hand, Move, Runner, World, arrival, calls, in_thread, runs, writes


class Base(DeclarativeBase):
    """The application's models."""


class Effect(Base):
    """What a handler writes."""

    __tablename__ = "effect"

    note: Mapped[str] = mapped_column(primary_key=True)


def adds(note: str) -> Move:
    """The handler adds an object and does not flush."""
    return Move(lambda hand: hand.session.add(Effect(note=note)))


def flushes(note: str) -> Move:
    """The handler adds an object and flushes."""

    def act(hand: Hand) -> Any:
        hand.session.add(Effect(note=note))
        return hand.session.flush()

    return Move(act)


@pytest.fixture
def engine(fresh_sqlite: Path) -> Iterator[Engine]:
    """The application's engine on a SQLite file."""
    made = create_engine(f"sqlite:///{fresh_sqlite}")
    yield made
    made.dispose()


def on(engine: Engine, given: Any = None) -> World:
    """A world on this engine, or on what was made of it."""
    runner = Runner("sqlalchemy-sqlite", "sqlite", "sqlalchemy")
    return World(runner, engine.url.database or "", backend_factory(given or engine), engine)


# -- what may be given ------------------------------------------------------------------------------------------


async def test_everything_that_makes_sessions_is_taken(fresh_sqlite: Path) -> None:
    """Engine, sessionmaker and scoped_session give blocking lanes, their asynchronous kin lanes on the loop."""
    engine = create_engine(f"sqlite:///{fresh_sqlite}")
    asynchronous = create_async_engine(f"sqlite+aiosqlite:///{fresh_sqlite}")
    for given in (engine, sessionmaker(engine), scoped_session(sessionmaker(engine))):
        backend = backend_factory(given)()
        assert backend.hands.gives == {"session", "conn"}
        assert backend.hands.colours == {"sync"}
        assert isinstance(backend.lane(), SessionLane)
        with pytest.raises(ConfigurationError) as caught:
            await backend.async_lane()
        assert caught.value.code == "HO109"
    for other in (asynchronous, async_sessionmaker(asynchronous)):
        backend = backend_factory(other)()
        assert backend.hands.colours == {"sync", "async"}
        assert isinstance(await backend.async_lane(), AsyncSessionLane)
    engine.dispose()
    await asynchronous.dispose()


def test_what_cannot_work_is_refused_at_start(fresh_sqlite: Path, tmp_path: Path) -> None:
    """A database in memory, a sessionmaker without an engine, a folder that is not there, a single connection."""
    engine = create_engine(f"sqlite:///{fresh_sqlite}")
    connection = engine.connect()
    for given in (
        create_engine("sqlite://"),
        create_engine("sqlite:///file:x?mode=memory&uri=true", poolclass=NullPool),
        create_engine(f"sqlite:///{tmp_path}/nowhere/x.db"),
        sessionmaker(),
        sessionmaker(connection),
        connection,
    ):
        with pytest.raises(ConfigurationError):
            backend_factory(given)
    connection.close()
    engine.dispose()


def test_a_missing_psycopg_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Our own steps on PostgreSQL need psycopg even where the application uses asyncpg."""
    given = create_async_engine("postgresql+asyncpg://someone@localhost/app")
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(ConfigurationError, match="psycopg") as caught:
        backend_factory(given)
    assert "pip install" in caught.value.do


def test_the_address_is_the_engines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Host, port, name, password and TLS are taken over, whatever the driver calls them."""
    given = create_async_engine(
        "postgresql+asyncpg://me:p%40ss@db.example:6432/app?ssl=require&prepared_statement_cache_size=0"
    )
    own: Any = backend_factory(given)().own  # type: ignore[attr-defined]
    for part in ("host=db.example", "port=6432", "dbname=app", "user=me", "password=p@ss", "sslmode=require"):
        assert part in own.conninfo
    assert "prepared" not in own.conninfo


async def test_our_own_steps_use_the_applications_library(engine: Engine) -> None:
    """Two SQLite libraries on one file in one process would take each other's locks away (F57)."""
    own: Any = backend_factory(engine)().own  # type: ignore[attr-defined]
    assert own.file.module is sqlite3.dbapi2


def test_an_old_sqlite_is_warned_of(engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    """Where every write has to take its turn, the log says how the application's own writes do."""
    with caplog.at_level(logging.WARNING):
        backend_factory(engine)()
        guarded = bool(caplog.records)
        caplog.clear()
        configure_sqlite(engine)
        backend_factory(engine)()
    assert guarded == backend_factory(engine)().own.file.guarded  # type: ignore[attr-defined]
    assert not caplog.records


async def test_lanes_are_no_more_than_the_pool(pg_dsn: str) -> None:
    """A lane that waits for the pool would look like a slow database."""
    engine = create_engine(pg_dsn.replace("postgresql", "postgresql+psycopg"), pool_size=2, max_overflow=1)
    assert backend_factory(engine)().lanes_max == 3


# -- what handlers may do ---------------------------------------------------------------------------------------


async def test_the_orm_is_flushed_before_the_mark(alchemy: World) -> None:
    """What a handler added and did not flush is written before the mark, and committed with it."""
    words: list[str] = []
    engine = alchemy.engine if alchemy.runner.colour == "sync" else alchemy.engine.sync_engine
    event.listen(engine, "before_cursor_execute", lambda _conn, _cursor, text, *_: words.append(text.split()[0]))
    claim = await alchemy.one_claim()
    await alchemy.handle(alchemy.turn(claim, adds("a")))
    assert words.index("INSERT") < words.index("UPDATE")
    assert alchemy.effects() == ["a"]
    assert alchemy.receipt("state") == ("processed",)


async def test_an_error_at_the_flush_is_the_handlers(alchemy: World) -> None:
    """A constraint that fails at our flush is an ordinary error of the handler; the driver's error is told."""
    alchemy.sql("INSERT INTO effect VALUES ('a')")
    claim = await alchemy.one_claim()
    with pytest.raises(IntegrityError):
        await alchemy.handle(alchemy.turn(claim, adds("a")))
    assert alchemy.receipt("state") == ("processing",)


async def test_a_swallowed_flush_is_counted(alchemy: World) -> None:
    """A handler that catches the error of a flush has lost its transaction: told as its error, not as a misuse."""
    alchemy.sql("INSERT INTO effect VALUES ('a')")
    claim = await alchemy.one_claim()
    with pytest.raises(HandlerError) as caught:
        await alchemy.handle(alchemy.turn(claim, writes("b"), flushes("a") | SWALLOWED))
    assert not isinstance(caught.value, HandlerMisuse)
    assert alchemy.effects() == ["a"]


async def test_nothing_is_written_after_a_swallowed_flush(alchemy: World) -> None:
    """What such a handler writes next on the connection is not committed by itself."""
    alchemy.sql("INSERT INTO effect VALUES ('a')")
    claim = await alchemy.one_claim()
    with pytest.raises(HandlerError):
        await alchemy.handle(
            alchemy.turn(claim, flushes("a") | SWALLOWED, writes("b") | SWALLOWED, writes("c") | SWALLOWED)
        )
    assert alchemy.effects() == ["a"]


async def test_a_savepoint_of_the_handler_is_its_own(alchemy: World) -> None:
    """What may fail goes into begin_nested: the rest commits."""
    alchemy.sql("INSERT INTO effect VALUES ('a')")
    claim = await alchemy.one_claim()
    if alchemy.runner.colour == "sync":

        def sync_try(hand: Hand) -> None:
            with pytest.raises(IntegrityError), hand.session.begin_nested():
                hand.session.add(Effect(note="a"))

        move = Move(sync_try)
    else:

        async def async_try(session: AsyncSession) -> None:
            with pytest.raises(IntegrityError):
                async with session.begin_nested():
                    session.add(Effect(note="a"))

        move = Move(lambda hand: async_try(hand.session))
    await alchemy.handle(alchemy.turn(claim, writes("b"), move, writes("c")))
    assert alchemy.effects() == ["a", "b", "c"]


@pytest.mark.parametrize("method", ["commit", "rollback", "close", "reset", "invalidate"])
async def test_ending_the_session_is_misuse(alchemy: World, method: str) -> None:
    """Whatever a session offers to end its transaction, and even if the refusal is swallowed."""
    claim = await alchemy.one_claim()
    move = calls(method, on="session")
    with pytest.raises(HandlerMisuse) as caught:
        await alchemy.handle(alchemy.turn(claim, writes("a"), move | SWALLOWED, writes("b") | SWALLOWED))
    assert caught.value.code == "HO111"
    assert alchemy.effects() == []
    assert alchemy.receipt("state") == ("processing",)


async def test_committing_through_the_transaction_is_misuse(alchemy: World) -> None:
    """The object behind the session is not a way around either."""
    claim = await alchemy.one_claim()
    with pytest.raises(HandlerMisuse):
        await alchemy.handle(
            alchemy.turn(claim, writes("a"), Move(lambda hand: hand.session.get_transaction().commit()) | SWALLOWED)
        )
    assert alchemy.effects() == []


def second(alchemy: World, statement: str, engine: Any = None) -> Move:
    """The handler opens a connection of its own, and commits what it does there."""
    engine = engine or alchemy.engine
    if alchemy.runner.colour == "sync":

        def act(_: Hand) -> None:
            with engine.begin() as conn:
                conn.exec_driver_sql(statement)

        return Move(act)

    async def act_async(_: Hand) -> None:
        async with engine.begin() as conn:
            await conn.exec_driver_sql(statement)

    return Move(act_async)


@pytest.mark.parametrize("swallowed", [False, True])
async def test_a_second_connection_is_misuse(alchemy: World, swallowed: bool) -> None:
    """What is written there would be committed without the mark: it is refused before it is written."""
    claim = await alchemy.one_claim()
    move = second(alchemy, "INSERT INTO effect (note) VALUES ('apart')")
    with pytest.raises(HandlerMisuse) as caught:
        await alchemy.handle(alchemy.turn(claim, writes("a"), move | SWALLOWED if swallowed else move))
    assert caught.value.code == "HO110"
    assert alchemy.effects() == []


async def test_a_second_engine_is_misuse_too(alchemy: World) -> None:
    """Another engine on the same database is the same mistake."""
    make: Any = create_engine if alchemy.runner.colour == "sync" else create_async_engine
    other = make(alchemy.engine.url)
    claim = await alchemy.one_claim()
    with pytest.raises(HandlerMisuse) as caught:
        await alchemy.handle(alchemy.turn(claim, second(alchemy, "DELETE FROM effect", other)))
    assert caught.value.code == "HO110"
    if alchemy.runner.colour == "sync":
        other.dispose()
    else:
        await other.dispose()


async def test_a_second_connection_may_read(alchemy: World) -> None:
    """Reading elsewhere is no harm."""
    claim = await alchemy.one_claim()
    await alchemy.handle(alchemy.turn(claim, writes("a"), second(alchemy, "/* look */ SELECT * FROM effect")))
    assert alchemy.effects() == ["a"]


async def test_another_database_may_be_written(alchemy: World, tmp_path: Path) -> None:
    """What is not our database is the application's own business."""
    driver, make = (
        ("sqlite", create_engine) if alchemy.runner.colour == "sync" else ("sqlite+aiosqlite", create_async_engine)
    )
    other: Any = make(f"{driver}:///{tmp_path}/other.db")
    claim = await alchemy.one_claim()
    await alchemy.handle(alchemy.turn(claim, writes("a"), second(alchemy, "CREATE TABLE mine (id int)", other)))
    assert alchemy.receipt("state") == ("processed",)
    if alchemy.runner.colour == "sync":
        other.dispose()
    else:
        await other.dispose()


async def test_the_application_is_not_guarded(alchemy: World) -> None:
    """Outside of handlers, and after them, connections of the same pool commit, attach and roll back as ever."""
    claim = await alchemy.one_claim()
    await alchemy.handle(alchemy.turn(claim, writes("a")))
    if alchemy.runner.colour == "sync":
        for word in ("commit", "rollback"):
            with alchemy.engine.connect() as conn:
                conn.exec_driver_sql(f"INSERT INTO effect (note) VALUES ('{word}')")
                getattr(conn, word)()
        assert alchemy.engine.pool.checkedout() == 0
    else:
        for word in ("commit", "rollback"):
            async with alchemy.engine.connect() as conn:
                await conn.exec_driver_sql(f"INSERT INTO effect (note) VALUES ('{word}')")
                await getattr(conn, word)()
        assert alchemy.engine.pool.checkedout() == 0
    assert alchemy.effects() == ["a", "commit"]


ENDS = [
    ("conn", "commit"),
    ("conn", "rollback"),
    ("conn", "close"),
    ("session", "commit"),
    ("session", "rollback"),
    ("session", "close"),
    ("session", "invalidate"),
]


async def test_connections_go_back_whatever_happens(alchemy: World) -> None:
    """After success, failure and misuse nothing of the pool is kept, and no transaction is left open on it."""
    for number, moves in enumerate(
        [
            (writes("a"),),
            (runs("SELECT nonsense FROM nowhere"),),
            *((writes(f"{on} {name}"), calls(name, on)) for on, name in ENDS),
            *((writes(f"{on} {name}"), calls(name, on) | SWALLOWED) for on, name in ENDS),
        ]
    ):
        await alchemy.accept(arrival(number))
        (claim,) = await alchemy.claim()
        with contextlib.suppress(Exception):
            await alchemy.handle(alchemy.turn(claim, *moves))
        assert alchemy.engine.pool.checkedout() == 0
        alchemy.sql(f"UPDATE hookonce_receipt SET due_at = due_at WHERE id = {claim.id}")  # nobody holds it
        if alchemy.dialect == "postgres":
            assert (
                alchemy.sql(
                    "SELECT state FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in%'"
                )
                == []
            )
    assert alchemy.effects() == ["a"]


@pytest.mark.parametrize("driver", ["sqlite+aiosqlite", "postgresql+psycopg", "postgresql+asyncpg"])
async def test_blocking_handlers_on_an_async_engine(request: pytest.FixtureRequest, driver: str) -> None:
    """A `def` handler gets a real Session and Connection on the same transaction."""
    dialect: Any = "sqlite" if driver.startswith("sqlite") else "postgres"
    where = str(request.getfixturevalue(f"fresh_{dialect}"))
    engine = create_async_engine(
        f"{driver}:///{where}" if dialect == "sqlite" else where.replace("postgresql", driver, 1)
    )
    world = World(Runner(driver, dialect, "sqlalchemy", "async"), where, backend_factory(engine), engine)
    seen: list[str] = []

    def note(hand: Hand) -> None:
        seen.append(f"{type(hand.session).__name__} {type(hand.conn).__name__}")
        assert hand.session.scalars(select(Effect.note)).all() == ["a"]

    claim = await world.one_claim()
    handler = world.handler(writes("a"), Move(note), adds("b"), colour="sync")
    lane: Any = await world.backend.async_lane()
    await run_async([Turn(claim, handler)], lane, Limits(seconds=20))
    assert seen == ["Session Connection"]
    assert world.effects() == ["a", "b"]

    await world.accept(arrival(2))
    (claim,) = await world.claim()
    with pytest.raises(HandlerMisuse):
        await run_async(
            [Turn(claim, world.handler(calls("commit", on="session"), colour="sync"))], lane, Limits(seconds=20)
        )
    await world.backend.close()
    await engine.dispose()


async def test_autocommit_is_refused(pg_dsn: str) -> None:
    """On an engine in AUTOCOMMIT a handler and its mark would not be one transaction."""
    engine = create_engine(pg_dsn.replace("postgresql", "postgresql+psycopg"), isolation_level="AUTOCOMMIT")
    lane: Any = backend_factory(engine)().lane()
    with pytest.raises(ConfigurationError, match="AUTOCOMMIT"):
        lane.begin()
    lane.rollback()
    engine.dispose()


async def test_a_scoped_session_is_the_handlers(engine: Engine) -> None:
    """Helpers that reach for the application's scoped session write in the handler's transaction."""
    scoped = scoped_session(sessionmaker(engine))
    world = on(engine, scoped)
    claim = await world.one_claim()

    def helper(_: Hand) -> None:
        scoped.add(Effect(note="helped"))

    await world.handle(world.turn(claim, Move(helper)))
    assert world.effects() == ["helped"]
    assert world.receipt("state") == ("processed",)
    assert not scoped.registry.has()


async def test_hooks_after_commit_are_told_the_truth(engine: Engine) -> None:
    """The application's own after_commit hooks run after the mark is committed, and not after a failure."""
    make = sessionmaker(engine)
    told: list[str] = []
    world = on(engine, make)
    event.listen(make, "after_commit", lambda session: told.append(world.receipt("state")[0]))
    claim = await world.one_claim()
    with pytest.raises(ZeroDivisionError):
        await world.handle(world.turn(claim, Move(lambda _: 1 / 0)))
    assert told == []
    await world.handle(world.turn(claim, writes("a")))
    assert told == ["processed"]


# -- SQLite -----------------------------------------------------------------------------------------------------


async def test_a_lane_holds_the_write_lock_and_the_turn(engine: Engine) -> None:
    """While a handler runs that has only read, nobody else writes; afterwards turn and lock are free."""
    world = on(engine)
    claim = await world.one_claim()
    path = Path(world.where)
    refused: list[str] = []

    def look(hand: Hand) -> None:
        hand.session.execute(text("SELECT 1")).all()
        try:
            WriterTurn.of(path).acquire(within=0.05)
        except Unavailable:
            refused.append("turn")
        other = sqlite3.connect(path, timeout=0, isolation_level=None)
        try:
            other.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            refused.append("lock")
        other.close()

    await world.handle(world.turn(claim, Move(look)))
    assert refused == ["turn", "lock"]
    with WriterTurn.of(path)(within=1):
        pass


def begins_deferred(engine: Engine) -> None:
    """What SQLAlchemy's documentation tells users of SQLite to do."""
    event.listen(engine, "connect", lambda connection, _: setattr(connection, "isolation_level", None))
    event.listen(engine, "begin", lambda conn: conn.exec_driver_sql("BEGIN"))


@pytest.mark.parametrize("prepare", [begins_deferred, configure_sqlite])
async def test_a_lane_gets_along_with_hooks_of_the_application(engine: Engine, prepare: Any) -> None:
    """An engine that begins by itself works as well: one transaction, with the write lock from the start."""
    prepare(engine)
    world = on(engine)
    claim = await world.one_claim()
    locked: list[bool] = []

    def look(_: Hand) -> None:
        other = sqlite3.connect(world.where, timeout=0, isolation_level=None)
        try:
            other.execute("BEGIN IMMEDIATE")
            locked.append(False)
        except sqlite3.OperationalError:
            locked.append(True)
        other.close()

    await world.handle(world.turn(claim, Move(look), writes("a")))
    assert locked == [True]
    assert world.effects() == ["a"]


def turn_is_free(engine: Engine) -> bool:
    """Whether somebody else could write now."""
    turn = WriterTurn.of(Path(engine.url.database or "").resolve())
    try:
        turn.acquire(within=0.05)
    except Unavailable:
        return False
    turn.release()
    return True


def test_a_configured_engine_takes_its_turn(engine: Engine) -> None:
    """From begin until after commit, rollback, error or close; with the write lock, and durable settings."""
    configure_sqlite(engine)
    configure_sqlite(engine)
    with engine.begin() as conn:
        assert conn.exec_driver_sql("PRAGMA synchronous").scalar() == 2
        assert not turn_is_free(engine)
        conn.execute(text("INSERT INTO effect VALUES ('kept')"))
    assert turn_is_free(engine)
    with engine.connect() as conn:
        conn.execute(text("INSERT INTO effect VALUES ('undone')"))
        conn.rollback()
        assert turn_is_free(engine)
        conn.execute(text("INSERT INTO effect VALUES ('also undone')"))
        assert not turn_is_free(engine)
    assert turn_is_free(engine)
    with pytest.raises(IntegrityError), engine.begin() as conn:
        conn.execute(text("INSERT INTO effect VALUES ('kept')"))
    assert turn_is_free(engine)
    with Session(engine) as session:
        assert session.scalars(select(Effect.note)).all() == ["kept"]
    assert turn_is_free(engine)


def test_configured_engines_do_not_fail_when_they_read_first(engine: Engine) -> None:
    """Read, then write, in eight threads at once: without the write lock from the start this is "database is locked"."""
    configure_sqlite(engine)
    failed: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for turn in range(10):
                with Session(engine) as session, session.begin():
                    session.scalars(select(Effect)).all()
                    session.add(Effect(note=f"{number} {turn}"))
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    with Session(engine) as session:
        assert len(session.scalars(select(Effect)).all()) == 80


async def test_a_configured_async_engine_takes_its_turn(fresh_sqlite: Path) -> None:
    """The same on an event loop, without blocking it."""
    engine = create_async_engine(f"sqlite+aiosqlite:///{fresh_sqlite}")
    configure_sqlite(engine)
    async with engine.begin() as conn:
        await conn.exec_driver_sql("INSERT INTO effect VALUES ('kept')")
        assert not turn_is_free(engine.sync_engine)
    assert turn_is_free(engine.sync_engine)
    async with engine.connect() as conn:
        await conn.exec_driver_sql("INSERT INTO effect VALUES ('undone')")
    assert turn_is_free(engine.sync_engine)
    async with AsyncSession(engine) as session:
        assert (await session.scalars(select(Effect.note))).all() == ["kept"]
    await engine.dispose()


async def test_a_second_transaction_on_a_configured_engine_is_misuse(engine: Engine) -> None:
    """It would wait for the turn that its own handler holds: told at once, reading or not."""
    configure_sqlite(engine)
    world = on(engine)
    claim = await world.one_claim()
    with pytest.raises(HandlerMisuse) as caught:
        await world.handle(world.turn(claim, second(world, "SELECT 1")))
    assert caught.value.code == "HO110"
    assert turn_is_free(engine)


async def test_an_aborted_lane_gives_its_turn_back_once(engine: Engine) -> None:
    """Taken away by one thread while another ends it: the turn of whoever comes next is not given away."""
    world = on(engine)
    claim = await world.one_claim()
    lane = await world.lane()
    turn = WriterTurn.of(Path(world.where))

    def act(_: Hand) -> None:
        lane.abort()
        turn.acquire(within=1)  # somebody else's turn by now

    with pytest.raises(Exception, match="taken away"):
        await in_thread(lambda: run_sync([world.turn(claim, Move(act), writes("a"))], lane, Limits(seconds=20)))
    with pytest.raises(Unavailable):
        turn.acquire(within=0.05)
    turn.release()
    assert world.effects() == []
