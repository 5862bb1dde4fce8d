"""PostgreSQL through psycopg 3: a few connections for our own steps, one for each lane of handlers.

Nothing here needs a session: no advisory locks, no LISTEN, no SET that outlives its transaction. Behind a pooler in
transaction mode only prepared statements are left out, and the pooler is recognised by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import socket
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, ClassVar, NoReturn, TypeVar

import psycopg
from psycopg import pq, sql
from psycopg.abc import Buffer, Query
from psycopg.adapt import Dumper
from psycopg.rows import TupleRow, tuple_row

from hookonce.errors import (
    Conflict,
    HandlerError,
    HandlerMisuse,
    HandlerTimeout,
    NotDurable,
    RowRefused,
    SchemaError,
    StorageError,
    Unavailable,
)
from hookonce.registry import Handler
from hookonce.storage.backend import Hands
from hookonce.storage.operation import Operation, Rows, Statement, Step
from hookonce.storage.pgarray import ARRAY_OID, ARRAY_TYPE, pack
from hookonce.storage.pgsession import PgSession
from hookonce.storage.statements import Block, Dialect, load

T = TypeVar("T")
log = logging.getLogger("hookonce.storage")

CONNECT_SECONDS = 3.0
CONNECTIONS_MAX = 8

# A worker that lost the network inside its transaction must not keep its rows: both settings are needed, one for
# data that was acknowledged, one for data that was not.
KEEPALIVE: Mapping[str, Any] = {
    "keepalives": 1,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 8_000,
    "connect_timeout": int(CONNECT_SECONDS),
    "application_name": "hookonce",
}


# The same, told to the server: it is the one that has to let go of the rows. Sockets of a pooler are the pooler's.
SERVER_KEEPALIVE = (
    "SET tcp_keepalives_idle = 5; SET tcp_keepalives_interval = 2; SET tcp_keepalives_count = 3;"
    " SET tcp_user_timeout = 8000"
)

IDLE_SECONDS = 10.0
"""Between two statements of one step of ours: longer than any process takes that is still there."""


class _ArrayDumper(Dumper):
    format = pq.Format.BINARY

    def dump(self, obj: Any) -> Buffer | None:
        return bytes(obj)


@cache
def _dumper(kind: str) -> type[Dumper]:
    return type(f"_{kind}_dumper", (_ArrayDumper,), {"oid": ARRAY_OID[kind]})


# Known to every connection of the process: the types are private, so nobody else's values are affected.
for _kind, _array in ARRAY_TYPE.items():
    psycopg.adapters.register_dumper(_array, _dumper(_kind))


def values_of(block: Block, step: Step) -> dict[str, Any]:
    """The parameters of a step: for many rows, one array a column."""
    if isinstance(step, Statement):
        return dict(step.values)
    columns = zip(*step.rows, strict=True)
    arrays = {name: pack(kind, column) for (name, kind), column in zip(block.columns, columns, strict=True)}
    return {**step.values, **arrays}


def translate(error: BaseException, *, ours: bool = True) -> BaseException:
    """A driver's error as one of ours. `ours`: the statement was ours, so a refused row is a refused row."""
    if not isinstance(error, psycopg.Error):
        return error
    state = error.sqlstate or ""
    text = str(error).strip().split("\n")[0]
    if state in ("40001", "40P01", "55P03"):
        return Conflict(text)
    if ours and state in ("57014", "25P03"):
        return Unavailable(text)  # a limit of the role, an administrator, or this process stood still for a while
    if state == "57014":
        return HandlerTimeout("a statement ran longer than the handler's time limit")
    if state == "25P03":
        return HandlerTimeout("the handler was idle inside its transaction for longer than its time limit")
    if state[:2] in ("08", "53", "57", "58") or state == "25006":
        return Unavailable(text)
    if not state and isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError)):
        return Unavailable(text or "the connection to PostgreSQL is gone")
    if state == "25P02":
        return HandlerError(
            "a statement of the handler failed and the error was swallowed; the transaction cannot be committed",
            do="let the error pass, or run the statement that may fail inside `with conn.transaction():`",
        )
    if state in ("42P01", "42703") and "hookonce_" in text:
        return SchemaError(text, do="hookonce migrate")
    if ours:
        return RowRefused(text) if state[:2] in ("22", "23", "54") else StorageError(f"{state} {text}")
    return error


