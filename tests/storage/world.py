"""One database, one way to reach it, and the moves that the tests make: accept, claim, handle, look."""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import psycopg

from hookonce.clock import SystemClock
from hookonce.flow.accept import Acceptor
from hookonce.flow.claim import claim_due, claim_suspect
from hookonce.flow.handle import Done, Limits, Turn, run_async, run_sync
from hookonce.model import Arrival, Claim, Facts, Stored
from hookonce.registry import Handler, wanted
from hookonce.storage.backend import Backend
from hookonce.storage.sqlite import choose_module
from hookonce.storage.statements import Dialect
from hookonce.worker.lanes import AsyncSlot, SyncSlot

Kind = Literal["raw", "sqlalchemy"]
Colour = Literal["sync", "async"]
WAIT_SECONDS = 20.0


@dataclass(frozen=True)
class Runner:
    """One way to a database: which driver, which kind of lanes."""

    name: str
    dialect: Dialect
    kind: Kind = "raw"
    colour: Colour = "sync"
    driver: str = ""

    def __str__(self) -> str:
        return self.name


RUNNERS = (
    Runner("sqlite3", "sqlite", driver="sqlite3"),
    Runner("pysqlite3", "sqlite", driver="pysqlite3"),
    Runner("sqlite3-own-connections", "sqlite", driver="function"),
    Runner("psycopg", "postgres"),
    Runner("psycopg-async", "postgres", colour="async"),
    Runner("sqlalchemy-sqlite", "sqlite", "sqlalchemy", driver="sqlite"),
    Runner("sqlalchemy-aiosqlite", "sqlite", "sqlalchemy", "async", driver="sqlite+aiosqlite"),
    Runner("sqlalchemy-psycopg", "postgres", "sqlalchemy", driver="postgresql+psycopg"),
    Runner("sqlalchemy-psycopg-async", "postgres", "sqlalchemy", "async", driver="postgresql+psycopg"),
    Runner("sqlalchemy-asyncpg", "postgres", "sqlalchemy", "async", driver="postgresql+asyncpg"),
)
"""Every way there is."""

OWN_STEPS = tuple(runner for runner in RUNNERS if runner.name in ("sqlite3", "pysqlite3", "psycopg"))
"""Those that differ where no handler runs: the others pass on to these."""


@dataclass
class World:
    """A fresh database with our tables and a table `effect (note text PRIMARY KEY)`, and one backend on it."""

    runner: Runner
    where: str
    factory: Callable[[], Backend]
    engine: Any = None
    backends: list[Backend] = field(default_factory=list)

    @property
    def dialect(self) -> Dialect:
        return self.runner.dialect

    @property
    def backend(self) -> Backend:
        if not self.backends:
            self.another()
        return self.backends[0]

    def another(self) -> Backend:
        """One more backend, closed with the rest."""
        self.backends.append(self.factory())
        return self.backends[-1]

    # look

    def sql(self, text: str) -> list[tuple[Any, ...]]:
        """Run one statement on a connection apart from everything else."""
        if self.dialect == "postgres":
            with psycopg.connect(self.where, autocommit=True) as conn:
                cursor = conn.execute(text.encode())
                return cursor.fetchall() if cursor.description else []
        # The library of the runner: two of them on one file in one process take each other's locks away (F57).
        module = choose_module("pysqlite3" if self.runner.driver == "pysqlite3" else "sqlite3")
        conn = module.connect(self.where, isolation_level=None, timeout=5)
        try:
            rows: list[tuple[Any, ...]] = conn.execute(text).fetchall()
            return rows
        finally:
            conn.close()

    def effects(self) -> list[str]:
        return [note for (note,) in self.sql("SELECT note FROM effect ORDER BY note")]

    def states(self) -> list[str]:
        return [state for (state,) in self.sql("SELECT state FROM hookonce_receipt ORDER BY id")]

    def receipt(self, columns: str, receipt_id: int = 1) -> tuple[Any, ...]:
        return self.sql(f"SELECT {columns} FROM hookonce_receipt WHERE id = {receipt_id}")[0]

    # move

    async def accept(self, *arrivals: Arrival) -> list[Stored]:
        """Accept in one group; raises what the first refused arrival was refused with."""
        acceptor = Acceptor(self.backend, SystemClock())
        futures = [acceptor.submit(one) for one in arrivals]
        return [await future for future in futures]

    async def claim(self, limit: int = 10, *, lease: float = 30.0, now: float | None = None) -> list[Claim]:
        return await self.backend.run(claim_due(limit=limit, lease_seconds=lease, now=now), single=True)

    async def claim_suspect(self, *, crashes_max: int = 3, lease: float = 30.0) -> Any:
        return await self.backend.run(
            claim_suspect(lease_seconds=lease, crashes_max=crashes_max, now=None), single=True
        )

    async def one_claim(self) -> Claim:
        """Accept one event and claim it."""
        await self.accept(arrival(1))
        return (await self.claim())[0]

    async def lane(self) -> Any:
        return self.backend.lane() if self.runner.colour == "sync" else await self.backend.async_lane()

    async def slot(self) -> SyncSlot | AsyncSlot:
        """A lane as the worker has it: in a thread, or on this loop."""
        if self.runner.colour == "sync":
            return SyncSlot(self.backend, share=False)
        return AsyncSlot(await self.lane(), share=False)

    async def ask_engine(self, text: str) -> Any:
        """One value, over a connection of the application's engine."""
        if self.runner.colour == "sync":
            with self.engine.connect() as conn:
                return conn.exec_driver_sql(text).scalar()
        async with self.engine.connect() as conn:
            return (await conn.exec_driver_sql(text)).scalar()

    async def handle(self, *turns: Turn, lane: Any = None, seconds: float = 20.0) -> list[Done]:
        """Run turns in one transaction on a lane of this runner's colour."""
        own = lane or await self.lane()
        try:
            if self.runner.colour == "sync":
                done: list[Done] = await in_thread(lambda: run_sync(turns, own, Limits(seconds=seconds)))
                return done
            return await run_async(turns, own, Limits(seconds=seconds))
        finally:
            if lane is None:
                await maybe(own.close())

    def handler(self, *moves: Move, colour: Colour | None = None) -> Handler:
        """A handler that makes these moves, in the colour of this runner's lanes (or as asked)."""
        colour = colour or self.runner.colour
        if self.runner.kind == "sqlalchemy":
            sync_function: Any = lambda event, conn, session: _make(moves, Hand(self, conn, session))  # noqa: E731

            async def async_function(event: Any, conn: Any, session: Any) -> None:
                await _make_async(moves, Hand(self, conn, session))
        else:
            sync_function = lambda event, conn: _make(moves, Hand(self, conn))  # noqa: E731

            async def async_function(event: Any, conn: Any) -> None:  # type: ignore[misc]
                await _make_async(moves, Hand(self, conn))

        function = async_function if colour == "async" else sync_function
        return Handler(function=function, source="test", pattern="*", wants=wanted(function))

    def turn(self, claim: Claim, *moves: Move) -> Turn:
        return Turn(claim, self.handler(*moves))


