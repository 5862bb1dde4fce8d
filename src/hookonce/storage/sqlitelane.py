"""The SQLite connection that handlers are given, and the lane that holds it.

Every call into SQLite passes a gate. So a connection can be taken from a handler that runs too long: the gate is shut,
what runs is interrupted, and when nobody is inside any more the connection is closed, which rolls back. Closing it
while another thread is inside would end the process.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from functools import cache
from typing import Any, NoReturn

from hookonce.errors import HandlerMisuse, HandlerTimeout, Unavailable
from hookonce.storage.operation import Rows, Step
from hookonce.storage.sqlite import BEGIN, COMMIT, ROLLBACK, Connection, SqliteFile

_SAVEPOINT = "SAVEPOINT hookonce_event"
_UNDO = "ROLLBACK TO hookonce_event"
_INTERRUPT_SECONDS = 0.02

TOO_LONG = "the handler ran longer than its time limit; its connection was taken away"


class Gate:
    """Lets one thread into a connection at a time, and nobody once it is shut."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.shut = False

    @contextlib.contextmanager
    def passing(self) -> Iterator[None]:
        with self.lock:
            if self.shut:
                raise HandlerTimeout(TOO_LONG)
            yield


@cache
def lane_connection(module: Any) -> type[Any]:
    """A connection class of this SQLite library whose every call passes its gate, and which does not commit."""

    class LaneCursor(module.Cursor):  # type: ignore[misc]
        def execute(self, *arguments: Any) -> Any:
            with self.connection.gate.passing():
                return super().execute(*arguments)

        def executemany(self, *arguments: Any) -> Any:
            with self.connection.gate.passing():
                return super().executemany(*arguments)

        def executescript(self, *arguments: Any) -> Any:
            # The driver itself commits before a script: no authorizer sees that in time.
            _refuse_end("executescript()")

        def fetchone(self) -> Any:
            with self.connection.gate.passing():
                return super().fetchone()

        def fetchmany(self, *arguments: Any, **named: Any) -> Any:
            with self.connection.gate.passing():
                return super().fetchmany(*arguments, **named)

        def fetchall(self) -> Any:
            with self.connection.gate.passing():
                return super().fetchall()

        def __next__(self) -> Any:
            with self.connection.gate.passing():
                return super().__next__()

    class LaneConnection(module.Connection):  # type: ignore[misc]
        def __init__(self, *arguments: Any, **named: Any) -> None:
            self.gate = Gate()
            super().__init__(*arguments, **named)

        def cursor(self, factory: Any = LaneCursor) -> Any:
            return super().cursor(factory)

        def executescript(self, *arguments: Any) -> Any:
            _refuse_end("executescript()")

        def commit(self) -> None:
            _refuse_end("commit()")

        def rollback(self) -> None:
            _refuse_end("rollback()")

        def __enter__(self) -> NoReturn:
            _refuse_end("with conn:")

    return LaneConnection


def _refuse_end(what: str) -> NoReturn:
    raise HandlerMisuse(
        f"the handler called {what} on the connection that it was given, which ends the transaction",
        do="leave the transaction alone: it is committed for you, together with the mark",
    )


class SqliteLane:
    """One connection on which handlers are run, in one thread; it holds the writer's turn from BEGIN to the end."""

    groups = True

    def __init__(self, file: SqliteFile) -> None:
        self._file = file
        self._conn: Connection = None
        self._mine = False
        self._mine_lock = threading.Lock()
        self._guard = False
        self._aborted = False

    def given(self, name: str) -> object:
        return self._conn

    def begin(self) -> None:
        if self._aborted:
            raise Unavailable("this lane was taken away")
        if self._conn is None:
            self._conn = self._file.open(factory=lane_connection(self._file.module))
            self._conn.set_authorizer(self._authorize)
        self._file.turn.acquire()
        self._mine = True
        self._conn.execute(BEGIN)

    def execute(self, step: Step) -> Rows:
        return self._file.execute(self._conn, step)

    def savepoint(self) -> None:
        self._conn.execute(_SAVEPOINT)

    def undo(self) -> None:
        self._conn.execute(_UNDO)

    def handler_runs(self, running: bool) -> None:
        self._guard = running
        if not running and self._conn is not None and not self._aborted and not self._conn.in_transaction:
            raise HandlerMisuse("the handler ended the transaction that it was given", code="HO111")

    def _authorize(self, action: int, first: str | None, *_: object) -> int:
        module = self._file.module
        if self._guard and action in (module.SQLITE_TRANSACTION, module.SQLITE_ATTACH, module.SQLITE_DETACH):
            return int(module.SQLITE_DENY)
        return int(module.SQLITE_OK)

    def flush(self) -> None:
        pass

    def commit(self) -> None:
        if self._aborted:  # a connection class of the user's own has no gate that would say so
            raise HandlerTimeout(TOO_LONG)
        self._conn.execute(COMMIT)
        self._file.checkpoint_if_large(self._conn)
        self._release()

    def rollback(self) -> None:
        try:
            if self._conn is not None and self._conn.in_transaction:
                self._conn.execute(ROLLBACK)
        finally:
            self._release()

    def _release(self) -> None:
        with self._mine_lock:  # whoever takes the lane away does so from another thread
            mine, self._mine = self._mine, False
        if mine:
            self._file.turn.release()

    def translate(self, error: BaseException) -> BaseException:
        if self._aborted and isinstance(error, self._file.module.Error):
            return HandlerTimeout(TOO_LONG)
        return self._file.translate(error, ours=False)

    def abort(self) -> None:
        """From another thread, and without waiting: what the handler wrote is rolled back, the next writer goes in."""
        self._aborted = True
        if self._conn is not None:
            threading.Thread(target=self._take_away, name="hookonce-sqlite-abort", daemon=True).start()

    def _take_away(self) -> None:
        conn, gate = self._conn, getattr(self._conn, "gate", None)
        if gate is None:  # the user's own connection class: interrupt, and let the handler's thread roll back
            with contextlib.suppress(self._file.module.Error):
                conn.interrupt()
            return
        gate.shut = True
        while not gate.lock.acquire(timeout=_INTERRUPT_SECONDS):
            with contextlib.suppress(self._file.module.Error):
                conn.interrupt()
        try:
            with contextlib.suppress(self._file.module.Error):
                conn.close()
        finally:
            gate.lock.release()
            self._release()

    def close(self) -> None:
        if self._conn is not None:
            with contextlib.suppress(Exception):
                self._conn.close()
            self._conn = None