def cut(conn: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> None:
    """Take the network away from a connection, from any thread: whoever waits on it wakes up with an error."""
    with contextlib.suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(conn.fileno())) as twin:
        twin.shutdown(socket.SHUT_RDWR)


class PostgresBackend:
    """The Backend of a PostgreSQL database."""

    dialect: Dialect = "postgres"
    bodies_apart = False
    groups_max = 4
    handler_seconds = 30.0
    lanes_max = 16

    def __init__(self, conninfo: str) -> None:
        self.conninfo = psycopg.conninfo.make_conninfo(
            conninfo, **{k: v for k, v in KEEPALIVE.items() if k not in psycopg.conninfo.conninfo_to_dict(conninfo)}
        )
        info = psycopg.conninfo.conninfo_to_dict(conninfo)
        self.where = f"PostgreSQL {info.get('user', '')}@{info.get('host', '')}:{info.get('port', 5432)}/{info.get('dbname', '')}"
        self.hands = Hands(frozenset({"conn"}), frozenset({"sync", "async"}), "a psycopg connection")
        self.blocks = load("postgres", "numeric_dollar")
        self._idle: deque[PgSession] = deque()
        self._room = CONNECTIONS_MAX
        self._free: asyncio.Condition | None = None
        self._pid = os.getpid()
        self._pooled: bool | None = None

    async def run(
        self, operation: Operation[T], *, within: float | None = None, urgent: bool = False, single: bool = False
    ) -> T:
        loop = asyncio.get_running_loop()
        began = loop.time()
        session = await self._take(within)
        limit = loop.call_later(max(0.0, within + began - loop.time()), cut, session.conn) if within else None
        try:
            result = await self._drive(operation, session, single=single)
            session.refuse_warnings()
        except BaseException as error:
            await self._drop(session)
            _raise_translated(translate(error), error)
        else:
            await self._give_back(session)
            return result
        finally:
            if limit is not None:
                limit.cancel()

    async def read(self, operation: Operation[T]) -> T:
        return await self.run(operation, within=30.0)

    async def _drive(self, operation: Operation[T], session: PgSession, *, single: bool) -> T:
        single = single and not self._pooled  # behind a pooler no setting of ours lasts longer than a transaction
        if not single:
            idle = f"SET LOCAL idle_in_transaction_session_timeout = {int(IDLE_SECONDS * 1000)}"
            await session.command(f"BEGIN ISOLATION LEVEL READ COMMITTED; {idle}")
        try:
            step = next(operation)
            while True:
                step = operation.send(await session.execute(step))
        except StopIteration as end:
            result: T = end.value
        if not single and await session.command("COMMIT") != "COMMIT":
            raise NotDurable("COMMIT ended as a rollback")
        return result

    async def script(self, text: str) -> None:
        session = await self._take()
        try:
            await session.command(f"BEGIN; SET LOCAL lock_timeout = '5s'; {text}\n; COMMIT")
        except BaseException as error:
            await self._drop(session)
            _raise_translated(translate(error), error)
        else:
            await self._give_back(session)

    async def _take(self, within: float | None = None) -> PgSession:
        """A connection, within the bound: opening one, or waiting for one, is part of the time that is given."""
        try:
            async with asyncio.timeout(within):
                return await self._take_any()
        except TimeoutError:
            raise Unavailable("PostgreSQL gave no connection in time") from None

    async def _take_any(self) -> PgSession:
        if os.getpid() != self._pid:  # after a fork: what the parent opened is the parent's
            self._pid, self._idle, self._room, self._free = os.getpid(), deque(), CONNECTIONS_MAX, None
        while True:
            if self._idle:
                session = self._idle.pop()
                if session.usable:
                    return session
                self._room += 1
                continue
            if self._room:
                self._room -= 1
                try:
                    return await self._open()
                except BaseException as error:
                    self._room += 1
                    _raise_translated(translate(error), error)
            if self._free is None:
                self._free = asyncio.Condition()
            async with self._free:
                await self._free.wait_for(lambda: self._idle or self._room)

    async def _open(self) -> PgSession:
        conn = await asyncio.wait_for(
            psycopg.AsyncConnection.connect(
                self.conninfo, autocommit=True, prepare_threshold=None, row_factory=tuple_row
            ),
            CONNECT_SECONDS,
        )
        pooled = await self.is_pooled(conn)
        if not pooled:
            # For what commits with its statement: our steps decide by what is committed, whatever the database's default.
            await conn.execute("SET default_transaction_isolation = 'read committed'")
        return PgSession(conn, self.blocks, prepare=not pooled)

    async def is_pooled(self, conn: psycopg.AsyncConnection[Any]) -> bool:
        """A pooler hands out process ids of its own; the server behind it knows another."""
        if self._pooled is None:
            row = await (await conn.execute("SELECT pg_backend_pid()")).fetchone()
            self._pooled = row is None or row[0] != conn.info.backend_pid
        return self._pooled

    async def _give_back(self, session: PgSession) -> None:
        if not session.usable:
            await self._drop(session)
            return
        self._idle.append(session)
        await self._wake()

    async def _drop(self, session: PgSession) -> None:
        """After any doubt a connection is closed, not pooled."""
        self._room += 1
        with contextlib.suppress(Exception):
            await session.close()
        await self._wake()

    async def _wake(self) -> None:
        if self._free is not None:
            async with self._free:
                self._free.notify()

    def lane(self) -> PostgresLane:
        return PostgresLane(self.conninfo, load("postgres", "pyformat"))

    async def async_lane(self) -> AsyncPostgresLane:
        return AsyncPostgresLane(self.conninfo, load("postgres", "pyformat"))

    async def facts(self) -> Mapping[str, str]:
        session = await self._take()
        try:
            rows = await session.query(
                "SELECT current_setting('server_version'), current_setting('fsync'), current_setting('full_page_writes'),"
                " current_setting('synchronous_commit'), current_setting('synchronous_standby_names'),"
                " pg_is_in_recovery()::text"
            )
            version, fsync, full, commit, standbys, recovery = rows[0]
        finally:
            await self._give_back(session)
        return {
            "database": self.where,
            "server": version,
            "fsync": fsync,
            "full_page_writes": full,
            "synchronous_commit": commit,
            "standbys": standbys or "none: an accepted event is on one machine",
            "pooler": "yes" if self._pooled else "no",
            "read_only": "yes" if recovery == "true" else "no",
        }

    async def close(self) -> None:
        while self._idle:
            await self._drop(self._idle.pop())


