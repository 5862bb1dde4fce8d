"""Handlers on the application's own SQLAlchemy sessions, sync and async.

Only the lanes are SQLAlchemy: what we write for ourselves (accept, claim, settle) goes over connections of our own to
the same database. A lane takes a connection from the application's pool for one transaction and gives it back.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar, Token
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, Protocol, TypeVar, cast
from urllib.parse import parse_qs, urlsplit

from sqlalchemy import event
from sqlalchemy.engine import URL, Connection, Engine
from sqlalchemy.exc import DBAPIError, PendingRollbackError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.orm import Session, SessionTransaction, scoped_session, sessionmaker

from hookonce.errors import (
    ConfigurationError,
    HandlerError,
    HandlerMisuse,
    HandlerTimeout,
    NotDurable,
    StorageError,
    Unavailable,
)
from hookonce.registry import Handler
from hookonce.storage.backend import Backend, Hands
from hookonce.storage.operation import Many, Operation, Rows, Statement, Step
from hookonce.storage.sqlite import SqliteBackend, SqliteFile, WriterTurn, refuse_network_file_system
from hookonce.storage.statements import Block, Dialect, Style, load

try:  # `pip install sqlalchemy` brings no greenlet, and without it there is no asynchronous SQLAlchemy
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession, async_sessionmaker
except ImportError:
    AsyncEngine = async_sessionmaker = None  # type: ignore[assignment,misc]

T = TypeVar("T")
log = logging.getLogger("hookonce.storage")

_LANE = "hookonce_lane"
_GUARD = "hookonce_guard"
_TURN = "hookonce_turn"
_EAR = "hookonce_ear"

_BEGIN = "BEGIN IMMEDIATE /* hookonce */"
# In a transaction that somebody's own "begin" hook opened as a deferred one: takes the write lock, writes nothing.
_UPGRADE = "UPDATE hookonce_migration SET number = number WHERE 0 /* hookonce */"

_OWN_TRANSACTION = ("commit", "rollback", "close", "reset", "invalidate")
_LEAVE_IT = "leave the transaction alone: it is committed for you, together with the mark"
_READS = re.compile(
    r"\s*(?:/\*.*?\*/\s*|--[^\n]*\n\s*)*(?:SELECT|SHOW|EXPLAIN|PRAGMA|SET|VALUES|TABLE)\b", re.IGNORECASE | re.DOTALL
)

_handling: ContextVar[SessionLane | None] = ContextVar("hookonce_handling", default=None)
"""The lane whose handler runs here: how a second connection is recognised."""


def factory(database: Any) -> Callable[[], Backend]:
    """A function that makes a fresh backend from an engine, an async engine, or what makes sessions of one."""
    engine, make, is_async = _read(database)
    dialect = engine.dialect
    if dialect.paramstyle not in ("named", "pyformat", "numeric_dollar", "qmark"):
        raise ConfigurationError(
            f"the driver {dialect.driver} takes parameters as {dialect.paramstyle!r}",
            do="use psycopg, asyncpg or sqlite3",
        )
    own = _own(engine)
    colours = frozenset({"sync", "async"}) if is_async else frozenset({"sync"})
    because = f"the inbox was given {'an asynchronous' if is_async else 'a synchronous'} {type(database).__name__}"
    hands = Hands(frozenset({"session", "conn"}), cast("frozenset[Any]", colours), because)
    process = [os.getpid()]
    return lambda: SqlalchemyBackend(engine, make, own(), hands, process)


def configure_sqlite(engine: Engine | AsyncEngine) -> None:
    """Make every transaction of an engine on a SQLite file a good neighbour of the inbox.

    Connections get durable settings; a transaction begins with the write lock instead of failing when it wants it
    later, and waits for its turn. Lanes do so anyway; an application that writes beside them should too, and has to
    where SQLite is older than the fix for the WAL-reset bug. Such a transaction blocks other writers: keep it short.
    """
    target = engine if isinstance(engine, Engine) else engine.sync_engine
    if target.dialect.name != "sqlite":
        raise ConfigurationError(f"configure_sqlite was given an engine of {target.dialect.name}")
    if target in _configured:
        return
    _configured.add(target)
    file = SqliteFile(_sqlite_path(target.url), module=_sqlite_module(target))
    event.listen(target, "connect", lambda connection, _record: _settle_sqlite(connection, file))
    event.listen(target, "begin", lambda conn: _take_turn(conn, file.turn))
    event.listen(target, "commit", lambda conn: _end_turn(conn, "COMMIT"))
    event.listen(target, "rollback", lambda conn: _end_turn(conn, "ROLLBACK"))
    event.listen(target, "checkin", lambda _connection, record: _drop_turn(record.info))


_configured: set[Engine] = set()


def _take_turn(conn: Connection, turn: WriterTurn) -> None:
    if _lane_of(conn) is not None:
        return
    lane = _handling.get()
    if lane is not None and _same_database(lane.engine.url, conn.engine.url):
        _refuse_second(conn, "a transaction")
    adapted = cast("Any", conn.connection.dbapi_connection)
    if conn.dialect.is_async:
        adapted.run_async(lambda _: _acquire(turn))
    else:
        turn.acquire()
    conn.info[_TURN] = turn
    conn.exec_driver_sql(_BEGIN)


def _end_turn(conn: Connection, word: str) -> None:
    """SQLAlchemy tells before it commits: so it is done here, and the turn given back after it."""
    if _TURN in conn.info:
        if cast("Any", conn.connection.driver_connection).in_transaction:
            conn.exec_driver_sql(f"{word} /* hookonce */")
        _drop_turn(conn.info)


def _drop_turn(info: dict[str, Any]) -> None:
    turn = info.pop(_TURN, None)
    if turn is not None:
        turn.release()


async def _acquire(turn: WriterTurn) -> None:
    """Wait for the turn without blocking the loop. Who is cancelled meanwhile gives it back."""
    waiting = asyncio.get_running_loop().run_in_executor(None, turn.acquire)
    try:
        await asyncio.shield(waiting)
    except asyncio.CancelledError:
        waiting.add_done_callback(lambda done: None if done.cancelled() or done.exception() else turn.release())
        raise


# -- what was given ---------------------------------------------------------------------------------------------


def _read(database: Any) -> tuple[Engine, Callable[[], Any], bool]:
    """The engine behind what was given, how to make a session, and whether it is asynchronous."""
    if AsyncEngine is not None:
        if isinstance(database, AsyncEngine):
            return database.sync_engine, async_sessionmaker(database, expire_on_commit=False), True
        if isinstance(database, async_sessionmaker):
            return _engine_of(lambda: database().sync_session), database, True
    if isinstance(database, Engine):
        return database, sessionmaker(database), False
    if isinstance(database, sessionmaker):
        return _engine_of(database), database, False
    if isinstance(database, scoped_session):
        return _engine_of(database.session_factory), _Scoped(database), False
    raise ConfigurationError(
        f"a database cannot be made of {type(database).__name__}",
        do="give an Engine, an AsyncEngine, a sessionmaker, an async_sessionmaker or a scoped_session",
    )


def _engine_of(make: Callable[[], Session]) -> Engine:
    session = make()
    try:
        bind = session.get_bind()
    except (SQLAlchemyError, RuntimeError) as error:
        raise ConfigurationError(
            f"the sessionmaker does not say which engine is used: {error}", do="give the engine instead, or set bind="
        ) from error
    finally:
        session.close()
    if not isinstance(bind, Engine):
        raise ConfigurationError("the sessionmaker is bound to one connection", do="bind it to an engine")
    return bind


class _Scoped:
    """Sessions of a scoped_session: while a handler runs, the registry answers with the handler's session."""

    def __init__(self, scoped: scoped_session[Any]) -> None:
        self._scoped = scoped

    def __call__(self) -> Session:
        session: Session = self._scoped.session_factory()
        with contextlib.suppress(RuntimeError):  # a scope that exists only within a request, and there is none
            self._scoped.registry.set(session)
        return session

    def over(self) -> None:
        with contextlib.suppress(RuntimeError):
            self._scoped.registry.clear()