@dataclass
class Hand:
    """What a handler has in its hand."""

    world: World
    conn: Any
    session: Any = None

    def run(self, text: str) -> Any:
        if self.world.runner.kind == "sqlalchemy":
            return self.conn.exec_driver_sql(text)
        return self.conn.execute(text)


@dataclass(frozen=True)
class Move:
    """One thing that a handler does. `swallow`: whatever comes of it, the handler goes on."""

    act: Callable[[Hand], Any]
    swallow: bool = False

    def __or__(self, swallow: object) -> Move:
        return Move(self.act, swallow=True)


SWALLOWED = object()
"""`move | SWALLOWED`: the handler catches the error and goes on as if nothing had been."""


def writes(note: str) -> Move:
    """Write an effect."""
    return runs(f"INSERT INTO effect (note) VALUES ('{note}')")


def runs(text: str) -> Move:
    """Run this on the connection."""
    return Move(lambda hand: hand.run(text))


def raises(error: Exception) -> Move:
    """Fail."""

    def act(_: Hand) -> None:
        raise error

    return Move(act)


def calls(method: str, on: str = "conn") -> Move:
    """Call a method of the connection or session."""
    return Move(lambda hand: getattr(getattr(hand, on), method)())


def _make(moves: Sequence[Move], hand: Hand) -> None:
    for move in moves:
        try:
            move.act(hand)
        except Exception:
            if not move.swallow:
                raise


async def _make_async(moves: Sequence[Move], hand: Hand) -> None:
    for move in moves:
        try:
            await maybe(move.act(hand))
        except Exception:
            if not move.swallow:
                raise


async def maybe(value: Any) -> Any:
    """The value, or what comes of waiting for it."""
    return await value if isinstance(value, Awaitable) else value


async def in_thread(call: Callable[[], Any]) -> Any:
    """In a thread of its own, as a slot does: a lane keeps to one thread, and no thread is used twice."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()

    def run() -> None:
        try:
            result = call()
        except BaseException as error:
            loop.call_soon_threadsafe(future.set_exception, error)
        else:
            loop.call_soon_threadsafe(future.set_result, result)

    threading.Thread(target=run, daemon=True).start()
    return await asyncio.wait_for(future, WAIT_SECONDS)


def arrival(number: int, *, body: bytes = b"{}", guard: bytes | None = None, key: bytes | None = None) -> Arrival:
    """One verified delivery; the same number is the same event."""
    return Arrival(
        key=hashlib.sha256(b"key %d" % number).digest() if key is None else key,
        guard=None if guard is None else hashlib.sha256(guard).digest(),
        source="test",
        facts=Facts(event_id=f"evt_{number}", type="thing.happened"),
        body=body,
        headers=b"x: y",
        body_digest=hashlib.sha256(body).digest(),
        secret_id="abc",
        correlation_id=f"c{number}",
        address="127.0.0.1",
    )