_ENDS_TRANSACTION = re.compile(
    rb"(?:^|;)\s*(?:/\*.*?\*/\s*|--[^\n]*\n\s*)*(?:COMMIT|END|ROLLBACK(?!\s+TO)|ABORT|BEGIN|START\s+TRANSACTION|PREPARE\s+TRANSACTION)\b",
    re.IGNORECASE | re.DOTALL,
)


def refuse_transaction_words(query: Query) -> None:
    """A handler's statement must not end the transaction that it was given."""
    if isinstance(query, str):
        text = query.encode("utf-8", "replace")
    elif isinstance(query, bytes):
        text = query
    else:
        text = query.as_bytes(None) if isinstance(query, sql.Composable) else b""
    if _ENDS_TRANSACTION.search(text):
        raise HandlerMisuse(
            f"the handler tried to end the transaction that it was given ({text[:40].decode('utf-8', 'replace')})",
            do="leave the transaction alone: it is committed for you, together with the mark",
        )


class _GuardedCursor(psycopg.Cursor[Any]):
    """The cursor that handlers use."""

    def execute(self, query: Query, *args: Any, **kwargs: Any) -> Any:
        refuse_transaction_words(query)
        return super().execute(query, *args, **kwargs)


class _GuardedAsyncCursor(psycopg.AsyncCursor[Any]):
    """The cursor that asynchronous handlers use."""

    async def execute(self, query: Query, *args: Any, **kwargs: Any) -> Any:
        refuse_transaction_words(query)
        return await super().execute(query, *args, **kwargs)