def _own(engine: Engine) -> Callable[[], Backend]:
    """How to make the backend for our own steps on the same database."""
    match engine.dialect.name:
        case "postgresql":
            conninfo = _conninfo(engine.url)
            from hookonce.storage.postgres import PostgresBackend

            return lambda: PostgresBackend(conninfo)
        case "sqlite":
            path, module = _sqlite_path(engine.url), _sqlite_module(engine)
            refuse_network_file_system(path.parent)
            if SqliteFile(path, module=module).guarded and engine not in _configured:
                log.warning(
                    "SQLite %s is older than the fix for the WAL-reset bug: call hookonce.storage.sqlalchemy."
                    "configure_sqlite(engine) if the application writes to %s by itself",
                    module.sqlite_version,
                    path.name,
                )
            return lambda: SqliteBackend(SqliteFile(path, module=module))
        case other:
            raise ConfigurationError(f"the engine's database is {other}", do="use PostgreSQL or SQLite")


def _conninfo(url: URL) -> str:
    """What psycopg needs to reach the database of an engine, whichever driver the engine has."""
    try:
        import psycopg
        from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg
    except ImportError:
        raise ConfigurationError(
            "PostgreSQL needs the psycopg package, whatever driver the engine has",
            do="pip install 'hookonce[postgres]'",
        ) from None
    query = dict(url.query)
    if "ssl" in query:  # asyncpg's word
        query.setdefault("sslmode", query.pop("ssl"))
    _, wanted = PGDialect_psycopg().create_connect_args(url.set(drivername="postgresql+psycopg", query=query))  # type: ignore[no-untyped-call]
    known = {option.keyword.decode() for option in psycopg.pq.Conninfo.get_defaults()}
    return psycopg.conninfo.make_conninfo(**{key: value for key, value in wanted.items() if key in known})


