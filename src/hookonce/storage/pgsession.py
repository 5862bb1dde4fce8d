"""One asynchronous PostgreSQL connection for our own statements, driven on libpq itself.

psycopg connects it and knows its errors; between the two, a statement is one send and one callback. With a cursor
every group commit would pass the event loop four times, and at full load each pass waits behind other requests.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import psycopg
from psycopg import pq
from psycopg.pq.abc import PGresult

from hookonce.errors import NotDurable
from hookonce.storage.operation import Row, Rows, Statement, Step
from hookonce.storage.pgarray import ARRAY_OID, pack
from hookonce.storage.statements import Block

_INT8 = struct.Struct("!q").unpack
_INT4 = struct.Struct("!i").unpack
_FLOAT8 = struct.Struct("!d").unpack

_READ: Mapping[int, Callable[[bytes], Any]] = {
    16: lambda value: value == b"\x01",
    17: bytes,
    20: lambda value: _INT8(value)[0],
    23: lambda value: _INT4(value)[0],
    25: lambda value: value.decode(),
    701: lambda value: _FLOAT8(value)[0],
}
"""Binary results by type: bool, bytea, int8, int4, text, float8. Our statements return no others."""

LOOK_SECONDS = 0.2
"""An answer that is this long in coming is looked for without being told."""

_GOOD = frozenset({pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK})


class PgSession:
    """A connection that one operation uses at a time. Whatever goes wrong, it is closed and not used again."""

    def __init__(self, conn: psycopg.AsyncConnection[Any], blocks: Mapping[str, Block], *, prepare: bool) -> None:
        self.conn = conn
        self.warnings: list[str] = []
        self._pg = conn.pgconn
        self._pg.nonblocking = 1
        self._fd = self._pg.socket
        self._blocks = blocks
        self._prepare = prepare
        self._prepared: set[str] = set()
        self._loop = asyncio.get_running_loop()
        self._waiter: asyncio.Future[list[PGresult]] | None = None
        self._results: list[PGresult] = []
        self._watched = True
        self._look: asyncio.TimerHandle | None = None
        conn.add_notice_handler(self._hear)
        self._loop.add_reader(self._fd, self._readable)

    @property
    def usable(self) -> bool:
        return (
            not self.conn.closed
            and self._waiter is None
            and self._pg.transaction_status == pq.TransactionStatus.IDLE
            and not self._loop.is_closed()
        )

    async def execute(self, step: Step) -> Rows:
        """Run one of our statements and read its rows."""
        block = self._blocks[step.name]
        values, formats, types = _parameters(block, step)
        text = block.text.encode()
        if not self._prepare:
            result = await self._ask(self._pg.send_query_params, text, values, types, formats, pq.Format.BINARY)
            return _rows(result)
        name = block.name.encode()
        if block.name not in self._prepared:
            await self._ask(self._pg.send_prepare, name, text, types)
            self._prepared.add(block.name)
        return _rows(await self._ask(self._pg.send_query_prepared, name, values, formats, pq.Format.BINARY))

    async def command(self, text: str) -> str:
        """Run plain SQL without parameters; several statements are allowed. Returns the last command tag."""
        result = await self._ask(self._pg.send_query, text.encode())
        return (result.command_status or b"").decode()

    async def query(self, text: str) -> list[tuple[str, ...]]:
        """Run plain SQL and read its rows as text."""
        result = await self._ask(self._pg.send_query, text.encode())
        return [
            tuple((result.get_value(row, column) or b"").decode() for column in range(result.nfields))
            for row in range(result.ntuples)
        ]

    def refuse_warnings(self) -> None:
        """A cancelled wait for the standby ends in success and a WARNING: that is no durable commit."""
        if self.warnings:
            heard, self.warnings = self.warnings, []
            raise NotDurable(f"the server warned while committing: {heard[0]}")

    async def close(self) -> None:
        self._unwatch()
        with contextlib.suppress(Exception):
            await self.conn.close()

    def _unwatch(self) -> None:
        """Once: as soon as the connection is closed, its descriptor's number may be that of another connection."""
        if self._watched and not self._loop.is_closed():
            self._loop.remove_reader(self._fd)
            self._loop.remove_writer(self._fd)
        self._watched = False
        if self._look is not None:
            self._look.cancel()

    async def _ask(self, send: Callable[..., None], *arguments: Any) -> PGresult:
        waiter = self._waiter = self._loop.create_future()
        send(*arguments)
        if self._pg.flush():
            self._loop.add_writer(self._fd, self._writable)
        if self._look is None:
            self._look = self._loop.call_later(LOOK_SECONDS, self._look_again)
        results = await waiter
        for result in results:
            if result.status not in _GOOD:
                raise psycopg.errors.error_from_result(result, "utf-8")
        last: PGresult = results[-1]
        return last

    def _look_again(self) -> None:
        """A socket that was reset is no longer watched by uvloop, which tells nobody: the answer would be waited for forever."""
        self._look = None
        if self._waiter is not None and self._watched:
            self._look = self._loop.call_later(LOOK_SECONDS, self._look_again)
            self._readable()

    def _readable(self) -> None:
        broken: psycopg.Error | None = None
        try:
            self._read()
            if self._pg.status != pq.ConnStatus.OK:
                broken = psycopg.OperationalError("the connection is gone")
        except psycopg.Error as error:
            broken = error
        if broken is not None:
            # Now, not when the session is dropped: libpq has closed the socket, and the next connection gets its number.
            self._gone(broken)

    def _read(self) -> None:
        self._pg.consume_input()
        while self._waiter is not None and not self._pg.is_busy():
            result = self._pg.get_result()
            if result is None:
                waiter, results, self._results, self._waiter = self._waiter, self._results, [], None
                if not waiter.done():
                    waiter.set_result(results)
                return
            self._results.append(result)

    def _writable(self) -> None:
        try:
            if not self._pg.flush():
                self._loop.remove_writer(self._fd)
        except psycopg.Error as error:
            self._gone(error)

    def _gone(self, error: Exception) -> None:
        self._unwatch()
        self._pg.finish()
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_exception(error)

    def _hear(self, notice: psycopg.errors.Diagnostic) -> None:
        if (notice.severity_nonlocalized or notice.severity) == "WARNING":
            self.warnings.append(notice.message_primary or "")