def _refuse_end() -> NoReturn:
    raise HandlerMisuse(
        "the handler called commit() or rollback() on the connection that it was given",
        do="leave the transaction alone: it is committed for you, together with the mark",
    )


class GuardedConnection(psycopg.Connection[Any]):
    """The connection that handlers are given: it writes, it does not commit."""

    def commit(self) -> None:
        _refuse_end()

    def rollback(self) -> None:
        _refuse_end()


class GuardedAsyncConnection(psycopg.AsyncConnection[Any]):
    """The asynchronous connection that handlers are given: it writes, it does not commit."""

    async def commit(self) -> None:
        _refuse_end()

    async def rollback(self) -> None:
        _refuse_end()


class _LaneState:
    """What both lanes know: what the server warned of, whether they were taken away, and how to say so."""

    groups: ClassVar[bool] = True

    def __init__(self, conninfo: str, blocks: Mapping[str, Block]) -> None:
        self.warnings: list[str] = []
        self._conninfo = conninfo
        self._blocks = blocks
        self._conn: Any = None
        self._cursor: Any = None
        self._plain: Any = None
        self._aborted = False

    def given(self, name: str) -> object:
        return self._conn

    def translate(self, error: BaseException) -> BaseException:
        if self._aborted and isinstance(error, psycopg.Error):
            return HandlerTimeout("the handler ran longer than its time limit; its connection was taken away")
        return translate(error, ours=False)

    def abort(self) -> None:
        """Also ask the server to stop: a backend inside a long statement does not look at its socket."""
        self._aborted = True
        if self._conn is not None and not self._conn.closed:
            cancel = self._conn.pgconn.get_cancel()
            threading.Thread(target=_quietly, args=(cancel.cancel,), name="hookonce-cancel", daemon=True).start()
            cut(self._conn)

    def handler_runs(self, running: bool) -> None:
        """After a handler the transaction must still be open: seen here, without asking the server."""
        if not running and self._conn.pgconn.transaction_status == pq.TransactionStatus.IDLE:
            raise HandlerMisuse(
                "the handler ended the transaction that it was given",
                do="leave the transaction alone: it is committed for you, together with the mark",
            )

    def _fresh(self) -> bool:
        if self._aborted:
            raise Unavailable("this lane was taken away")
        return self._conn is None or self._conn.closed

    def _adopt(self, conn: Any, cursor: Any, plain: Any) -> None:
        self._conn, self._cursor, self._plain = conn, cursor, plain
        cursor.format = pq.Format.BINARY
        conn.add_notice_handler(self._hear)

    def _check_commit(self) -> None:
        if self._plain.statusmessage != "COMMIT":
            raise NotDurable("COMMIT ended as a rollback")
        if self.warnings:
            raise NotDurable(f"the server warned while committing: {self.warnings[0]}")

    def _hear(self, notice: psycopg.errors.Diagnostic) -> None:
        if (notice.severity_nonlocalized or notice.severity) == "WARNING":
            self.warnings.append(notice.message_primary or "")