def _sqlite_path(url: URL) -> Path:
    name, query = url.database or "", {key: str(value) for key, value in url.query.items()}
    if name.startswith("file:"):
        parts = urlsplit(name)
        name, query = parts.path, {**query, **{key: values[-1] for key, values in parse_qs(parts.query).items()}}
    if name in ("", ":memory:") or query.get("mode") == "memory":
        raise ConfigurationError("a database in memory forgets what was accepted", do="sqlite:///hookonce.db")
    path = Path(name).absolute()
    if not path.parent.is_dir():
        raise ConfigurationError(f"the folder {path.parent} does not exist", do=f"mkdir -p {path.parent}")
    return path.parent.resolve() / path.name


def _sqlite_module(engine: Engine) -> Any:
    """The library that the application uses: two of them on one file would undo each other's locks."""
    if engine.dialect.driver not in ("pysqlite", "aiosqlite"):
        raise ConfigurationError(
            f"SQLite through {engine.dialect.driver} is not supported", do="use sqlite3 or aiosqlite"
        )
    module = cast("Any", engine.dialect.dbapi)
    module = getattr(module, "sqlite", module)
    return getattr(module, "dbapi2", module)


# -- backend ----------------------------------------------------------------------------------------------------


class SqlalchemyBackend:
    """A backend of ours for our own steps, with lanes of the application's engine."""

    def __init__(self, engine: Engine, make: Callable[[], Any], own: Backend, hands: Hands, process: list[int]) -> None:
        self.own = own
        self.hands = hands
        self.dialect: Dialect = own.dialect
        self.where = own.where
        self.bodies_apart = own.bodies_apart
        self.groups_max = own.groups_max
        self.handler_seconds = own.handler_seconds
        self.lanes_max = min(own.lanes_max, _capacity(engine))
        self._engine = engine
        self._make = make
        self._process = process

    async def run(
        self, operation: Operation[T], *, within: float | None = None, urgent: bool = False, single: bool = False
    ) -> T:
        return await self.own.run(operation, within=within, urgent=urgent, single=single)

    async def read(self, operation: Operation[T]) -> T:
        return await self.own.read(operation)

    async def script(self, text: str) -> None:
        await self.own.script(text)

    def lane(self) -> SessionLane:
        if "async" in self.hands.colours:
            raise ConfigurationError("an asynchronous engine has lanes on the event loop only")
        return SessionLane(self._engine, self._make, self._database())

    async def async_lane(self) -> AsyncSessionLane:
        if "async" not in self.hands.colours:
            raise ConfigurationError(f"{self.hands.because}: write the handler as def", code="HO109")
        return AsyncSessionLane(self._engine, self._make, self._database())

    def _database(self) -> _Database:
        if self._process[0] != os.getpid():  # after a fork: what the parent opened is the parent's
            self._process[0] = os.getpid()
            self._engine.dispose(close=False)
        if isinstance(self.own, SqliteBackend):
            return _Sqlite(self.own.file)
        return _Postgres(self._engine)

    async def facts(self) -> Mapping[str, str]:
        driver = f"SQLAlchemy {self._engine.dialect.driver}"
        return {**await self.own.facts(), "handlers": driver}

    async def close(self) -> None:
        await self.own.close()