def _parameters(block: Block, step: Step) -> tuple[list[bytes | None], list[int], list[int]]:
    """Values, formats and types in the order of the placeholders. Columns are binary arrays, the rest is text."""
    arrays: dict[str, tuple[bytes, int]] = {}
    if not isinstance(step, Statement):
        for (name, kind), column in zip(block.columns, zip(*step.rows, strict=True), strict=True):
            arrays[name] = (pack(kind, column), ARRAY_OID[kind])
    values: list[bytes | None] = []
    formats: list[int] = []
    types: list[int] = []
    for name in block.placeholders:
        if name in arrays:
            value, oid = arrays[name]
            values.append(value)
            formats.append(pq.Format.BINARY)
            types.append(oid)
        else:
            values.append(_plain(step.values[name]))
            formats.append(pq.Format.TEXT)
            types.append(0)
    return values, formats, types


def _plain(value: object) -> bytes | None:
    if value is None:
        return None
    if isinstance(value, float):
        return repr(value).encode()
    if isinstance(value, bytes):
        return b"\\x" + value.hex().encode()
    return str(value).encode()


def _rows(result: PGresult) -> Rows:
    readers = [_READ[result.ftype(column)] for column in range(result.nfields)]
    return [_row(result, row, readers) for row in range(result.ntuples)]


def _row(result: PGresult, row: int, readers: Sequence[Callable[[bytes], Any]]) -> Row:
    values = (result.get_value(row, column) for column in range(len(readers)))
    return tuple([None if value is None else read(value) for value, read in zip(values, readers, strict=True)])