class PostgresLane(_LaneState):
    """One connection on which handlers are run, in one thread."""

    def begin(self) -> None:
        if self._fresh():
            conn = GuardedConnection.connect(
                self._conninfo, autocommit=True, prepare_threshold=None, cursor_factory=_GuardedCursor
            )
            row = psycopg.Cursor(conn).execute("SELECT pg_backend_pid()").fetchone()
            if row is not None and row[0] == conn.info.backend_pid:
                conn.prepare_threshold = 0
                psycopg.Cursor(conn).execute(SERVER_KEEPALIVE, prepare=False)
            cursor: psycopg.Cursor[TupleRow] = psycopg.Cursor(conn, row_factory=tuple_row)
            self._adopt(conn, cursor, psycopg.Cursor(conn))
        self.warnings.clear()
        self._plain.execute(b"BEGIN", prepare=False)

    def execute(self, step: Step) -> Rows:
        block = self._blocks[step.name]
        self._cursor.execute(block.text, values_of(block, step))
        rows: Rows = self._cursor.fetchall()
        return rows

    def savepoint(self) -> None:
        self._plain.execute(b"SAVEPOINT hookonce_event", prepare=False)

    def undo(self) -> None:
        self._plain.execute(b"ROLLBACK TO hookonce_event", prepare=False)

    def flush(self) -> None:
        pass

    def commit(self) -> None:
        self.warnings.clear()
        self._plain.execute(b"COMMIT", prepare=False)
        self._check_commit()

    def rollback(self) -> None:
        if self._conn is not None and self._conn.pgconn.transaction_status != pq.TransactionStatus.IDLE:
            self._plain.execute(b"ROLLBACK", prepare=False)

    def close(self) -> None:
        if self._conn is not None:
            self._conn.close()


class AsyncPostgresLane(_LaneState):
    """One connection on which handlers are run, on one event loop."""

    async def begin(self) -> None:
        if self._fresh():
            conn = await GuardedAsyncConnection.connect(
                self._conninfo, autocommit=True, prepare_threshold=None, cursor_factory=_GuardedAsyncCursor
            )
            cursor: psycopg.AsyncCursor[TupleRow] = psycopg.AsyncCursor(conn, row_factory=tuple_row)
            await cursor.execute("SELECT pg_backend_pid()")
            row = await cursor.fetchone()
            if row is not None and row[0] == conn.info.backend_pid:
                conn.prepare_threshold = 0
                await psycopg.AsyncCursor(conn).execute(SERVER_KEEPALIVE, prepare=False)
            self._adopt(conn, cursor, psycopg.AsyncCursor(conn))
        self.warnings.clear()
        await self._plain.execute(b"BEGIN", prepare=False)

    async def execute(self, step: Step) -> Rows:
        block = self._blocks[step.name]
        await self._cursor.execute(block.text, values_of(block, step))
        rows: Rows = await self._cursor.fetchall()
        return rows

    async def savepoint(self) -> None:
        await self._plain.execute(b"SAVEPOINT hookonce_event", prepare=False)

    async def undo(self) -> None:
        await self._plain.execute(b"ROLLBACK TO hookonce_event", prepare=False)

    async def flush(self) -> None:
        pass

    async def call(self, handler: Handler, arguments: Sequence[object]) -> None:
        await call_on_loop(handler, arguments)

    async def commit(self) -> None:
        self.warnings.clear()
        await self._plain.execute(b"COMMIT", prepare=False)
        self._check_commit()

    async def rollback(self) -> None:
        if self._conn is not None and self._conn.pgconn.transaction_status != pq.TransactionStatus.IDLE:
            await self._plain.execute(b"ROLLBACK", prepare=False)

    async def close(self) -> None:
        if self._conn is not None:
            await self._conn.close()


async def call_on_loop(handler: Handler, arguments: Sequence[object]) -> None:
    """Run an `async def` handler."""
    result = handler.function(*arguments)
    if result is not None:
        await result


def _quietly(call: Callable[[], None]) -> None:
    with contextlib.suppress(Exception):
        call()


def _raise_translated(translated: BaseException, error: BaseException) -> NoReturn:
    if translated is error:
        raise error
    raise translated from error


Connector = Callable[[], Any]