def _capacity(engine: Engine) -> int:
    """How many connections the application's pool gives at most; one that knows no bound has none."""
    size, overflow = getattr(engine.pool, "size", None), getattr(engine.pool, "_max_overflow", -1)
    if size is None or overflow < 0:
        return 1_000
    return max(1, int(size()) + overflow)


# -- the differences between the databases ------------------------------------------------------------------------


class _Database(Protocol):
    """What a lane must know of its database."""

    file: SqliteFile | None

    def prepare(self, conn: Connection) -> None:
        """Before the transaction: settings and guards of a connection, once."""
        ...

    def begin(self, conn: Connection) -> None: ...
    def guard(self, conn: Connection, on: bool) -> None: ...
    def still_open(self, conn: Connection) -> bool: ...
    def refuse_words(self, statement: str) -> None: ...
    def allow_rollback(self, conn: Connection) -> None: ...
    def execute(self, conn: Connection, step: Step) -> Rows: ...
    def before_commit(self, conn: Connection) -> Callable[[], None]:
        """Returns what must be called after the commit: it raises when the server warned."""
        ...

    def translate(self, error: BaseException) -> BaseException: ...
    def cut(self, driver: Any, info: dict[str, Any], then: Callable[[], None]) -> None:
        """Take a connection away from whoever uses it, from any thread; `then`, let the next writer in."""
        ...

    def before_close(self) -> None:
        """Wait for a `cut` that is under way: closing below it would be fatal."""
        ...


class _Sqlite:
    """Lanes on a SQLite file."""

    def __init__(self, file: SqliteFile) -> None:
        self.file: SqliteFile | None = file
        self._file = file
        self._cutting: threading.Thread | None = None

    def prepare(self, conn: Connection) -> None:
        if _GUARD not in conn.info:
            _settle_sqlite(conn.connection.dbapi_connection, self._file)
            guard = conn.info[_GUARD] = _Authorizer(self._file.module)
            driver = cast("Any", conn.connection.driver_connection)
            if conn.dialect.is_async:
                cast("Any", conn.connection.dbapi_connection).run_async(lambda d: d.set_authorizer(guard))
            else:
                driver.set_authorizer(guard)

    def begin(self, conn: Connection) -> None:
        conn.exec_driver_sql(_UPGRADE if self.still_open(conn) else _BEGIN)

    def guard(self, conn: Connection, on: bool) -> None:
        guard: _Authorizer | None = conn.info.get(_GUARD)
        if guard is not None:
            guard.on, guard.may_roll_back = on, False

    def still_open(self, conn: Connection) -> bool:
        return bool(cast("Any", conn.connection.driver_connection).in_transaction)

    def refuse_words(self, statement: str) -> None:
        """The authorizer sees more than any pattern."""

    def allow_rollback(self, conn: Connection) -> None:
        guard: _Authorizer | None = conn.info.get(_GUARD)
        if guard is not None:
            guard.may_roll_back = True

    def execute(self, conn: Connection, step: Step) -> Rows:
        block = load("sqlite", cast("Style", conn.dialect.paramstyle))[step.name]
        if isinstance(step, Statement):
            return _fetch(conn, block, step.values)
        names = [name for name, _ in block.columns]
        found: list[Any] = []
        for row in step.rows:
            found += _fetch(conn, block, {**step.values, **dict(zip(names, row, strict=True))})
        return found

    def before_commit(self, conn: Connection) -> Callable[[], None]:
        return _nothing

    def translate(self, error: BaseException) -> BaseException:
        return self._file.translate(error, ours=False)

    def cut(self, driver: Any, info: dict[str, Any], then: Callable[[], None]) -> None:
        inner = getattr(driver, "_conn", None)
        if inner is not None:  # aiosqlite lets nobody in; the task is cancelled, and rolls back on its way out
            with contextlib.suppress(self._file.module.Error):
                inner.interrupt()
            then()
        else:
            self._cutting = threading.Thread(target=self._take_away, args=(driver, info, then), daemon=True)
            self._cutting.start()

    def _take_away(self, conn: Any, info: dict[str, Any], then: Callable[[], None]) -> None:
        """Interrupting and rolling back is allowed from another thread; closing is not, the lane does that itself.

        query_only comes first: after the rollback each statement of the handler would commit by itself.
        """
        guard: _Authorizer | None = info.get(_GUARD)
        if guard is not None:
            guard.may_roll_back = True
        for step in (
            conn.interrupt,
            partial(conn.execute, "PRAGMA query_only = 1"),
            partial(conn.execute, "ROLLBACK /* hookonce */"),
        ):
            with contextlib.suppress(self._file.module.Error):
                step()
        then()

    def before_close(self) -> None:
        if self._cutting is not None:
            self._cutting.join()


class _Authorizer:
    """SQLite's own word on every statement: while a handler runs it may not leave its transaction or its file."""

    def __init__(self, module: Any) -> None:
        self.on = False
        self.may_roll_back = False
        self._module = module

    def __call__(self, action: int, first: str | None, *_: object) -> int:
        module = self._module
        if self.on and action in (module.SQLITE_TRANSACTION, module.SQLITE_ATTACH, module.SQLITE_DETACH):
            allowed = self.may_roll_back and action == module.SQLITE_TRANSACTION and first == "ROLLBACK"
            return int(module.SQLITE_OK if allowed else module.SQLITE_DENY)
        return int(module.SQLITE_OK)


def _settle_sqlite(connection: Any, file: SqliteFile) -> None:
    """Durable settings on a connection of the application, read back."""
    cursor = connection.cursor()
    try:
        wanted: dict[str, object] = {"journal_mode": "wal", "synchronous": 2}
        if file.guarded:
            wanted["wal_autocheckpoint"] = 0
        for name, value in wanted.items():
            cursor.execute(f"PRAGMA {name}")
            if cursor.fetchone()[0] == value:
                continue
            cursor.execute(f"PRAGMA {name} = {value}")
            cursor.execute(f"PRAGMA {name}")
            seen = cursor.fetchone()[0]
            if seen != value:
                raise ConfigurationError(f"{file.path}: SQLite answered {name} = {seen}, not {value}", code="HO118")
    finally:
        cursor.close()


class _Postgres:
    """Lanes on PostgreSQL, whichever driver the engine has."""

    def __init__(self, engine: Engine) -> None:
        self.file: SqliteFile | None = None
        self._driver = engine.dialect.driver

    def prepare(self, conn: Connection) -> None:
        adapted = cast("Any", conn.connection.dbapi_connection)
        if getattr(adapted, "autocommit", False) is True:
            raise ConfigurationError(
                "the engine runs in AUTOCOMMIT: a handler and its mark would not be one transaction",
                do="give the inbox an engine without isolation_level='AUTOCOMMIT'",
            )
        if _EAR not in conn.info:
            ear = conn.info[_EAR] = _Ear()
            driver = cast("Any", conn.connection.driver_connection)
            if hasattr(driver, "add_notice_handler"):
                driver.add_notice_handler(ear.hear_psycopg)
            elif hasattr(driver, "add_log_listener"):
                driver.add_log_listener(ear.hear_asyncpg)

    def begin(self, conn: Connection) -> None:
        """The driver begins with the first statement."""

    def guard(self, conn: Connection, on: bool) -> None:
        """The words of a statement and the transaction's number tell enough."""

    def still_open(self, conn: Connection) -> bool:
        return True

    def refuse_words(self, statement: str) -> None:
        from hookonce.storage.postgres import refuse_transaction_words

        refuse_transaction_words(statement)

    def allow_rollback(self, conn: Connection) -> None:
        """Nobody forbids it."""

    def execute(self, conn: Connection, step: Step) -> Rows:
        block = load("postgres", cast("Style", conn.dialect.paramstyle))[step.name]
        values: dict[str, Any] = dict(step.values)
        if isinstance(step, Many):
            # Lists rather than arrays packed by us: SQLAlchemy's psycopg dialect keeps a table of types of its own,
            # and asyncpg and psycopg2 know nothing of psycopg's.
            columns = zip(*step.rows, strict=True)
            values |= {name: list(column) for (name, _), column in zip(block.columns, columns, strict=True)}
        return _fetch(conn, block, values)

    def before_commit(self, conn: Connection) -> Callable[[], None]:
        ear: _Ear = conn.info[_EAR]
        ear.warnings.clear()
        return ear.refuse_warnings

    def translate(self, error: BaseException) -> BaseException:
        import psycopg

        from hookonce.storage.postgres import translate

        if isinstance(error, psycopg.Error):
            return translate(error, ours=False)
        state = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
        if state is None:
            return error
        try:
            twin = psycopg.errors.lookup(state)(str(error))
        except KeyError:
            return error
        translated = translate(twin, ours=False)
        return error if translated is twin else translated

    def cut(self, driver: Any, info: dict[str, Any], then: Callable[[], None]) -> None:
        with contextlib.suppress(Exception):
            transport = getattr(driver, "_transport", None)  # asyncpg's
            number = transport.get_extra_info("socket").fileno() if transport is not None else driver.fileno()
            with socket.socket(fileno=os.dup(number)) as twin:
                twin.shutdown(socket.SHUT_RDWR)  # whoever waits on it wakes up with an error
        then()

    def before_close(self) -> None:
        """A socket may be closed at any time."""


class _Ear:
    """Hears what a server says beside its answers."""

    def __init__(self) -> None:
        self.warnings: list[str] = []

    def hear_psycopg(self, notice: Any) -> None:
        if (notice.severity_nonlocalized or notice.severity) == "WARNING":
            self.warnings.append(notice.message_primary or "")

    def hear_asyncpg(self, _connection: object, message: Any) -> None:
        if getattr(message, "severity_en", message.severity) == "WARNING":
            self.warnings.append(str(message))

    def refuse_warnings(self) -> None:
        """A cancelled wait for the standby ends in success and a WARNING: that is no durable commit."""
        if self.warnings:
            raise NotDurable(f"the server warned while committing: {self.warnings[0]}")


def _fetch(conn: Connection, block: Block, values: Mapping[str, Any]) -> Rows:
    named = conn.dialect.paramstyle in ("named", "pyformat")
    result = conn.exec_driver_sql(block.text, dict(values) if named else block.positional(values))
    return result.fetchall() if result.returns_rows else ()


def _nothing() -> None:
    pass


# -- lanes ------------------------------------------------------------------------------------------------------


class SessionLane:
    """Handlers on a Session of the application, one for each transaction, in one thread."""

    groups = False

    def __init__(self, engine: Engine, make: Callable[[], Any], database: _Database) -> None:
        self.engine = engine
        self._make = make
        self._database = database
        self._session: Session | None = None
        self._conn: Connection | None = None
        self._root: SessionTransaction | None = None
        self._nested: SessionTransaction | None = None
        self._driver: Any = None
        self._info: dict[str, Any] = {}
        self._token: Token[SessionLane | None] | None = None
        self._guard = False
        self._misuse: HandlerMisuse | None = None
        self._rolled_back = False
        self._turn_lock = threading.Lock()
        self._mine = False
        self._aborted = False

    def given(self, name: str) -> object:
        return self._session if name == "session" else self._conn

    # begin and end

    def begin(self) -> None:
        if self._aborted:
            raise Unavailable("this lane was taken away")
        if self._database.file is not None:
            self._database.file.turn.acquire()
            self.hold_turn()
        self.begin_on(self._make())

    def hold_turn(self) -> None:
        """The turn was taken for this lane; it goes back once, whoever ends the transaction."""
        with self._turn_lock:
            self._mine = True
        if self._aborted:
            self._release_turn()
            raise Unavailable("this lane was taken away")

    def begin_on(self, session: Session) -> None:
        self._misuse, self._rolled_back, self._nested = None, False, None
        self._session = session
        self._root = session.begin()
        conn = session.connection(bind_arguments={"bind": self.engine}, execution_options={_LANE: self})
        self._conn = conn
        self._info = conn.info
        self._driver = conn.connection.driver_connection
        self._database.begin(conn)

    def prepare(self, conn: Connection) -> None:
        """Called when the connection was taken from the pool and nothing has begun on it."""
        self._database.prepare(conn)

    def commit(self) -> None:
        session, conn = self._open()
        refuse_warnings = self._database.before_commit(conn)
        session.commit()
        self._end()
        refuse_warnings()

    def rollback(self) -> None:
        self._end()

    def close(self) -> None:
        """Nothing is kept between transactions."""

    def abort(self) -> None:
        """From another thread: take the connection away and let the next writer in."""
        self._aborted = True
        if self._driver is not None:
            self._database.cut(self._driver, self._info, self._release_turn)
        else:
            self._release_turn()

    def _end(self) -> None:
        session, self._session = self._session, None
        conn, self._conn = self._conn, None
        self._root = self._nested = None
        try:
            if conn is not None and self._misuse is not None:
                # After a commit that we refused SQLAlchemy takes the transaction for ended and would not roll it back.
                with contextlib.suppress(Exception):
                    conn.connection.rollback()
            if self._aborted:
                self._database.before_close()
            if session is not None:
                session.invalidate() if self._aborted else session.close()
        finally:
            self._driver = None
            if isinstance(self._make, _Scoped):
                self._make.over()
            self._release_turn()

    def _release_turn(self) -> None:
        with self._turn_lock:
            mine, self._mine = self._mine, False
        if mine and self._database.file is not None:
            self._database.file.turn.release()

    # within

    def execute(self, step: Step) -> Rows:
        _, conn = self._open()
        return self._database.execute(conn, step)

    def savepoint(self) -> None:
        session, _ = self._open()
        if self._nested is not None and self._nested.is_active:
            self._nested.commit()
        self._nested = session.begin_nested()
        session.connection(bind_arguments={"bind": self.engine})  # the SAVEPOINT is sent now, not with the first use

    def undo(self) -> None:
        if self._nested is not None:
            self._nested.rollback()
            self._nested = None

    def flush(self) -> None:
        session, _ = self._open()
        session.flush()

    def _open(self) -> tuple[Session, Connection]:
        """The session and its connection, if it is still the transaction that we began."""
        session, conn = self._session, self._conn
        if session is None or conn is None:
            raise Unavailable("this lane has no transaction")
        if not session.is_active:
            raise HandlerError(
                "a statement of the handler failed and the error was swallowed; the transaction cannot be committed",
                do="let the error pass, or run what may fail inside `with session.begin_nested():`",
            )
        if self._rolled_back or not conn.in_transaction() or not self._database.still_open(conn):
            raise HandlerMisuse("the handler ended the transaction that it was given", do=_LEAVE_IT)
        return session, conn

    # guards

    def handler_runs(self, running: bool) -> None:
        """Guards stand while the handler runs; afterwards what it tried is told, even if it swallowed our refusal."""
        session, conn = self._session, self._conn
        if session is None or conn is None:
            return
        self._guard = running
        if running:
            self._token = _handling.set(self)
            vars(session).update(dict.fromkeys(_OWN_TRANSACTION, self._refuse_end))
        else:
            if self._token is not None:
                _handling.reset(self._token)
            for name in _OWN_TRANSACTION:
                vars(session).pop(name, None)
        if not conn.closed and not conn.invalidated:
            self._database.guard(conn, running)
        if not running and self._misuse is not None:
            raise self._misuse

    def _refuse_end(self, *_: object, **__: object) -> NoReturn:
        self.misused("the handler tried to end the transaction that it was given")

    def misused(self, seen: str, *, code: str | None = None) -> NoReturn:
        self._misuse = HandlerMisuse(seen, code=code, do=_LEAVE_IT)
        raise self._misuse

    def before_statement(self, statement: str) -> None:
        if self._aborted:
            raise Unavailable("this lane was taken away")
        if self._guard:
            if self._rolled_back:
                self._open()
            try:
                self._database.refuse_words(statement)
            except HandlerMisuse as error:
                self._misuse = error
                raise

    def before_commit(self) -> None:
        if self._aborted:
            raise Unavailable("this lane was taken away")
        if self._guard:
            self._refuse_end()

    def before_rollback(self, conn: Connection) -> None:
        """SQLAlchemy rolls back by itself after a failed flush: allowed, and remembered."""
        if self._guard:
            self._rolled_back = True
            self._database.allow_rollback(conn)

    def translate(self, error: BaseException) -> BaseException:
        original = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
        translated = self._database.translate(original)
        if self._aborted and (translated is not original or isinstance(error, (SQLAlchemyError, Unavailable))):
            return HandlerTimeout("the handler ran longer than its time limit; its connection was taken away")
        if translated is not original:
            return translated
        if isinstance(error, PendingRollbackError):
            return HandlerError("a statement of the handler failed, the error was swallowed and it went on")
        if isinstance(error, PoolTimeout):
            return Unavailable(f"the engine's pool gave no connection: {error}", do="a larger pool, or fewer workers")
        if isinstance(error, DBAPIError) and error.connection_invalidated:
            return Unavailable(str(original) or "the connection to the database is gone")
        return error


class AsyncSessionLane:
    """Handlers on an AsyncSession of the application. The steps are those of SessionLane, run through its greenlet."""

    groups = False

    def __init__(self, engine: Engine, make: Callable[[], AsyncSession], database: _Database) -> None:
        self._make = make
        self._core = SessionLane(engine, make, database)
        self._turn = database.file.turn if database.file is not None else None
        self._session: AsyncSession | None = None
        self._conn: AsyncConnection | None = None
        self._taken = False

    def given(self, name: str) -> object:
        return self._session if name == "session" else self._conn

    async def begin(self) -> None:
        if self._taken:
            raise Unavailable("this lane was taken away")
        if self._turn is not None:
            await _acquire(self._turn)
            self._core.hold_turn()
        self._session = self._make()
        await self._session.run_sync(self._core.begin_on)
        self._conn = await self._session.connection()

    async def execute(self, step: Step) -> Rows:
        return await self._in_greenlet(lambda: self._core.execute(step))

    async def savepoint(self) -> None:
        await self._in_greenlet(self._core.savepoint)

    async def undo(self) -> None:
        await self._in_greenlet(self._core.undo)

    async def flush(self) -> None:
        await self._in_greenlet(self._core.flush)

    def handler_runs(self, running: bool) -> None:
        self._core.handler_runs(running)

    async def call(self, handler: Handler, arguments: Sequence[object]) -> None:
        """A blocking handler gets the Session and Connection behind ours: the same transaction."""
        if handler.is_async:
            result = handler.function(*arguments)
            if result is not None:
                await result
            return
        swapped = [self._behind(argument) for argument in arguments]
        await self._in_greenlet(lambda: handler.function(*swapped))

    def _behind(self, argument: object) -> object:
        if argument is self._session and self._session is not None:
            return self._session.sync_session
        if argument is self._conn and self._conn is not None:
            return self._conn.sync_connection
        return argument

    async def commit(self) -> None:
        await self._in_greenlet(self._core.commit)

    async def rollback(self) -> None:
        if self._session is not None:
            await self._in_greenlet(self._core.rollback)
        else:
            self._core.rollback()

    async def close(self) -> None:
        """Nothing is kept between transactions."""

    def translate(self, error: BaseException) -> BaseException:
        return self._core.translate(error)

    def abort(self) -> None:
        self._taken = True
        self._core.abort()

    async def _in_greenlet(self, call: Callable[[], T]) -> T:
        if self._session is None:
            raise StorageError("this lane has no transaction")
        return await self._session.run_sync(lambda _: call())


# -- what SQLAlchemy tells --------------------------------------------------------------------------------------


def _lane_of(conn: Connection) -> SessionLane | None:
    lane: SessionLane | None = conn.get_execution_options().get(_LANE)
    return lane


def _same_database(one: URL, other: URL) -> bool:
    if one.get_backend_name() != other.get_backend_name():
        return False
    if one.get_backend_name() == "sqlite":
        return (
            bool(one.database and other.database)
            and Path(one.database or "").absolute() == Path(other.database or "").absolute()
        )
    return (one.host, one.port or 5432, one.database) == (other.host, other.port or 5432, other.database)


def _refuse_second(conn: Connection, what: str) -> NoReturn:
    lane = _handling.get()
    assert lane is not None
    lane.misused(
        f"the handler opened a second connection to {conn.engine.url.database} and ran {what} on it", code="HO110"
    )


@event.listens_for(Engine, "set_connection_execution_options")
def _on_options(conn: Connection, options: dict[str, Any]) -> None:
    lane = options.get(_LANE)
    if lane is not None:
        lane.prepare(conn)


@event.listens_for(Engine, "before_cursor_execute")
def _on_statement(conn: Connection, _cursor: object, statement: str, *_: object) -> None:
    lane = _lane_of(conn)
    if lane is not None:
        lane.before_statement(statement)
        return
    running = _handling.get()
    if running is not None and not _READS.match(statement) and _same_database(running.engine.url, conn.engine.url):
        _refuse_second(conn, statement.strip().split(None, 1)[0].upper())


@event.listens_for(Engine, "commit")
def _on_commit(conn: Connection) -> None:
    lane = _lane_of(conn)
    if lane is not None:
        lane.before_commit()


@event.listens_for(Engine, "rollback")
def _on_rollback(conn: Connection) -> None:
    lane = _lane_of(conn)
    if lane is not None:
        lane.before_rollback(conn)
